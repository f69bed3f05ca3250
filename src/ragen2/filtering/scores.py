"""One number a group: the spread (or level) of its valid returns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ragen2.algorithms.arrays import as_mask, to_numpy
from ragen2.algorithms.checks import require_choice
from ragen2.algorithms.groups import EQUAL_TOLERANCE, as_returns, require_finite
from ragen2.errors import ConfigError
from ragen2.filtering.config import OTHER_SCORES, RETURN_SCORES


def group_scores(task_returns_PG: Any, score: str = "variance", valid_PG: Any = None) -> np.ndarray:
    """Score of each group, shape (P,), float64, over its valid trajectories.

    variance and std have ddof 1 and are exactly 0 where all returns are equal; mean and sum say how much was earned. A group
    with fewer than two valid trajectories scores 0. Raises ConfigError for a wrong shape or a score that returns cannot give,
    NonFiniteReturn for a valid return that is NaN or infinite.
    """
    returns_PG, valid = checked_returns(task_returns_PG, valid_PG)
    if score in OTHER_SCORES:
        raise ConfigError(f"score {score!r} is not computed from returns: pass scores_P, one number a group.")
    require_choice("score", score, RETURN_SCORES)
    measure = {"variance": variance, "std": lambda values: math.sqrt(variance(values)), "mean": _mean, "sum": math.fsum}[score]
    groups = valid_returns(returns_PG, valid)
    return np.array([measure(values) if len(values) >= 2 else 0.0 for values in groups], dtype=np.float64)


def checked_returns(task_returns_PG: Any, valid_PG: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns as float64 and validity as booleans, both (P, G), checked."""
    returns_PG = to_numpy(as_returns(task_returns_PG, "task_returns_PG")).astype(np.float64)
    valid = np.ones(returns_PG.shape, dtype=bool) if valid_PG is None else as_mask(valid_PG, returns_PG)
    require_finite(returns_PG, valid, "task_returns_PG")
    return returns_PG, valid


def valid_returns(returns_PG: np.ndarray, valid_PG: np.ndarray) -> list[list[float]]:
    """The valid returns of each group."""
    if valid_PG.all():
        return returns_PG.tolist()
    return [row[kept].tolist() for row, kept in zip(returns_PG, valid_PG, strict=True)]


def are_equal(values: list[float]) -> bool:
    """Whether returns count as equal: max - min <= 1e-9 max(1, |max|)."""
    highest = max(values)
    return highest - min(values) <= EQUAL_TOLERANCE * max(1.0, abs(highest))


def variance(values: list[float]) -> float:
    """Sample variance (ddof 1) with exact sums; exactly 0 for equal returns and for fewer than two."""
    if len(values) < 2 or are_equal(values):
        return 0.0
    mean = _mean(values)
    return math.fsum([(value - mean) * (value - mean) for value in values]) / (len(values) - 1)


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
