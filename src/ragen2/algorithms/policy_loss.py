"""The clipped surrogate of PPO (arXiv 1707.06347), with clip-higher (arXiv 2503.14476) and dual clip (arXiv 1912.09729)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragen2.algorithms.arrays import Array, as_float, as_like, as_mask, detached, namespace

LOG_RATIO_BOUND = 20.0
"""e^20 is far beyond any clip; without a bound an infinite ratio times an advantage of 0 is NaN."""


@dataclass(frozen=True)
class PolicyLoss:
    """Losses of tokens and what clipped them, all (B, T) and 0 (False) where the mask is 0.

    `clipped_BT` marks tokens whose gradient a bound cut: `clipped_high_BT` above, `clipped_low_BT` below, `dual_clipped_BT` by
    the dual clip. `ratio_BT` is new over old probability (1 where masked) and `kl_BT` the k3 estimate of the divergence from
    the sampling policy, without gradient.
    """

    token_loss_BT: Array
    clipped_low_BT: Array
    clipped_high_BT: Array
    dual_clipped_BT: Array
    ratio_BT: Array
    kl_BT: Array
    mask_BT: Array

    @property
    def clipped_BT(self) -> Array:
        """Tokens that any of the three bounds cut."""
        return self.clipped_low_BT | self.clipped_high_BT | self.dual_clipped_BT

    def metrics(self) -> dict[str, float]:
        """Token means over the mask, for logging; weigh by `tokens` when averaging over micro-batches."""
        tokens = float(self.mask_BT.sum())
        parts = {
            "clip_fraction": self.clipped_BT,
            "clip_fraction_low": self.clipped_low_BT,
            "clip_fraction_high": self.clipped_high_BT,
            "dual_clip_fraction": self.dual_clipped_BT,
            "kl_to_sampler": self.kl_BT,
        }
        means = {name: float(part.sum()) / max(tokens, 1.0) for name, part in parts.items()}
        largest = float(self.ratio_BT.max()) if tokens else 1.0
        return {**means, "ratio_max": largest, "tokens": tokens}


def policy_loss(
    logprobs_BT: Any,
    old_logprobs_BT: Any,
    advantages_BT: Any,
    mask_BT: Any,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """Loss of each token: the larger of -A r and -A clip(r, 1 - clip_low, 1 + clip_high), r the ratio of new to old probability.

    Shapes (B, T); advantages may be (B, 1). numpy or torch in, same out. With `dual_clip` c > 1 a negative advantage costs at
    most c |A|; None or 0 is off. Only `logprobs_BT` carries a gradient. What stands where `mask_BT` is 0 (NaN included) reaches
    neither value nor gradient.
    """
    new_BT = as_float(logprobs_BT)
    xp = namespace(new_BT)
    mask = as_mask(mask_BT, new_BT)
    old_BT = detached(as_like(old_logprobs_BT, new_BT))
    advantage_BT = xp.where(mask, detached(as_like(advantages_BT, new_BT)), 0.0)
    log_ratio_BT = xp.clip(xp.where(mask, new_BT - old_BT, 0.0), -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    ratio_BT = xp.exp(log_ratio_BT)
    free_BT = -advantage_BT * ratio_BT
    held_BT = -advantage_BT * xp.clip(ratio_BT, 1.0 - clip_low, 1.0 + clip_high)
    loss_BT = xp.maximum(free_BT, held_BT)
    is_held = held_BT > free_BT
    dual = is_held & False
    if dual_clip:
        most_BT = -advantage_BT * dual_clip
        dual = (advantage_BT < 0) & (loss_BT > most_BT)
        loss_BT = xp.where(dual, most_BT, loss_BT)
    return PolicyLoss(
        token_loss_BT=xp.where(mask, loss_BT, 0.0),
        clipped_low_BT=is_held & (ratio_BT < 1.0) & ~dual,
        clipped_high_BT=is_held & (ratio_BT > 1.0) & ~dual,
        dual_clipped_BT=dual,
        ratio_BT=detached(ratio_BT),
        kl_BT=detached(ratio_BT - 1.0 - log_ratio_BT),
        mask_BT=mask,
    )
