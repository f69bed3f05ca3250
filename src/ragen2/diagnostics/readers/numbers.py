"""Numbers out of the ways in which logs write them."""

from __future__ import annotations

import math
import re
from typing import Any

WRAPPED = re.compile(r"[A-Za-z_.][A-Za-z_.0-9]{0,30}\(\s*([^(),]{1,40})")
"""np.float64(0.3), tensor(0.3, device='cuda:0')"""
LONGEST_NUMBER = 80
LARGEST_STEP = 10**15
LARGEST_READING = 1e100
"""Beyond this a reading has blown up like an infinite one: sums and squares of such numbers overflow."""


def parse_number(text: str) -> float | None:
    """A number as written in a log: 0.3, 1, 3.2e+01, nan, -inf, np.float64(0.3), tensor(0.3, …). None for anything else."""
    text = text.strip()
    if not text or len(text) > LONGEST_NUMBER:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    wrapped = WRAPPED.match(text)
    if wrapped is None:
        return None
    try:
        return float(wrapped[1])
    except ValueError:
        return None


def as_number(value: Any) -> float | None:
    """A value out of JSON or a dict literal as a number; text that is a number counts, true and false do not."""
    if isinstance(value, str):
        return parse_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def is_reading(value: float) -> bool:
    """Whether a number is finite and not absurdly large."""
    return abs(value) <= LARGEST_READING


def as_step(value: Any) -> int | None:
    """A whole number, also one written as 12.0, of at most 15 digits; else None."""
    number = as_number(value)
    if number is None or not math.isfinite(number) or abs(number) > LARGEST_STEP or not number.is_integer():
        return None
    return int(number)
