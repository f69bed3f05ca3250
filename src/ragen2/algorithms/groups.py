"""What the group algorithms share: the mean and deviation of each group's valid returns, and when returns count as equal."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen2.algorithms.arrays import Array, as_float, as_like, as_mask, namespace, to_numpy, widened
from ragen2.errors import ConfigError, NonFiniteReturn

EQUAL_TOLERANCE = 1e-9
"""Returns of a group are equal when max - min <= EQUAL_TOLERANCE * max(1, |max|)."""

LARGEST_RETURN = 1e150
"""Larger returns overflow when squared; no task pays them."""


@dataclass(frozen=True)
class GroupStatistics:
    """Statistics of P groups over their valid trajectories, 64-bit. `P1` arrays have shape (P, 1).

    `flat_P1` marks groups that teach nothing by comparison: equal returns or fewer than two valid trajectories.
    `returns_PG` holds 0 where a trajectory is not valid.
    """

    returns_PG: Array
    valid_PG: Array
    count_P1: Array
    mean_P1: Array
    std_P1: Array
    flat_P1: Array

    def finish(self, advantages_PG: Array, like_PG: Array) -> Array:
        """Exactly 0 for flat groups and invalid trajectories, in the dtype of the returns that came in."""
        xp = namespace(advantages_PG)
        kept_PG = self.valid_PG & ~self.flat_P1
        return as_dtype(xp.where(kept_PG, advantages_PG, 0.0), like_PG)


def as_dtype(values: Array, like: Array) -> Array:
    """`values` in the dtype of `like`."""
    return values.to(like.dtype) if hasattr(values, "to") else values.astype(like.dtype)


def group_statistics(returns_PG: Any, valid_PG: Any = None, *, name: str = "returns_PG") -> tuple[GroupStatistics, Array]:
    """Statistics of each group (deviation with ddof 1), and `returns_PG` as the float array that was passed.

    A group with one valid trajectory has nothing to compare with and gets a warning. Raises ConfigError for a wrong shape,
    NonFiniteReturn for a valid return that is NaN or infinite.
    """
    given_PG = as_returns(returns_PG, name)
    xp = namespace(given_PG)
    valid = xp.ones_like(given_PG, dtype=bool) if xp is np else xp.ones_like(given_PG, dtype=xp.bool)
    if valid_PG is not None:
        valid = as_mask(valid_PG, given_PG)
    require_finite(to_numpy(given_PG), to_numpy(valid), name)
    values_PG = xp.where(valid, widened(given_PG), 0.0)
    count_P1 = xp.sum(valid, axis=1, keepdims=True)
    if bool((count_P1 == 1).any()):
        warnings.warn(
            "a group with a single valid trajectory has nothing to compare with: its advantage is 0. Sample at least 2 a prompt.",
            stacklevel=3,
        )
    some_P1 = xp.clip(count_P1, 1, None)
    mean_P1 = xp.sum(values_PG, axis=1, keepdims=True) / some_P1
    centred_PG = xp.where(valid, values_PG - mean_P1, 0.0)
    variance_P1 = xp.sum(centred_PG * centred_PG, axis=1, keepdims=True) / xp.clip(count_P1 - 1, 1, None)
    highest_P1 = xp.amax(xp.where(valid, values_PG, -LARGEST_RETURN), axis=1, keepdims=True)
    lowest_P1 = xp.amin(xp.where(valid, values_PG, LARGEST_RETURN), axis=1, keepdims=True)
    tolerance_P1 = EQUAL_TOLERANCE * xp.clip(xp.abs(highest_P1), 1.0, None)
    flat_P1 = (count_P1 < 2) | (highest_P1 - lowest_P1 <= tolerance_P1)
    # The gradient of a square root is infinite at 0, so flat groups take the root of 1 and are zeroed later.
    std_P1 = xp.sqrt(xp.where(flat_P1, as_like(1.0, variance_P1), variance_P1))
    return GroupStatistics(values_PG, valid, count_P1, mean_P1, std_P1, flat_P1), given_PG


def as_returns(returns_PG: Any, name: str) -> Array:
    """Returns as a float array of shape (P, G). Raises ConfigError otherwise."""
    try:
        array_PG = as_float(returns_PG)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name} cannot be read as numbers of shape (prompts, trajectories a prompt): {error}. "
            "Pad groups of different sizes to one length and mark the padding in valid_PG."
        ) from error
    if array_PG.ndim != 2 or 0 in array_PG.shape:
        raise ConfigError(
            f"{name} has shape {tuple(array_PG.shape)}; it must be (prompts, trajectories a prompt), at least one of each."
        )
    return array_PG


def require_finite(returns_PG: np.ndarray, valid_PG: np.ndarray, name: str) -> None:
    """Raises NonFiniteReturn naming the first valid return that is NaN, infinite or too large to square."""
    broken_PG = valid_PG & ~(np.abs(returns_PG.astype(np.float64)) <= LARGEST_RETURN)
    if not broken_PG.any():
        return
    group, trajectory = (int(index) for index in np.argwhere(broken_PG)[0])
    raise NonFiniteReturn(
        f"{name}: group {group}, trajectory {trajectory} returned {returns_PG[group, trajectory]}; returns must be finite "
        f"(magnitude up to {LARGEST_RETURN:g}). Mark a trajectory whose environment failed as not valid."
    )
