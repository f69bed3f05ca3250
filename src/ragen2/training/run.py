"""Start, resume and finish a run: run directory, trainer, verdict, summary."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

import ragen2
from ragen2.diagnostics.early_stop import StopDecision
from ragen2.diagnostics.series import series_from_records
from ragen2.diagnostics.verdict import Verdict, judge
from ragen2.errors import CheckpointCorrupt, ConfigError
from ragen2.storage import write_whole
from ragen2.training.checkpoint import (
    drop_checkpoints_after,
    find_checkpoint,
    list_checkpoints,
    load_checkpoint,
    write_folder_whole,
)
from ragen2.training.config import RunConfig, dump_config, load_config
from ragen2.training.estimate import estimate
from ragen2.training.generators import Generators
from ragen2.training.live_table import LiveTable
from ragen2.training.loop import Trainer, restore
from ragen2.training.metrics_log import MetricsLog, read_metrics
from ragen2.training.run_dir import RunDirectory, new_run_directory, only_trainer, open_run_directory
from ragen2.training.setup import build_parts, start_model_of

Note = Callable[[str], None]

COLLAPSED = 6
"""Exit code of a run that was stopped early because it collapsed."""


FIXED = (
    "seed", "warmup_seed", "recipe", "out", "environments", "warmup", "model.name", "model.lora", "model.critic_layers",
    "algorithm.name",
)  # fmt: skip
"""Settings that a resumed run keeps."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: RunDirectory
    summary: dict[str, Any]
    verdict: Verdict
    exit_code: int


def start_run(config: RunConfig, note: Note) -> Outcome:
    """Train from the beginning in a new run directory."""
    start_model = start_model_of(config)
    parts = build_parts(config, start_model)
    run = new_run_directory(config.out, config.recipe, config.algorithm.name)
    write_whole(run.config, dump_config(config).encode())
    run.write_json(run.about, about(start_model))
    for line in estimate(config, parts):
        note(line)
    title = f"{config.recipe} · {config.algorithm.name} · {Path(start_model).name} · {run.path}"
    with only_trainer(run), open_log(run, config) as log, LiveTable(config.iterations, title) as table:
        trainer = Trainer(config, run, parts, log, table, Generators.from_seed(config.seed))
        stop = _train(trainer)
    return finish(trainer, stop)


def resume_run(path: str | Path, overrides: Sequence[str], note: Note) -> Outcome:
    """Go on from the newest (or the given) checkpoint of a run, exactly as if it had not stopped.

    `overrides` may extend the run (`iterations=100`); others change what follows. Metrics and checkpoints after a given
    checkpoint are dropped: they are made anew. Raises ConfigError for an override of what a run cannot change (see `FIXED`),
    CheckpointCorrupt for a checkpoint that does not read or is not of this run.
    """
    given = Path(path)
    folder = given.parent.parent if given.parent.name == "checkpoints" else given
    run = open_run_directory(folder)
    config = load_config(str(run.config), overrides)
    if overrides:
        _refuse_changes(load_config(str(run.config)), config)
    checkpoint = load_checkpoint(find_checkpoint(given))
    if checkpoint.step >= config.iterations:
        raise ConfigError(
            f"{run.path} has finished its {config.iterations} iterations; give more, "
            f"for example iterations={2 * config.iterations}"
        )
    note(f"resuming {run.path} after iteration {checkpoint.step}")
    parts = build_parts(config, checkpoint.start_model, checkpoint.policy)
    title = f"{config.recipe} · {config.algorithm.name} · resumed · {run.path}"
    with (
        only_trainer(run),
        open_log(run, config) as log,
        LiveTable(config.iterations, title, done=checkpoint.step) as table,
    ):
        trainer = Trainer(config, run, parts, log, table, Generators.from_seed(config.seed))
        try:
            restore(trainer, checkpoint.state, checkpoint.tensors)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointCorrupt(
                f"checkpoint {checkpoint.path} does not fit the settings in {run.config}: {error!r}"
            ) from error
        # Only now is anything of the earlier run given up.
        if overrides:
            write_whole(run.config, dump_config(config).encode())
        log.truncate_after(checkpoint.step)
        drop_checkpoints_after(run.checkpoints, checkpoint.step)
        for line in log.notes:
            table.note(line)
        trainer.history = list(read_metrics(run.path / "metrics.jsonl"))
        stop = _train(trainer)
    return finish(trainer, stop)


def _refuse_changes(before: RunConfig, after: RunConfig) -> None:
    """A checkpoint decides these: a changed value would stand in config.yaml without being true."""
    old, new = dataclasses.asdict(before), dataclasses.asdict(after)
    for key in FIXED:
        section, _, name = key.partition(".")
        was, asked = (old[section][name], new[section][name]) if name else (old[section], new[section])
        if was != asked:
            raise ConfigError(f"{key} of a run that goes on cannot change (it is {was!r}, asked for {asked!r}); start a new run")


def open_log(run: RunDirectory, config: RunConfig) -> MetricsLog:
    """The metrics log with the writers that the run asks for; hosted ones get the whole configuration."""
    return MetricsLog(run.path, config.logging.writers, config=yaml.safe_load(dump_config(config)))


def _train(trainer: Trainer) -> StopDecision | None:
    """Train; Ctrl-C comes out with how to go on."""
    try:
        return trainer.train()
    except KeyboardInterrupt as error:
        run = trainer.run
        if not list_checkpoints(run.checkpoints):
            raise KeyboardInterrupt(f"interrupted before the first checkpoint; start the run again. Run: {run.path}") from error
        raise KeyboardInterrupt(f"interrupted; the run goes on with: ragen2 train --resume {run.path}") from error


def finish(trainer: Trainer, stop: StopDecision | None) -> Outcome:
    """Judge the run, write verdict, summary and the trained model."""
    run = trainer.run
    verdict = judge(series_from_records(trainer.history), stop=None if stop is None else stop.reason)
    run.write_json(run.verdict, dataclasses.asdict(verdict))
    summary = summarise(trainer, stop, verdict)
    run.write_json(run.summary, summary)
    write_folder_whole(run.model, trainer.parts.save_merged, f"the trained model {run.model}")
    collapsed = stop is not None and stop.reason != "solved"
    return Outcome(run, summary, verdict, COLLAPSED if collapsed else 0)


def summarise(trainer: Trainer, stop: StopDecision | None, verdict: Verdict) -> dict[str, Any]:
    """Start and end of every validated environment, and what the run cost."""
    history = trainer.history
    validations = [record for record in history if any(key.startswith("validation/") for key in record)]
    environments = {}
    for item in trainer.held_out:
        where = f"validation/{item.environment}/"
        keys = ("success", "success_low", "success_high", "return", "valid_think_rate", "episodes")
        environments[item.environment] = {
            when: {key: record.get(where + key) for key in keys}
            for when, record in (("start", validations[0]), ("end", validations[-1]))
        }
    return {
        "iterations": trainer.iteration,
        "environments": environments,
        "verdict": verdict.verdict,
        "stopped_early": None if stop is None else dataclasses.asdict(stop),
        "seconds": sum(record.get("time/iteration", 0.0) for record in history),
    }


def about(start_model: str) -> dict[str, Any]:
    """Versions and machine, kept with every run."""
    import numpy
    import transformers

    return {
        "ragen2": ragen2.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "start_model": start_model,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
