"""Checks that settings share: each raises ConfigError with the key, the value received and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ragen2.errors import ConfigError, did_you_mean


def require_number(key: str, value: Any, low: float, high: float = math.inf, *, above: bool = False, whole: bool = False) -> None:
    """`value` must be a finite number from `low` (excluded when `above`) to `high`, a whole one when `whole`."""
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and low <= value <= high and not (above and value == low):
        return
    kind = "a whole number" if whole else "a number"
    least = f"above {low:g}" if above else f"of at least {low:g}"
    most = "" if high == math.inf else f" and at most {high:g}"
    raise ConfigError(f"{key} is {value!r}; it must be {kind} {least}{most}.")


def require_choice(key: str, value: Any, options: Iterable[str]) -> None:
    """`value` must be one of `options`; the message names the nearest."""
    allowed = list(options)
    if isinstance(value, str) and value in allowed:
        return
    raise ConfigError(f"{key} is {value!r}.{did_you_mean(str(value), allowed)} It must be one of: {', '.join(allowed)}.")


def require_flag(key: str, value: Any) -> None:
    """`value` must be true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{key} is {value!r}; it must be true or false.")
