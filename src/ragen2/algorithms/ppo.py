"""PPO for multi-turn trajectories: a critic, advantages over the policy's own tokens, whitening, a clipped value loss."""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.algorithm import Algorithm
from ragen2.algorithms.arrays import Array
from ragen2.algorithms.gae import gae_advantages
from ragen2.algorithms.whitening import whiten


def ppo_advantages(
    rewards_BT: Any, values_BT: Any, model_mask_BT: Any, gamma: float = 1.0, lam: float = 1.0, *, whitened: bool = False
) -> tuple[Array, Array]:
    """Advantages and value targets of the sampled tokens (see `gae_advantages`), the advantages whitened when asked for.

    Pass the rows of kept groups only, or whiten later over them: a dropped row must not move the mean.
    """
    advantages_BT, returns_BT = gae_advantages(rewards_BT, values_BT, model_mask_BT, gamma, lam)
    return (whiten(advantages_BT, model_mask_BT) if whitened else advantages_BT), returns_BT


ALGORITHM = Algorithm(
    name="ppo",
    summary="critic, advantages over model tokens, whitened over kept tokens, value clip",
    advantages=ppo_advantages,
    uses_critic=True,
    defaults={"whiten": True},
    min_group_size=1,
)
