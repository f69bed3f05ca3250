"""`ragen2 warmup`: any model, warmed up on a recipe's environments and saved as a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ragen2.errors import ConfigError
from ragen2.storage import write_whole
from ragen2.training.config import RunConfig, warmup_config
from ragen2.training.setup import choose_arithmetic, load_policy, make_chat_format, make_engine, start_model_of
from ragen2.training.warmup import warmup
from ragen2.training.warmup_bar import warmup_bar


def warm_up(config: RunConfig, out: Path | None, note: Callable[[str], None]) -> Path:
    """The folder of the warmed-up model: `out`, or for `petri` its place in the cache.

    Raises ConfigError without `out` for other models, WarmupFailed where the gate does not hold, KeyboardInterrupt after Ctrl-C.
    """
    if config.model.name == "petri" and out is None:
        return Path(start_model_of(config))
    if out is None:
        raise ConfigError(f"give --out FOLDER for the warmed-up {config.model.name!r}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} exists already; choose a new folder or remove it first")
    settings, arithmetic = warmup_config(config), choose_arithmetic(config.model)
    model, tokenizer = load_policy(config.model, start_model_of(config), None, arithmetic.device, config.warmup_seed)
    engine = make_engine(config.model, model, make_chat_format(model, tokenizer, config.rollout.think), arithmetic)
    with warmup_bar(f"warming up {config.model.name}", settings.steps) as report:
        result = warmup(
            model,
            tokenizer,
            config.environments,
            settings,
            seed=config.warmup_seed,
            rollout=config.rollout,
            report=report,
            engine=engine,
        )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    merge = getattr(model, "merge_and_unload", None)
    merged = model if merge is None else merge()
    merged.save_pretrained(out)
    tokenizer.save_pretrained(out)
    record = {"settings": asdict(settings), "result": asdict(result)}
    write_whole(out / "warmup.json", (json.dumps(record, indent=1) + "\n").encode())
    for item in result.measures.values():
        note(item.describe())
    return out
