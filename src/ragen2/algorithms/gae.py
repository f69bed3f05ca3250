"""Generalised advantage estimation over the policy's own tokens (arXiv 1506.02438)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragen2.algorithms.arrays import Array, as_float, as_like, to_numpy
from ragen2.errors import TokenMismatch


def gae_advantages(rewards_T: Any, values_T: Any, model_mask_T: Any, gamma: float, lam: float) -> tuple[Array, Array]:
    """Advantages and value targets (advantage + value) of the tokens that the policy sampled.

    Arrays of shape (T,) or (B, T), numpy or torch in, same out, computed in 64 bits. Observation tokens are skipped: nothing is
    bootstrapped, discounted or read there, and they get 0. A turn's reward belongs on its last sampled token; a reward on an
    observation token is not read. The results are constants: no gradient flows through them. Not whitened. Raises TokenMismatch
    when the shapes differ.
    """
    like = as_float(values_T)
    rewards, values, mask = to_numpy(rewards_T), to_numpy(like), to_numpy(model_mask_T) != 0
    if not rewards.shape == values.shape == mask.shape or values.ndim not in (1, 2):
        raise TokenMismatch(
            f"rewards, values and mask have shapes {rewards.shape}, {values.shape} and {mask.shape}; "
            "they must be equal, (T,) or (B, T)"
        )
    advantages = np.zeros(values.shape)
    values = np.where(mask, values, 0.0).astype(np.float64)
    rewards = np.where(mask, rewards, 0.0).astype(np.float64)
    next_value = np.zeros(values.shape[:-1])
    following = np.zeros(values.shape[:-1])
    for t in reversed(range(values.shape[-1])):
        here = mask[..., t]
        delta = rewards[..., t] + gamma * next_value - values[..., t]
        following = np.where(here, delta + gamma * lam * following, following)
        next_value = np.where(here, values[..., t], next_value)
        advantages[..., t] = np.where(here, following, 0.0)
    return as_like(advantages, like), as_like(advantages + values, like)
