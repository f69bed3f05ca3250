"""The few array operations that numpy and torch spell differently, so that every formula is written once.

Both libraries take `axis` and `keepdims` in their reductions; only detection, conversion and masks differ. torch is never
imported here: a tensor can only be passed by someone who has loaded it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ragen2.errors import TokenMismatch

Array = Any
"""A numpy array or a torch tensor; functions return what they were given."""


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def namespace(*values: Any) -> Any:
    """The torch module when any value is a tensor, numpy otherwise."""
    return sys.modules["torch"] if any(is_torch(value) for value in values) else np


def as_float(value: Any) -> Array:
    """`value` as an array of at least 32-bit floats: half precision is widened, whole numbers become floats."""
    if is_torch(value):
        torch = sys.modules["torch"]
        if not value.is_floating_point():
            return value.to(torch.get_default_dtype())
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    array = np.asarray(value)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def widened(value: Array) -> Array:
    """64-bit copy for statistics that lose digits in 32 bits; left alone on devices without 64-bit floats (Apple's mps)."""
    if is_torch(value):
        return value if value.device.type == "mps" else value.double()
    return np.asarray(value, dtype=np.float64)


def as_like(value: Any, like: Array) -> Array:
    """`value` as an array of the library, dtype and device of `like`."""
    if is_torch(like):
        return sys.modules["torch"].as_tensor(value, dtype=like.dtype, device=like.device)
    return np.asarray(to_numpy(value), dtype=like.dtype)


def as_mask(mask: Any, like: Array) -> Array:
    """`mask` as booleans of the library and device of `like`, of the same shape. Raises TokenMismatch when the shapes differ."""
    if is_torch(like):
        kept = sys.modules["torch"].as_tensor(mask, device=like.device) != 0
    else:
        kept = to_numpy(mask) != 0
    if kept.shape != like.shape:
        raise TokenMismatch(f"the mask has shape {tuple(kept.shape)} but the array it masks has shape {tuple(like.shape)}")
    return kept


def to_numpy(value: Any) -> np.ndarray:
    """`value` on the CPU as a numpy array, outside any gradient."""
    if is_torch(value):
        tensor = value.detach().cpu()
        return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return np.asarray(value)


def detached(value: Array) -> Array:
    """`value` as a constant: no gradient flows through it."""
    return value.detach() if is_torch(value) else value
