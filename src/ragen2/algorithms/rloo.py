"""RLOO: each return against the mean of the others in its group (REINFORCE leave-one-out, arXiv 2402.14740)."""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.algorithm import Algorithm
from ragen2.algorithms.arrays import Array, namespace
from ragen2.algorithms.groups import group_statistics


def rloo_advantages(returns_PG: Any, *, valid_PG: Any = None) -> Array:
    """Return - mean of the other valid returns of the group, which is n / (n - 1) (return - group mean).

    Shapes (P, G) in and out, numpy or torch, the dtype kept. Exactly 0 for equal returns, fewer than two valid (a warning for
    one) and invalid trajectories. Raises ConfigError for a wrong shape, NonFiniteReturn for a valid NaN or infinity.
    """
    group, given_PG = group_statistics(returns_PG, valid_PG)
    others_P1 = namespace(given_PG).clip(group.count_P1 - 1, 1, None)
    return group.finish((group.returns_PG - group.mean_P1) * group.count_P1 / others_P1, given_PG)


ALGORITHM = Algorithm(
    name="rloo",
    summary="mean of the group's other returns as baseline, no critic",
    advantages=rloo_advantages,
    defaults={"aggregation": "seq-mean-token-sum"},
)
