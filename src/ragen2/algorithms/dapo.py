"""DAPO: clip-higher, token-mean loss, dynamic sampling, a soft penalty for overlong replies, no KL (arXiv 2503.14476).

Dynamic sampling is the filter's work: `ragen2.filtering.filter_preset("dynamic-sampling")` drops groups of equal returns and
samples again.
"""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.algorithm import Algorithm
from ragen2.algorithms.arrays import Array, as_float, as_mask, namespace
from ragen2.algorithms.grpo import grpo_advantages
from ragen2.errors import ConfigError


def overlong_penalty(lengths: Any, max_length: int, buffer: int, factor: float = 1.0, *, mask: Any = None) -> Array:
    """Penalty to add to the reward of replies of these lengths in tokens, from 0 down to -factor (arXiv 2503.14476 Eq. 13).

    0 up to `max_length - buffer`, then falling linearly to -factor at `max_length`, -factor beyond. Same shape out as
    `lengths`; where `mask` is 0, 0. Raises ConfigError unless 0 < buffer <= max_length.
    """
    if not 0 < buffer <= max_length:
        raise ConfigError(f"overlong buffer is {buffer} tokens; it must be above 0 and at most the longest reply ({max_length}).")
    length = as_float(lengths)
    xp = namespace(length)
    penalty = factor * xp.clip((max_length - buffer - length) / buffer, -1.0, 0.0)
    return penalty if mask is None else xp.where(as_mask(mask, length), penalty, 0.0)


ALGORITHM = Algorithm(
    name="dapo",
    summary="group advantages, clip-higher, token-mean, dynamic sampling, soft overlong penalty, no KL",
    advantages=grpo_advantages,
    defaults={
        "aggregation": "token-mean",
        "dual_clip": 0.0,
        "entropy_coef": 0.0,
        "dynamic_sampling": True,
        "overlong_share": 0.2,
        "overlong_factor": 1.0,
    },
)
