"""Is mutual information stuck at log N? It is measured at growing numbers of contexts, by subsets of those at hand.

With N distinct contexts mutual information cannot exceed log N. A policy that tells its prompts apart sits there from start to
end and the figure shows nothing of what it learns or loses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragen2.diagnostics.score_matrix import ScoreMatrix, matched_and_marginal, mean_by_source, score_matrix
from ragen2.errors import NotMeasurable

NEAR_CEILING = 0.9
"""MI / ceiling from which the figure is called stuck at the ceiling."""

STILL_GROWING = 0.5
"""Nats of MI gained per nat of log N over the last doubling from which the figure still grows with N (the ceiling: 1)."""


@dataclass(frozen=True)
class SaturationPoint:
    """Mean `mi_sequence` (nats) over `subsets` random subsets of `prompts` contexts; `ceiling` is log of `prompts`."""

    prompts: int
    mi: float
    ceiling: float
    subsets: int

    @property
    def ratio(self) -> float:
        """MI over its ceiling."""
        return self.mi / self.ceiling


@dataclass(frozen=True)
class Saturation:
    """MI against N. `slope`: nats of MI per nat of log N over the last step (1 = still rising as fast as the ceiling)."""

    points: tuple[SaturationPoint, ...]
    slope: float
    saturated: bool
    sentence: str


def saturation(
    sum_logprob_SN: ArrayLike,
    source_S: ArrayLike,
    prompt_class_N: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    subsets: int = 50,
) -> Saturation:
    """MI at N = 2, 4, 8, … up to all distinct contexts: the mixture and the reasonings of a random subset, averaged over subsets.

    The last point is `mi_sequence` itself. Raises NotMeasurable like `mutual_information`, and for `subsets` below 1.
    """
    if subsets < 1:
        raise NotMeasurable(f"subsets is {subsets}, needs 1 or more")
    scores = score_matrix(sum_logprob_SN, source_S, prompt_class_N)
    contexts = scores.sum_SN.shape[1]
    points = []
    size = 2
    while size < contexts:
        drawn = [rng.choice(contexts, size=size, replace=False) for _ in range(subsets)]
        # A subset whose contexts all lack reasonings says nothing; when none has any, the point is left out.
        found = [value for value in (_information(scores, columns) for columns in drawn) if value is not None]
        if found:
            points.append(SaturationPoint(size, float(np.mean(found)), math.log(size), len(found)))
        size *= 2
    whole = _information(scores, np.arange(contexts))
    if whole is None:
        raise NotMeasurable("no reasonings")
    points.append(SaturationPoint(contexts, whole, math.log(contexts), 1))
    slope = _slope(points)
    stuck = points[-1].ratio >= NEAR_CEILING and slope >= STILL_GROWING
    return Saturation(tuple(points), slope, stuck, _sentence(points[-1], slope, stuck))


def _information(scores: ScoreMatrix, columns: np.ndarray) -> float | None:
    place_N = np.full(scores.sum_SN.shape[1], -1)
    place_N[columns] = np.arange(len(columns))
    source_S = place_N[scores.source_S]
    inside_S = source_S >= 0
    if not inside_S.any():
        return None
    matched_S, marginal_S = matched_and_marginal(scores.sum_SN[np.ix_(inside_S, columns)], source_S[inside_S])
    return mean_by_source(matched_S - marginal_S, source_S[inside_S])


def _slope(points: list[SaturationPoint]) -> float:
    # Before the first point stands N = 1, where both MI and log N are 0.
    mi, ceiling = (points[-2].mi, points[-2].ceiling) if len(points) > 1 else (0.0, 0.0)
    return (points[-1].mi - mi) / (points[-1].ceiling - ceiling)


def _sentence(last: SaturationPoint, slope: float, stuck: bool) -> str:
    figure = f"MI is {last.mi:.2f} of at most {last.ceiling:.2f} nats (log of {last.prompts} prompts)"
    if stuck:
        return f"saturated: raise the number of prompts. {figure} and rises with log N at slope {slope:.2f}"
    if slope >= STILL_GROWING:
        return f"not saturated: {figure}; it still grows with N (slope {slope:.2f}), so compare it at equal N only"
    return f"not saturated: {figure} and has levelled off (slope {slope:.2f} against log N)"
