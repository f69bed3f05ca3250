"""Estimates of the divergence of the policy from a reference, one a sampled token.

After J. Schulman, "Approximating KL divergence" (2020). With d = log p(token) - log q(token), p the policy and q the reference:
k1 = d, k2 = d^2 / 2, k3 = e^-d - 1 + d. As a number all estimate KL(p || q): k1 without bias but noisy and of either sign, k3
without bias and never negative. As a term of the loss on policy samples, the gradient of k2 is that of the reverse divergence
KL(p || q), k3's is that of the forward divergence KL(q || p), and k1's expectation is 0. So: k2 in the loss, k1 in the reward,
k3 in logs.
"""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.arrays import Array, as_float, as_like, as_mask, detached, namespace
from ragen2.algorithms.checks import require_choice
from ragen2.algorithms.config import KL_ESTIMATORS

LOG_RATIO_BOUND = 20.0


def kl_penalty(logprobs_BT: Any, reference_logprobs_BT: Any, mask_BT: Any = None, *, estimator: str = "k2") -> Array:
    """The estimate at each token, in nats, of the shape of `logprobs_BT`; 0 where `mask_BT` is 0, whatever stands there.

    numpy or torch in, same out; only `logprobs_BT` carries a gradient. It grows with drift, so it is added to a loss and taken
    from a reward. Below d = -20 k3 stays at its value there, so that e^-d cannot overflow. Raises ConfigError for an unknown
    estimator.
    """
    require_choice("kl estimator", estimator, KL_ESTIMATORS)
    new_BT = as_float(logprobs_BT)
    xp = namespace(new_BT)
    drift_BT = new_BT - detached(as_like(reference_logprobs_BT, new_BT))
    if mask_BT is not None:
        drift_BT = xp.where(as_mask(mask_BT, new_BT), drift_BT, 0.0)
    if estimator == "k1":
        return drift_BT
    if estimator == "k2":
        return 0.5 * drift_BT * drift_BT
    bounded_BT = xp.clip(drift_BT, -LOG_RATIO_BOUND, None)
    return xp.expm1(-bounded_BT) + bounded_BT


def rewards_less_kl(
    rewards_BT: Any, logprobs_BT: Any, reference_logprobs_BT: Any, mask_BT: Any, coef: float, *, estimator: str = "k1"
) -> Array:
    """Token rewards minus `coef` times the divergence estimate of the token, as constants. 0 where `mask_BT` is 0."""
    rewards = as_float(rewards_BT)
    mask = as_mask(mask_BT, rewards)
    penalty_BT = detached(kl_penalty(as_like(logprobs_BT, rewards), reference_logprobs_BT, mask, estimator=estimator))
    return namespace(rewards).where(mask, rewards - coef * penalty_BT, 0.0)
