"""Broken format the natural way: reinforcement learning at a learning rate that is too high for it."""

from __future__ import annotations

from pathlib import Path

from ragen2.errors import ConfigError
from ragen2.training.config import load_config
from ragen2.training.run import Note, Outcome, start_run

LEAST_RATE = 3e-4
"""At lower learning rates GRPO with four optimiser steps an iteration keeps petri's format."""

STEPS = 4
"""Optimiser steps an iteration."""

RATE = 2e-3
"""A learning rate at which it does not."""


def break_by_training(
    model: str | Path,
    out: str | Path,
    *overrides: str,
    learning_rate: float = RATE,
    iterations: int = 24,
    note: Note = print,
) -> Outcome:
    """Train `model` with GRPO on FrozenLake until its format breaks: a run directory of the trainer, with its verdict.

    The learning rate rises over the first half of the iterations, so that the policy learns before it breaks. `overrides` as for
    `ragen2 train`. Raises ConfigError for a learning rate below `LEAST_RATE`.
    """
    if learning_rate < LEAST_RATE:
        raise ConfigError(f"learning_rate is {learning_rate}; below {LEAST_RATE} the format holds, so there is nothing to see")
    config = load_config(
        "frozen-lake",
        [
            "algorithm=grpo",
            f"model.name={model}",
            f"out={out}",
            f"iterations={iterations}",
            f"optimizer.learning_rate={learning_rate}",
            f"optimizer.steps_per_iteration={STEPS}",
            f"optimizer.warmup_steps={STEPS * iterations // 2}",
            "validation.levels=128",
            "validation.every=3",
            "monitor.every=3",
            "monitor.probe_prompts=32",
            "checkpoint.every=10",
            *overrides,
        ],
    )
    return start_run(config, note)
