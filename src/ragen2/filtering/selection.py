"""Which of a list of scores each mode keeps. Works on the groups of one environment and knows nothing of returns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragen2.filtering.config import FilterConfig

TIE = 1e-9
"""Scores closer than this share of the largest are ties: the lower index goes first."""

SLACK = 1e-12
"""A mass within this share of its target has reached it."""


def choose(scores: Sequence[float], config: FilterConfig) -> list[int]:
    """Sorted indices of the groups that `config` keeps among these scores. `mode` none keeps all.

    In top_p and min_p a negative score counts as 0: it holds no mass.
    """
    if config.mode == "none":
        return list(range(len(scores)))
    values = [float(score) for score in scores]
    if config.mode in ("top_p", "min_p"):
        values = [max(value, 0.0) for value in values]
    candidates = [index for index, value in enumerate(values) if value != 0.0 or config.keeps_zero]
    if not candidates:
        return []
    order = ranked(values, candidates, largest=config.direction == "largest")
    if config.mode == "min_p":
        return sorted(_reaching(values, order, config))
    if config.mode == "top_p":
        count = _prefix([values[index] for index in order], config.top_p)
    elif config.mode == "softmax_top_p":
        count = _prefix(_softmax([values[index] for index in order], largest=config.direction == "largest"), config.top_p)
    elif config.mode == "top_k":
        # The share is of all groups, those dropped for a score of 0 too; 0.29 * 100 must be 29.
        count = max(1, math.floor(config.top_k * len(values) + 1e-9))
    else:
        count = config.top_k_count
    return sorted(order[:count])


def ranked(values: Sequence[float], candidates: Sequence[int], *, largest: bool) -> list[int]:
    """Candidates from the end that is kept; scores that tie with the first of their run are put in order of index."""
    sign = -1.0 if largest else 1.0
    order = sorted(candidates, key=lambda index: (sign * values[index], index))
    width = TIE * max(abs(values[index]) for index in candidates)
    result: list[int] = []
    start = 0
    for place in range(1, len(order) + 1):
        if place == len(order) or not (abs(values[order[place]] - values[order[start]]) < width):
            result.extend(sorted(order[start:place]))
            start = place
    return result


def _prefix(masses: Sequence[float], share: float) -> int:
    """Length of the shortest prefix that holds `share` of the total; 0 when the total is 0, everything for a share of 1."""
    total = math.fsum(masses)
    if total <= 0.0:
        return 0
    if share == 1.0:
        return len(masses)
    target = share * total * (1.0 - SLACK)
    reached = 0.0
    for count, mass in enumerate(masses, 1):
        reached += mass
        if reached >= target:
            return count
    return len(masses)


def _softmax(values: Sequence[float], *, largest: bool) -> list[float]:
    sign = 1.0 if largest else -1.0
    most = max(sign * value for value in values)
    return [math.exp(sign * value - most) for value in values]


def _reaching(values: Sequence[float], order: Sequence[int], config: FilterConfig) -> list[int]:
    """Groups whose score reaches min_p times the best; for the smallest, whose min_p-fold stays within the least."""
    first = values[order[0]]
    if config.direction == "largest":
        return [index for index in order if values[index] >= config.min_p * first * (1.0 - SLACK)]
    return [index for index in order if config.min_p * values[index] <= first * (1.0 + SLACK)]
