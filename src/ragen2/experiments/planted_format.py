"""Broken format the natural way: reinforcement learning at a learning rate that is too high for it."""

from __future__ import annotations

from pathlib import Path

from ragen2.errors import ConfigError
from ragen2.training.config import load_config
from ragen2.training.run import Note, Outcome, start_run

LEAST_RATE = 3e-4
"""From this learning rate on, with four optimiser steps an iteration, GRPO breaks the format of petri."""


def break_by_training(
    model: str | Path,
    out: str | Path,
    *overrides: str,
    learning_rate: float = LEAST_RATE,
    iterations: int = 30,
    note: Note = print,
) -> Outcome:
    """Train `model` with GRPO on FrozenLake until its format breaks: a run directory of the trainer, with its verdict.

    The success of the first iterations rises, then replies stop parsing. `overrides` as for `ragen2 train`. Raises ConfigError
    for a learning rate below `LEAST_RATE`, at which the format holds.
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
            "optimizer.steps_per_iteration=4",
            "validation.levels=128",
            "validation.every=3",
            "monitor.every=3",
            "monitor.probe_prompts=32",
            "checkpoint.every=10",
            *overrides,
        ],
    )
    return start_run(config, note)
