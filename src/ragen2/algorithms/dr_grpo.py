"""Dr. GRPO: each return against the mean of its group, without the deviation and without length bias (arXiv 2503.20783)."""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.algorithm import Algorithm
from ragen2.algorithms.arrays import Array
from ragen2.algorithms.groups import group_statistics


def dr_grpo_advantages(returns_PG: Any, *, valid_PG: Any = None) -> Array:
    """Return - group mean over the valid trajectories.

    Shapes (P, G) in and out, numpy or torch, the dtype kept. Exactly 0 for equal returns, fewer than two valid (a warning for
    one) and invalid trajectories. Raises ConfigError for a wrong shape, NonFiniteReturn for a valid NaN or infinity.
    """
    group, given_PG = group_statistics(returns_PG, valid_PG)
    return group.finish(group.returns_PG - group.mean_P1, given_PG)


ALGORITHM = Algorithm(
    name="dr_grpo",
    summary="group mean as baseline, loss summed over tokens and divided by rows times the horizon",
    advantages=dr_grpo_advantages,
    defaults={"aggregation": "seq-mean-token-sum"},
)
