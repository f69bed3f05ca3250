"""The swap test and the counterfactual test of a checkpoint, run or model, on held-out levels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen2.diagnostics.action_scores import SwapConfig
from ragen2.diagnostics.answers import move_answers
from ragen2.diagnostics.monitor import Monitor, MonitorConfig
from ragen2.diagnostics.signals import iteration_metrics
from ragen2.diagnostics.swap_metrics import Causality, causality_test
from ragen2.envs import make
from ragen2.errors import ConfigError
from ragen2.training.config import RunConfig
from ragen2.training.evaluate import locate
from ragen2.training.levels import held_out_levels
from ragen2.training.loop import VALIDATION_SEED
from ragen2.training.setup import Parts, build_parts
from ragen2.trajectory import RolloutBatch, Trajectory

SCHEMA = "ragen2.swap-test/1"

Progress = Callable[[str, int, int], None]
"""Called with what is done ("playing", "mutual information", "swapping"), how much of it, and how much there is."""


@dataclass(frozen=True)
class CausalityReport:
    """The tests of one policy. `figures` holds success, valid-think rate and mutual information of the same rollouts."""

    target: str
    levels: int
    samples: int
    causality: Causality
    figures: dict[str, float | str]

    def sentences(self) -> list[str]:
        """The result in words."""
        return [self.causality.swap.describe(), self.causality.counterfactual.describe()]

    def to_json(self) -> dict[str, Any]:
        """As plain data, the layout of `SCHEMA`."""
        return {
            "schema": SCHEMA,
            "target": self.target,
            "levels": self.levels,
            "samples": self.samples,
            "metrics": {**self.figures, **self.causality.metrics()},
            **dataclasses.asdict(self.causality),
            "sentences": self.sentences(),
        }


def measure_causality(
    target: str,
    *,
    recipe: str | None = None,
    levels: int = 32,
    samples: int = 4,
    config: SwapConfig | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> CausalityReport:
    """Play `levels` held-out levels of `target` `samples` times each at the training temperature, then swap.

    `target` and `recipe` are those of `evaluate_model`. Raises ConfigError for fewer than 2 levels or 1 sample, or a target that
    is none of these, and NotMeasurable with the reason.
    """
    if levels < 2 or samples < 1:
        raise ConfigError(f"levels is {levels} and samples {samples}; swapping needs at least 2 levels and 1 sample")
    run_config, start_model, policy = locate(target, recipe)
    parts = build_parts(run_config, start_model, policy)
    rng = np.random.default_rng([seed, 0x5A4B])
    settings = config or SwapConfig(turns=128, donors=2)
    causality, figures = measure_policy(run_config, parts, rng, settings, levels=levels, samples=samples, progress=progress)
    return CausalityReport(target, levels, samples, causality, figures)


def measure_policy(
    config: RunConfig,
    parts: Parts,
    rng: np.random.Generator,
    settings: SwapConfig,
    *,
    levels: int,
    samples: int,
    progress: Progress | None = None,
) -> tuple[Causality, dict[str, float | str]]:
    """The tests of a loaded policy, and success, valid-think rate and mutual information of the same rollouts."""
    report = progress or (lambda phase, done, total: None)
    batch = _play(config, parts, levels, samples, rng, report)
    figures = _figures(batch, parts.engine, rng, report)
    causality = causality_test(
        batch,
        parts.engine,
        parts.chat_format,
        rng,
        settings,
        answers=closed_answers(config),
        progress=lambda done, total: report("swapping", done, total),
    )
    return causality, figures


def closed_answers(config: RunConfig) -> dict[str, list[str]]:
    """The answers of environments whose moves are the same in every state; others are tested on the answers that were seen."""
    found: dict[str, list[str]] = {}
    for item in config.environments:
        env = make(item.id, split="validation", **item.options)
        try:
            if env.moves:
                found[item.id] = move_answers(env.moves, config.rollout.actions_per_turn)
        finally:
            env.close()
    return found


def _play(config: RunConfig, parts: Parts, levels: int, samples: int, rng: np.random.Generator, report: Progress) -> RolloutBatch:
    """Every environment's held-out levels in one batch."""
    trajectories: list[Trajectory] = []
    groups: list[int] = []
    sampling: dict[str, Any] = {}
    for item in config.environments:
        held_out = held_out_levels(item, levels, samples, VALIDATION_SEED)
        seeds = rng.integers(2**62, size=levels * samples).tolist()
        batch = parts.collector.collect(held_out.levels, seeds, progress=lambda done, total: report("playing", done, total))
        before = len(set(groups))
        groups += [index + before for index in batch.group_index]
        trajectories += batch.trajectories
        sampling = batch.sampling
    return RolloutBatch(tuple(trajectories), tuple(groups), 0, sampling)


def _figures(batch: RolloutBatch, engine: Any, rng: np.random.Generator, report: Progress) -> dict[str, float | str]:
    monitor = Monitor(MonitorConfig(views=("first_turn", "trajectory")))
    played = {
        name: value
        for name, value in iteration_metrics(batch).items()
        if name in ("train/success", "train/task_return", "collapse/valid_think_rate", "collapse/valid_action_rate")
    }
    renamed: dict[str, float | str] = {name.replace("train/", "validation/"): value for name, value in played.items()}
    return renamed | monitor.measure(batch, engine, rng, progress=lambda done, total: report("mutual information", done, total))
