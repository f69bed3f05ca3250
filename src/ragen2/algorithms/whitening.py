"""Whitening of advantages over the kept tokens only, so that padding and dropped rows cannot move them."""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.arrays import Array, as_float, as_mask, namespace, widened
from ragen2.algorithms.groups import EQUAL_TOLERANCE, as_dtype

VARIANCE_FLOOR = 1e-8


def whiten(values_BT: Any, mask_BT: Any) -> Array:
    """(value - mean) / sqrt(variance + 1e-8) over the places where `mask_BT` is 1 (ddof 1), 0 elsewhere.

    Any shape, numpy or torch in, same out, 64 bits inside. Exactly 0 where fewer than two places are kept or all kept values
    are equal.
    """
    given_BT = as_float(values_BT)
    xp = namespace(given_BT)
    mask = as_mask(mask_BT, given_BT)
    kept_BT = xp.where(mask, widened(given_BT), 0.0)
    count = int(mask.sum())
    kept = kept_BT[mask]
    if count < 2 or float(kept.max() - kept.min()) <= EQUAL_TOLERANCE * max(1.0, abs(float(kept.max()))):
        return as_dtype(xp.zeros_like(kept_BT), given_BT)
    centred_BT = xp.where(mask, kept_BT - kept_BT.sum() / count, 0.0)
    variance = (centred_BT * centred_BT).sum() / (count - 1)
    return as_dtype(centred_BT / xp.sqrt(variance + VARIANCE_FLOOR), given_BT)
