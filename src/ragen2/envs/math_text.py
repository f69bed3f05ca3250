"""Brings a written mathematical answer into one form: wrappers, signs, spacing, units. Never evaluates anything."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_ANSWER = 200
"""An answer with more characters is not read at all."""

_SIGNS = str.maketrans({"\u2212": "-", "\u00d7": "*", "\u00f7": "/", "\u00a0": " "})
_SPACING = ("\\!", "\\,", "\\;", "\\:", "\\ ", "\\left", "\\right", "\\displaystyle")
_SAME = (("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\cdot", "*"), ("\\times", "*"), ("{,}", ","), ("\\%", "%"))
_WRAPPERS = (
    ("\\boxed{", "}"),
    ("\\text{", "}"),
    ("\\mathrm{", "}"),
    ("\\textbf{", "}"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("$$", "$$"),
    ("$", "$"),
)
_UNIT = re.compile(r"(%|(?:\^\{?\\circ\}?)|\\(?:text|mathrm|mbox)\{[A-Za-z .]{1,30}\})$", re.ASCII)


@dataclass(frozen=True)
class Written:
    """An answer's text without its unit, and the unit ("" where none is written; "%" is one)."""

    text: str
    unit: str = ""


def tidy(answer: str) -> Written | None:
    """The answer in one form; None when it is empty, too long, or holds anything but printable ASCII and a few printed signs.

    Takes off white space at the ends, one full stop after it, $ … $, \\boxed{…}, \\text{…} around all of it, LaTeX spacing, and a
    unit at the end: a percent sign, a degree sign, a \\text{…}.
    """
    if len(answer) > MAX_ANSWER:
        return None
    text = answer.translate(_SIGNS).strip(" \t\r\n")
    if not text.isascii() or any(ord(char) < 32 for char in text):
        return None
    text = _unwrapped(text)
    for spacing in _SPACING:
        text = re.sub(re.escape(spacing) + (r"(?![A-Za-z])" if spacing[-1].isalpha() else ""), "", text)
    for old, new in _SAME:
        text = text.replace(old, new)
    text = text.removeprefix("\\$").replace("-\\$", "-").replace("-$", "-").removeprefix("$").strip()
    found = _UNIT.search(text)
    unit = "" if found is None or found.start() == 0 else found[1]
    text = _unwrapped(text[: len(text) - len(unit)] if unit else text)
    return Written(text, _unit_name(unit)) if text else None


def _unwrapped(text: str) -> str:
    """Without wrappers that enclose all of it, and without one full stop at the end."""
    while True:
        before = text
        text = text.strip(" \t\r\n")
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
        for start, end in _WRAPPERS:
            if text.startswith(start) and text.endswith(end) and len(text) > len(start) + len(end):
                inside = text[len(start) : -len(end)]
                if _closed(inside) and not (start == "$" and "$" in inside):
                    text = inside
        if text == before:
            return text


def _closed(text: str) -> bool:
    """Whether curly brackets close in order, so that the outer ones belong together."""
    depth = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0


def _unit_name(unit: str) -> str:
    if "circ" in unit:
        return "degrees"
    return unit.partition("{")[2].rstrip("}").strip(" .").casefold() if "{" in unit else unit
