"""What a warmed-up model can do, measured on held-out levels, and the gate that it has to pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from ragen2.diagnostics.cross_score import cross_score
from ragen2.diagnostics.mutual_information import mutual_information
from ragen2.diagnostics.views import first_turn_view
from ragen2.engines.base import Engine
from ragen2.envs import make
from ragen2.envs.base import TextEnv
from ragen2.errors import NotMeasurable, WarmupFailed
from ragen2.rollout.collector import Collector, Level
from ragen2.trajectory import RolloutBatch

if TYPE_CHECKING:
    from ragen2.training.settings import EnvironmentConfig

PROMPTS = 8
"""Distinct prompts that compete when mutual information is measured."""

REASONINGS = 16
"""Reasonings sampled for each of them."""

SEED_SEARCH = 400
"""Level seeds looked through for distinct held-out levels before training levels are taken."""


@dataclass(frozen=True)
class EnvironmentMeasures:
    """Figures of one environment, sampled at temperature 1.

    `split` says which levels were played: validation, or train where the validation split has too few distinct prompts.
    `information` is the first-turn mutual information (nats) of `prompts` prompts, at most `ceiling` = log prompts; None, with
    `why_not`, where it could not be measured.
    """

    environment: str
    split: str
    levels: int
    success: float
    mean_return: float
    valid_think: float
    valid_action: float
    prompts: int
    information: float | None
    ceiling: float
    conditional_entropy: float | None
    why_not: str | None = None

    @property
    def share(self) -> float:
        """Mutual information as a fraction of its ceiling; 0 where it could not be measured."""
        return 0.0 if self.information is None or self.ceiling <= 0 else self.information / self.ceiling

    def describe(self) -> str:
        """One line for people."""
        if self.information is None:
            information = f"mutual information not measured ({self.why_not})"
        else:
            information = f"mutual information {self.information:.2f} of {self.ceiling:.2f} nats ({self.share:.0%})"
        return (
            f"{self.environment}: {information}, valid-think {self.valid_think:.3f}, success {self.success:.3f} "
            f"on {self.levels} {self.split} levels"
        )


@dataclass(frozen=True)
class GateLevels:
    """Level seeds to play, and the first of them whose prompts differ."""

    split: str
    seeds: tuple[int, ...]
    distinct: tuple[int, ...]


def gate_levels(item: EnvironmentConfig, count: int) -> GateLevels:
    """`count` level seeds: distinct validation contents as far as there are any, then the same again.

    Training levels are taken where the validation split has fewer than `PROMPTS` contents: it then shows names that no
    demonstration taught, so that a model from scratch cannot read them and nothing could be told from it.
    """
    chosen = _find_levels(item, "validation", count)
    if len(chosen.distinct) < PROMPTS:
        other = _find_levels(item, "train", count)
        chosen = other if len(other.distinct) > len(chosen.distinct) else chosen
    return chosen


def _find_levels(item: EnvironmentConfig, split: str, count: int) -> GateLevels:
    env = make(item.id, split=split, **item.options)
    contents: dict[str, int] = {}
    try:
        for seed in range(SEED_SEARCH + 4 * count):
            env.reset(seed, 0)
            contents.setdefault(env.content(), seed)
            if len(contents) == count:
                break
    finally:
        env.close()
    found = tuple(contents.values())
    return GateLevels(split, tuple(found[number % len(found)] for number in range(count)), found[:PROMPTS])


def measure(collector: Collector, item: EnvironmentConfig, *, levels: int, seed: int) -> EnvironmentMeasures:
    """Play `levels` held-out levels once at temperature 1, then the first turn of `PROMPTS` of them for mutual information.

    Raises WarmupFailed when no episode could be played at all.
    """
    chosen = gate_levels(item, levels)
    rng = np.random.default_rng([seed, 0x6A7E])
    batch = _play(collector, item, chosen.split, chosen.seeds, 1, rng)
    valid = [trajectory for trajectory in batch.trajectories if trajectory.valid]
    turns = [turn for trajectory in valid for turn in trajectory.turns]
    if not turns:
        fault = batch.trajectories[0].fault
        raise WarmupFailed(f"no episode of {item.id!r} could be played ({fault}): look at the environment before the model")
    figures, why_not = _information(_play(collector, item, chosen.split, chosen.distinct, REASONINGS, rng), collector.engine, rng)
    return EnvironmentMeasures(
        environment=item.id,
        split=chosen.split,
        levels=len(valid),
        success=fmean(trajectory.success for trajectory in valid),
        mean_return=fmean(trajectory.task_return for trajectory in valid),
        valid_think=fmean(turn.valid_think for turn in turns),
        valid_action=fmean(turn.valid_action for turn in turns),
        prompts=len(chosen.distinct),
        information=figures.get("mi_sequence"),
        ceiling=figures.get("mi_upper_bound", math.log(len(chosen.distinct))),
        conditional_entropy=figures.get("conditional_entropy_sequence"),
        why_not=why_not,
    )


def check_gate(measures: Sequence[EnvironmentMeasures], *, min_information: float, min_valid_think: float, advice: str) -> None:
    """Raises WarmupFailed with all figures unless every environment has enough information and well-formed replies."""
    failed = [item for item in measures if item.share < min_information or item.valid_think < min_valid_think]
    if not failed:
        return
    reads = any(item.share < min_information for item in failed)
    forms = any(item.valid_think < min_valid_think for item in failed)
    faults = " and ".join(["does not read its prompt"] * reads + ["breaks the format of replies"] * forms)
    figures = "; ".join(item.describe() for item in measures)
    raise WarmupFailed(
        f"after the warm-up the model {faults}: {figures}. Needed: {min_information:.0%} of the ceiling and valid-think "
        f"{min_valid_think:g}. {advice}"
    )


def _play(
    collector: Collector, item: EnvironmentConfig, split: str, seeds: Sequence[int], samples: int, rng: np.random.Generator
) -> RolloutBatch:
    def make_env() -> TextEnv:
        return make(item.id, split=split, **item.options)

    levels = [
        Level(
            item.id,
            make_env,
            seed,
            tuple(int(x) for x in rng.integers(2**31, size=samples)),
            f"{item.id}/{split}/{seed}/{number}",
        )
        for number, seed in enumerate(seeds)
    ]
    draws = [int(x) for x in rng.integers(2**62, size=len(levels) * samples)]
    return collector.collect(levels, draws, temperature=1.0)


def _information(batch: RolloutBatch, engine: Engine, rng: np.random.Generator) -> tuple[dict[str, float], str | None]:
    """Figures of mutual information of a batch's first turns, or none and the reason."""
    view = first_turn_view(batch, rng, REASONINGS)
    try:
        if not view.slices:
            raise NotMeasurable("; ".join(view.skipped))
        part = view.slices[0]
        scores_SN = cross_score(engine, part.contexts, part.reasonings)
        return mutual_information(scores_SN, part.lengths_S, part.source_S), None
    except NotMeasurable as error:
        return {}, error.reason
