"""GRPO: each return against the mean and deviation of its group (DeepSeekMath, arXiv 2402.03300)."""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.algorithm import Algorithm
from ragen2.algorithms.arrays import Array
from ragen2.algorithms.groups import group_statistics

STD_FLOOR = 1e-6


def grpo_advantages(returns_PG: Any, *, valid_PG: Any = None) -> Array:
    """(return - group mean) / (group deviation + 1e-6), deviation with ddof 1, over the valid trajectories.

    Shapes (P, G) in and out, numpy or torch, the dtype kept. Exactly 0 where all returns of a group are equal, where fewer than
    two are valid (with a warning for one), and for invalid trajectories. Several reward functions: pass their weighted sum; the
    deviation is that of the sum. Raises ConfigError for a wrong shape, NonFiniteReturn for a valid NaN or infinity.
    """
    group, given_PG = group_statistics(returns_PG, valid_PG)
    return group.finish((group.returns_PG - group.mean_P1) / (group.std_P1 + STD_FLOOR), given_PG)


ALGORITHM = Algorithm(
    name="grpo",
    summary="group mean and deviation as baseline and scale, no critic",
    advantages=grpo_advantages,
    defaults={"aggregation": "seq-mean-token-mean"},
)
