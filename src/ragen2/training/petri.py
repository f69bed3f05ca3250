"""The petri model: two million parameters, built on first use from the environments' own imperfect demonstrations.

A standard Hugging Face folder (Llama architecture, byte-level BPE tokenizer) comes out, kept in the cache under a key of all
settings that made it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragen2.cache import build_once, cache_folder
from ragen2.envs import make
from ragen2.envs.splits import SPLITS
from ragen2.errors import ConfigError, UnknownName
from ragen2.rollout.config import RolloutConfig
from ragen2.training.demonstrations import default_expertise, play_episode
from ragen2.training.petri_tokenizer import END, PAD, build_tokenizer, is_word
from ragen2.training.settings import EnvironmentConfig
from ragen2.training.warmup import WarmupConfig, warmup
from ragen2.training.warmup_bar import warmup_bar

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

RECIPE = 2
"""Version of this recipe: raise it when the same settings would give another model."""

SERVED = ("frozen-lake", "sokoban", "countdown", "bandit")
"""Environments whose words are in every petri vocabulary."""

STEPS = {"frozen-lake": 700, "sokoban": 1200, "countdown": 600, "bandit": 200}
"""Optimiser steps after which a petri reads its prompt and knows what its moves do, with a margin."""

VOCABULARY_EPISODES = 240
"""Episodes of each environment that the tokenizer learns from."""


@dataclass(frozen=True)
class PetriConfig:
    """Shape of the model."""

    hidden: int = 192
    layers: int = 4
    heads: int = 6
    key_value_heads: int = 3
    feed_forward: int = 512
    context_tokens: int = 4096
    vocabulary: int = 1200
    """Most tokens of the tokenizer."""
    embedding_std: float = 0.02
    """Deviation of the initial weights."""

    def __post_init__(self) -> None:
        if self.hidden % self.heads or self.heads % self.key_value_heads:
            raise ConfigError(
                f"petri hidden {self.hidden}, heads {self.heads} and key_value_heads {self.key_value_heads} do not divide evenly"
            )


def resolve_model(
    name: str,
    environments: Sequence[EnvironmentConfig],
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    *,
    rollout: RolloutConfig | None = None,
    cache_dir: Path | None = None,
    note: Callable[[str], None] | None = None,
) -> Path | str:
    """Something `from_pretrained` takes: the folder of `petri` or `smollm2-135m` (made on first use), any other name as it is.

    `options` override fields of petri's `WarmupConfig`, `rollout` is what the model will be used with, `note` is told what takes
    time. Raises what `build_petri` and `smollm2_folder` raise, and UnknownName for an option that does not exist.
    """
    if name == "smollm2-135m":
        from ragen2.training.smollm2 import smollm2_folder

        return smollm2_folder(cache_dir)
    if name != "petri":
        return name
    return build_petri(environments, seed, cache_dir, rollout=rollout, settings=petri_warmup(environments, options), note=note)


def petri_warmup(environments: Sequence[EnvironmentConfig], options: Mapping[str, Any] | None = None) -> WarmupConfig:
    """The warm-up of petri for these environments, with `options` put over it. Raises UnknownName for a wrong option."""
    known = [item.name for item in dataclasses.fields(WarmupConfig)]
    for key in options or {}:
        if key not in known:
            raise UnknownName("warm-up option", key, known)
    steps = sum(STEPS.get(item.id, WarmupConfig.steps) for item in environments)
    return WarmupConfig(**{"steps": steps, **(options or {})})


def build_petri(
    environments: Sequence[EnvironmentConfig],
    seed: int = 0,
    cache_dir: Path | None = None,
    *,
    rollout: RolloutConfig | None = None,
    shape: PetriConfig | None = None,
    settings: WarmupConfig | None = None,
    progress: bool = True,
    note: Callable[[str], None] | None = None,
) -> Path:
    """The folder of the petri model for these environments; built (some minutes) unless the cache has it.

    The folder holds safetensors, config, tokenizer files and `petri.json` with all settings and what was measured. `seed` fixes
    weights, demonstrations and batches. `rollout` is what the model will be used with. Raises WarmupFailed, StorageError,
    ConfigError, KeyboardInterrupt after Ctrl-C; nothing is kept then.
    """
    if not environments:
        raise ConfigError("petri is built from demonstrations: name at least one environment")
    rollout, shape, settings = rollout or RolloutConfig(), shape or PetriConfig(), settings or petri_warmup(environments)
    about = _about(environments, seed, rollout, shape, settings)
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:20]
    name = "petri-" + "-".join(sorted({item.id.replace("/", "_") for item in environments}))
    target = (cache_dir or cache_folder()) / f"{name[:80]}-{key}"

    def build(folder: Path) -> None:
        if note is not None:
            note(f"building petri for {', '.join(item.id for item in environments)} once, some minutes on two cores: {target}")
        _build(folder, about, environments, seed, rollout, shape, settings, progress)

    return build_once(target, build)


def _about(
    environments: Sequence[EnvironmentConfig], seed: int, rollout: RolloutConfig, shape: PetriConfig, settings: WarmupConfig
) -> dict[str, Any]:
    """Everything the model follows from. The sample stands for the environments' texts and the tokenizer's rules, which change
    with the code."""
    shown = ("max_turns", "actions_per_turn", "max_actions", "context_tokens", "context", "context_turns", "think", "word_limit")
    sample = hashlib.sha256()
    for item in _served(environments):
        for text in environment_texts(item, rollout, 2 * len(SPLITS))[0]:
            sample.update(text.encode() + b"\0")
    return {
        "recipe": RECIPE,
        "environments": [{"id": item.id, "options": dict(item.options)} for item in environments],
        "expertise": {item.id: default_expertise(item.id) for item in environments},
        "seed": seed,
        "rollout": {name: getattr(rollout, name) for name in shown},
        "shape": dataclasses.asdict(shape),
        "warmup": dataclasses.asdict(settings),
        "texts": sample.hexdigest(),
    }


def _build(
    folder: Path,
    about: dict[str, Any],
    environments: Sequence[EnvironmentConfig],
    seed: int,
    rollout: RolloutConfig,
    shape: PetriConfig,
    settings: WarmupConfig,
    progress: bool,
) -> None:
    tokenizer = petri_tokenizer(environments, rollout, shape.vocabulary)
    model = new_petri(shape, tokenizer, seed)
    title = f"building petri for {', '.join(item.id for item in environments)}"
    with warmup_bar(title, settings.steps, progress) as report:
        result = warmup(model, tokenizer, environments, settings, seed=seed, rollout=rollout, report=report)
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    record = {**about, "parameters": model.num_parameters(), "vocabulary": len(tokenizer), "result": dataclasses.asdict(result)}
    (folder / "petri.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def new_petri(config: PetriConfig, tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """A randomly initialised model. The global random state is left as it was."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden,
        intermediate_size=config.feed_forward,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.key_value_heads,
        max_position_embeddings=config.context_tokens,
        tie_word_embeddings=True,
        initializer_range=config.embedding_std,
        bos_token_id=None,
        eos_token_id=int(tokenizer.convert_tokens_to_ids(END)),  # pyright: ignore[reportArgumentType]
        pad_token_id=int(tokenizer.convert_tokens_to_ids(PAD)),  # pyright: ignore[reportArgumentType]
    )
    # The library initialises from the global generator only: fork it, so that nobody else's draws depend on this.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(shape).float().eval()


def petri_tokenizer(environments: Sequence[EnvironmentConfig], rollout: RolloutConfig, size: int) -> PreTrainedTokenizerFast:
    """The tokenizer for the built-in environments and any others given: the same in any process."""
    texts: list[str] = []
    whole: list[str] = []
    words: set[str] = set()
    for item in _served(environments):
        found, actions = environment_texts(item, rollout, VOCABULARY_EPISODES)
        texts += found
        words |= actions
        if item.id not in SERVED:
            whole += found
    return build_tokenizer(texts, sorted(words), whole=whole, size=size)


def _served(environments: Sequence[EnvironmentConfig]) -> list[EnvironmentConfig]:
    """The environments given and, with default options, the built-in ones that are not among them, by id."""
    given = {item.id for item in environments}
    served = [*environments, *(EnvironmentConfig(name) for name in SERVED if name not in given)]
    return sorted(served, key=lambda item: item.id)


def environment_texts(item: EnvironmentConfig, rollout: RolloutConfig, episodes: int) -> tuple[list[str], set[str]]:
    """Texts of demonstrated episodes of all splits, and the words that carry their levels: those of observations and actions."""
    rng = np.random.default_rng(0x70E5)
    texts: list[str] = []
    carriers: set[str] = set()
    for split in SPLITS:
        env = make(item.id, split=split, **item.options)
        try:
            for seed in range(episodes // len(SPLITS)):
                episode = play_episode(env, rollout, seed, seed, rng, 0.5)
                # The system text is one and stands before every episode: its words count as often.
                texts += [episode.system, *(text for turn in episode.turns for text in (turn.user, turn.reply))]
                for turn in episode.turns:
                    carriers.update(turn.observation.split(), turn.actions)
        finally:
            env.close()
    return texts, {word for word in carriers if is_word(word)}
