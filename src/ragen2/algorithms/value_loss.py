"""The critic's loss: squared error to the return, clipped around the old value (arXiv 1707.06347)."""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.arrays import Array, as_float, as_like, as_mask, detached, namespace


def value_loss(values_BT: Any, old_values_BT: Any, returns_BT: Any, mask_BT: Any, *, clip: float | None = 0.5) -> Array:
    """Loss of each token, shape (B, T): half the larger of the squared errors of the value and of the value held within `clip`
    of the old one.

    0 where `mask_BT` is 0, whatever stands there. `clip` of None or 0 is the plain squared error. Only `values_BT` carries a
    gradient.
    """
    given_BT = as_float(values_BT)
    xp = namespace(given_BT)
    mask = as_mask(mask_BT, given_BT)
    new_BT = xp.where(mask, given_BT, 0.0)
    old_BT = xp.where(mask, detached(as_like(old_values_BT, given_BT)), 0.0)
    target_BT = xp.where(mask, detached(as_like(returns_BT, given_BT)), 0.0)
    squared_BT = (new_BT - target_BT) ** 2
    if clip:
        held_BT = old_BT + xp.clip(new_BT - old_BT, -clip, clip)
        squared_BT = xp.maximum(squared_BT, (held_BT - target_BT) ** 2)
    return 0.5 * squared_BT
