"""Measure a checkpoint, a run or a bare model on held-out levels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ragen2.errors import ConfigError
from ragen2.training.checkpoint import find_checkpoint, load_checkpoint
from ragen2.training.config import RunConfig, load_config
from ragen2.training.levels import held_out_levels
from ragen2.training.loop import VALIDATION_SEED
from ragen2.training.run_dir import open_run_directory
from ragen2.training.setup import build_parts, start_model_of
from ragen2.training.validation import validate
from ragen2.trajectory import RolloutBatch


def evaluate_model(
    target: str,
    *,
    recipe: str | None = None,
    levels: int | None = None,
    samples: int = 1,
    temperature: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, float], list[RolloutBatch]]:
    """`validation/<env>/…` metrics of `target`, and the rollouts behind them.

    `target` is a run directory, one of its checkpoints, or (with `recipe`) any model that `model.name` accepts. `recipe` also
    plays a run's model in other environments. Raises ConfigError when it is none of these.
    """
    config, start_model, policy = locate(target, recipe)
    settings = config.validation
    changed = dataclasses.replace(
        settings,
        levels=settings.levels if levels is None else levels,
        samples=samples,
        pass_at=tuple(k for k in (1, 2, 4, 8, 16, 32, 64) if k <= samples),
        temperature=settings.temperature if temperature is None else temperature,
    )
    config = dataclasses.replace(config, validation=changed)
    parts = build_parts(config, start_model, policy)
    held_out = [held_out_levels(item, changed.levels, changed.samples, VALIDATION_SEED) for item in config.environments]
    return validate(parts.validator, held_out, changed, VALIDATION_SEED, progress)


def locate(target: str, recipe: str | None) -> tuple[RunConfig, str, Path | None]:
    """Configuration, start model and policy folder (None: the start model itself) of a run, a checkpoint or a model.

    Raises ConfigError when `target` is none of these.
    """
    path = Path(target)
    inside = path.parent.parent if path.parent.name == "checkpoints" else path
    if (inside / "config.yaml").is_file():
        own = load_config(str(open_run_directory(inside).config))
        config = own if recipe is None else dataclasses.replace(load_config(recipe), model=own.model)
        checkpoint = load_checkpoint(find_checkpoint(path))
        return config, checkpoint.start_model, checkpoint.policy
    if recipe is None:
        raise ConfigError(
            f"{target} is no run directory or checkpoint of one; for a bare model name the recipe: --recipe frozen-lake"
        )
    config = load_config(recipe)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, name=target))
    return config, start_model_of(config), None
