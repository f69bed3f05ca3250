"""Groups sorted into buckets by the spread of their returns, and the same number of model tokens drawn from each bucket."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ragen2.errors import ConfigError

ZERO = "zero"
"""Label of the bucket of groups whose returns are all equal."""


@dataclass(frozen=True)
class Bucket:
    """Groups of similar spread: their indices in order of spread (ties by index), and the spread of the first and the last."""

    label: str
    groups: tuple[int, ...]
    low: float
    high: float


def quantile_buckets(spread_P: np.ndarray, count: int, *, zero_apart: bool = True) -> tuple[Bucket, ...]:
    """`count` buckets Q1, Q2, ... of equal numbers of groups (they differ by at most one), lowest spread first.

    The order is stable: groups of equal spread stay in order of their index, so a tie may be divided between two buckets. With
    `zero_apart` groups of spread exactly 0 form a bucket of their own, one of the `count`, when they are at least an equal
    share of all; fewer of them are the head of Q1. There are fewer buckets when fewer groups than that have a spread.
    Raises ConfigError for a count below 1 or above the number of groups, or a spread that is not a finite number from 0 up.
    """
    spread = _checked(spread_P)
    if not 1 <= count <= len(spread):
        raise ConfigError(f"{count} buckets for {len(spread)} usable groups; give 1 to {len(spread)}, or sample more groups")
    order = np.argsort(spread, kind="stable")
    zeros = int((spread == 0).sum())
    buckets = []
    if zero_apart and zeros and (zeros * count >= len(spread) or zeros == len(spread)):
        buckets.append(_bucket(ZERO, order[:zeros], spread))
        order, count = order[zeros:], max(1, count - 1)
    parts = np.array_split(order, min(count, len(order))) if len(order) else []
    return (*buckets, *(_bucket(f"Q{number}", part, spread) for number, part in enumerate(parts, 1)))


def fixed_buckets(spread_P: np.ndarray, edges: Sequence[float]) -> tuple[Bucket, ...]:
    """One bucket for each interval [edges[i], edges[i + 1]) that holds a group; the last interval holds its upper edge too.

    Groups outside the edges are in no bucket. Raises ConfigError for edges that `check_edges` refuses, or when no group falls
    between them.
    """
    spread = _checked(spread_P)
    bounds = check_edges(edges)
    order = np.argsort(spread, kind="stable")
    place_P = np.searchsorted(bounds, spread, side="right") - 1
    place_P[spread == bounds[-1]] = len(bounds) - 2
    buckets = []
    for place, (low, high) in enumerate(pairwise(bounds)):
        inside = order[place_P[order] == place]
        if len(inside):
            buckets.append(_bucket(f"{low:g} to {high:g}", inside, spread))
    if not buckets:
        raise ConfigError(
            f"no group has a spread between the edges {bounds[0]:g} and {bounds[-1]:g}: "
            f"they lie from {spread.min():.4g} to {spread.max():.4g}"
        )
    return tuple(buckets)


def check_edges(edges: Sequence[float]) -> tuple[float, ...]:
    """Edges as floats. Raises ConfigError unless there are at least two, strictly ascending; only the last may be infinite."""
    values = tuple(float(edge) for edge in edges)
    if len(values) < 2:
        raise ConfigError(f"edges are {list(values)}; at least two are needed, for example 0,0.1,0.5,inf")
    if any(math.isnan(value) for value in values) or any(math.isinf(value) for value in values[:-1]):
        raise ConfigError(f"edges are {list(values)}; they must be numbers, and only the last may be inf")
    if any(low >= high for low, high in pairwise(values)):
        raise ConfigError(f"edges are {list(values)}; they must ascend, each above the one before")
    return values


def draw_tokens(
    members_by_group: Sequence[Sequence[int]], tokens: Mapping[int, int], budget: int, rng: np.random.Generator
) -> dict[int, int]:
    """Trajectories drawn without replacement until they hold exactly `budget` model tokens: {trajectory: tokens that count}.

    One of each group after the other, groups and members in random order, so that every group keeps a like share. The last
    trajectory counts with only as many of its tokens as are missing. Raises ConfigError when there are fewer than `budget`.
    """
    there = sum(tokens[member] for members in members_by_group for member in members)
    if not 1 <= budget <= there:
        raise ConfigError(f"{budget} tokens were asked for from a bucket that holds {there}")
    waiting = [[int(members[i]) for i in rng.permutation(len(members))] for members in members_by_group]
    drawn: dict[int, int] = {}
    left = budget
    while left:
        for group in rng.permutation(len(waiting)):
            if left and waiting[group]:
                member = waiting[group].pop()
                taken = min(left, tokens[member])
                if taken:
                    drawn[member] = taken
                    left -= taken
    return drawn


def _checked(spread_P: np.ndarray) -> np.ndarray:
    spread = np.asarray(spread_P, dtype=np.float64)
    if spread.ndim != 1 or not len(spread) or not np.isfinite(spread).all() or (spread < 0).any():
        raise ConfigError("the spread of the groups must be finite numbers from 0 up, one a group, at least one group")
    return spread


def _bucket(label: str, groups: np.ndarray, spread: np.ndarray) -> Bucket:
    indices = tuple(int(group) for group in groups)
    return Bucket(label, indices, float(spread[indices[0]]), float(spread[indices[-1]]))
