"""Entropy of the policy's next-token distributions, over real tokens only."""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.arrays import Array, as_float, as_mask, namespace


def token_entropy(logits_BTV: Any, mask_BT: Any = None) -> Array:
    """Entropy in nats of softmax(logits) at each place, shape (B, T), from 0 to log V; 0 where `mask_BT` is 0, whatever stands
    there.

    numpy or torch in, same out. A logit of -inf is a token that cannot be sampled.
    """
    logits = as_float(logits_BTV)
    xp = namespace(logits)
    mask = None if mask_BT is None else as_mask(mask_BT, logits[..., 0])
    if mask is not None:
        logits = xp.where(mask[..., None], logits, 0.0)
    shifted = logits - xp.amax(logits, axis=-1, keepdims=True)
    weights = xp.exp(shifted)
    total = xp.sum(weights, axis=-1)
    surprise = xp.where(weights > 0, shifted, 0.0)
    entropy = xp.log(total) - xp.sum(weights * surprise, axis=-1) / total
    return xp.clip(entropy if mask is None else xp.where(mask, entropy, 0.0), 0.0, None)


def mean_entropy(entropy_BT: Any, mask_BT: Any) -> Array:
    """Mean over the places where `mask_BT` is 1; 0 with gradient 0 when there is none."""
    entropy = as_float(entropy_BT)
    mask = as_mask(mask_BT, entropy)
    xp = namespace(entropy)
    return xp.sum(xp.where(mask, entropy, 0.0)) / xp.clip(xp.sum(mask), 1, None)
