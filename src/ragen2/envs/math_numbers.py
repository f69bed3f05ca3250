"""Reads a number as people write it, exactly: 72, 72.0, 1,000, -.5, 3/4, \\frac{3}{4}, 1 1/2. Nothing is evaluated."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_DIGITS = 30
"""A number with more digits is not read."""

_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_DECIMAL = re.compile(rf"({_WHOLE})?(?:\.([0-9]*))?", re.ASCII)
_RATIO = re.compile(
    r"(?:([0-9]+) ?)??(?:\\frac ?(?:\{ ?(-?[0-9]+) ?\} ?\{ ?([0-9]+) ?\}|([0-9])([0-9]))|(?:(?<= )|^)([0-9]+) ?/ ?([0-9]+))",
    re.ASCII,
)


def read_number(text: str) -> Fraction | None:
    """The exact value of a number, None where the text is anything else (an expression, a list, a word, a division by zero).

    Whole numbers and decimals with or without thousands separators; fractions a/b and \\frac{a}{b} of whole numbers, also after a
    whole number (1 1/2 is 3/2); one sign. Scientific notation and repeating decimals are not read.
    """
    if sum(char.isdigit() for char in text) > MAX_DIGITS:
        return None
    text = text.strip()
    sign, body = (-1, text[1:].lstrip()) if text.startswith("-") else (1, text.removeprefix("+"))
    value = _decimal(body)
    value = _ratio(body) if value is None else value
    return None if value is None else sign * value


def _decimal(text: str) -> Fraction | None:
    read = _DECIMAL.fullmatch(text)
    if read is None or not (read[1] or read[2]):
        return None
    places = read[2] or ""
    return Fraction(int((read[1] or "0").replace(",", "") + places), 10 ** len(places))


def _ratio(text: str) -> Fraction | None:
    read = _RATIO.fullmatch(text)
    if read is None:
        return None
    whole = int(read[1] or 0)
    above, below = next((read[k], read[k + 1]) for k in (2, 4, 6) if read[k] is not None)
    if not int(below) or (read[1] and int(above) < 0):
        return None
    return whole + Fraction(int(above), int(below))
