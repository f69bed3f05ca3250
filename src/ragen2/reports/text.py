"""Text and numbers made safe and readable inside HTML. Model output is hostile: it is escaped, bounded and made visible."""

from __future__ import annotations

import html
import math
import unicodedata
from typing import Any

MOST_CHARACTERS = 6_000
DASH = "–"


def escape(value: object, most: int = MOST_CHARACTERS) -> str:
    """`value` as HTML text: markup escaped, control, invisible and direction-changing characters shown as `\\u….`, long text cut
    in the middle with the number of characters left out."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"
    return html.escape(visible(text))


def visible(text: str) -> str:
    """`text` with control, invisible and direction-changing characters shown as `\\u….`: safe on a page and on a terminal."""
    return "".join(_visible(letter) for letter in text)


def _visible(letter: str) -> str:
    if letter in "\n\t" or letter.isprintable():
        return letter
    if unicodedata.category(letter) == "Zs":
        return " "
    return f"\\u{ord(letter):04x}"


def as_number(value: Any) -> float | None:
    """A finite number, or None for anything else (booleans included)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def number(value: Any) -> str:
    """A number with about three digits; an en dash where there is none."""
    found = as_number(value)
    if found is None:
        return DASH if value is None else escape(value, 80)
    if found == int(found) and abs(found) < 1e15:
        return f"{int(found):,}"
    size = abs(found)
    if size >= 1000:
        return f"{found:,.0f}"
    if size < 1e-3:
        return f"{found:.2e}"
    digits = 2 - math.floor(math.log10(size)) if size < 1 else 3 - len(str(int(size)))
    text = f"{found:.{max(1, digits)}f}"
    return text.rstrip("0").rstrip(".")


def percent(value: Any) -> str:
    """A rate in 0..1 as a percentage."""
    found = as_number(value)
    return DASH if found is None else f"{100 * found:.1f}\u00a0%"


def duration(seconds: float | None) -> str:
    """Seconds in the two largest units that fit."""
    if seconds is None:
        return DASH
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"
