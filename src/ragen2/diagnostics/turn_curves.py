"""Mutual information by turn index: does reasoning stop reading the state later in an episode?

Contexts of the same environment and the same turn index compete, one trajectory a prompt, so that the history's length gives
nothing away. Source: the RAGEN-2 paper (arXiv 2604.06268), cross-scoring, at matched depth.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.cross_score import Progress, Scorer
from ragen2.diagnostics.slice_measures import Resampling, SliceMeasure, measure_slice, together
from ragen2.diagnostics.views import trajectory_view
from ragen2.errors import NotMeasurable
from ragen2.trajectory import RolloutBatch


@dataclass(frozen=True)
class TurnPoint:
    """One turn index of one environment. Nats; `ceiling` is log of `prompts`, the distinct contexts that competed.

    Later turns have fewer trajectories, so compare `ratio`, not `mi`, along the curve. `low`, `high` and `p_value` are None where
    they could not be computed; `reasons` says why. `valid_think_rate` is the share of all turns at this index that parse: those
    that do not have no reasoning and are not in the other figures.
    """

    environment: str
    turn: int
    prompts: int
    reasonings: int
    mi: float
    ceiling: float
    low: float | None
    high: float | None
    p_value: float | None
    conditional_entropy: float
    valid_think_rate: float
    reasons: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """MI over its ceiling."""
        return self.mi / self.ceiling


@dataclass(frozen=True)
class TurnCurves:
    """Points by environment and turn index; `skipped` says which turn indices are missing and why."""

    points: tuple[TurnPoint, ...]
    skipped: tuple[str, ...] = ()


def turn_curves(
    batch: RolloutBatch,
    scorer: Scorer,
    rng: np.random.Generator,
    resampling: Resampling | None = None,
    progress: Progress | None = None,
) -> TurnCurves:
    """Measure every turn index of a batch that has at least four distinct contexts.

    A turn index that cannot be measured stands in `skipped`. Raises NotMeasurable where none can be.
    """
    resampling = resampling or Resampling()
    view = trajectory_view(batch, rng)
    rates = _valid_think_rates(batch)
    points, skipped = [], list(view.skipped)
    for part in view.slices:
        try:
            measure = measure_slice(scorer, part, rng, resampling, progress)
        except NotMeasurable as error:
            skipped.append(error.reason)
            continue
        points.append(turn_point(measure, rates[part.environment, part.turn], rng, resampling))
    if not points:
        raise NotMeasurable("; ".join(skipped) or "no turn has a reasoning")
    return TurnCurves(tuple(points), tuple(skipped))


def turn_point(measure: SliceMeasure, valid_think_rate: float, rng: np.random.Generator, resampling: Resampling) -> TurnPoint:
    """A slice that was scored already, as a point of the curve."""
    figures, reasons = together([measure], rng, resampling)
    return TurnPoint(
        environment=measure.part.environment,
        turn=measure.part.turn,
        prompts=int(figures["num_prompts"]),
        reasonings=int(figures["num_samples"]),
        mi=figures["mi_sequence"],
        ceiling=figures["mi_upper_bound"],
        low=figures.get("mi_low"),
        high=figures.get("mi_high"),
        p_value=figures.get("mi_p_value"),
        conditional_entropy=figures["conditional_entropy_sequence"],
        valid_think_rate=valid_think_rate,
        reasons=tuple(reasons.values()),
    )


def _valid_think_rates(batch: RolloutBatch) -> dict[tuple[str, int], float]:
    seen: Counter[tuple[str, int]] = Counter()
    valid: Counter[tuple[str, int]] = Counter()
    for trajectory in batch.trajectories:
        if trajectory.valid:
            for index, turn in enumerate(trajectory.turns):
                seen[trajectory.environment, index] += 1
                valid[trajectory.environment, index] += turn.valid_think
    return {place: valid[place] / count for place, count in seen.items()}
