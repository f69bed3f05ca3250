"""Checks of the option values that environments are constructed with; each raises ConfigError saying what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real

from ragen2.errors import ConfigError, UnknownName


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """`value` as int. Raises ConfigError unless it is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise ConfigError(f"{name} is {value!r}; give a whole number from {low} to {high}")
    return int(value)


def number(name: str, value: object, low: float, high: float) -> float:
    """`value` as float. Raises ConfigError unless it is a number from `low` to `high` (NaN is none)."""
    given = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not low <= given <= high:
        raise ConfigError(f"{name} is {value!r}; give a number from {low:g} to {high:g}")
    return given


def one_of(name: str, value: object, options: Iterable[str]) -> str:
    """`value` itself. Raises UnknownName, which names the nearest, unless it is one of `options`."""
    known = tuple(options)
    if not isinstance(value, str) or value not in known:
        raise UnknownName(name, str(value), known)
    return value
