"""Shares of a signal's reference, and the stretches in which they are below a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.series import Series


@dataclass(frozen=True)
class Tail:
    """The stretch to the end of the run in which a signal stays beyond its threshold."""

    onset_step: int
    readings: int


def beyond_to_the_end(shares: Series, threshold: float, in_a_row: int) -> Tail | None:
    """From where the smoothed `shares` stay below `threshold` to the end, at least `in_a_row` readings; None when they do not.

    The onset is the first reading below the threshold that the smoothed stretch rests on.
    """
    below_K = shares.smoothed_K < threshold
    first = len(below_K)
    while first > 0 and below_K[first - 1]:
        first -= 1
    if first == len(below_K):
        return None
    # The median of three turns one reading late.
    if first > 0 and shares.values_K[first - 1] < threshold:
        first -= 1
    readings = len(below_K) - first
    return Tail(int(shares.steps_K[first]), readings) if readings >= in_a_row else None


def stretches_below(shares: Series, threshold: float) -> list[tuple[int, int, int]]:
    """(first step, last step, readings) of every stretch of readings below the threshold."""
    found: list[tuple[int, int, int]] = []
    below = False
    for step, value in zip(shares.steps_K.tolist(), shares.values_K.tolist(), strict=True):
        if value < threshold:
            first, _, readings = found.pop() if below else (step, step, 0)
            found.append((first, step, readings + 1))
        below = value < threshold
    return found


def of_best(series: Series) -> Series:
    """Readings as shares of the reference: start or best smoothed value so far. 1 while that is 0: nothing to fall from."""
    best_K = series.best_K
    return Series(series.steps_K, np.where(best_K > 0, series.values_K / np.where(best_K > 0, best_K, 1.0), 1.0))
