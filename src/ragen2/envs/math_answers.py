"""Is an answer the right one? Exact for numbers; for other formulas math-verify, in a child process, behind narrow gates.

math-verify alone takes "9 or 10" for 10, 50 % for 50 and for .5, 12:00 for 1:00, \\pm 5 for 5 and 1/2004! for 1/2006!, and
hangs on 9^{9^{9}}. So it is asked only about single formulas of numbers, letters, + - * / ^ and a few functions, of bounded
exponents.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ragen2.envs.math_numbers import read_number
from ragen2.envs.math_text import Written, tidy

SameFormula = Callable[[str, str], bool]
"""Whether two formulas (LaTeX, already gated) are equal. Raises EnvironmentFault when that could not be found out."""

_COMMANDS = frozenset(
    ["\\frac", "\\sqrt", "\\pi", "\\sin", "\\cos", "\\tan", "\\log", "\\ln", "\\theta", "\\alpha", "\\beta", "\\gamma", "\\infty"]
)
_TOKEN = re.compile(r"\\[A-Za-z]+|[A-Za-z]+|[0-9]+|.", re.DOTALL)
_SYMBOLS = frozenset("+-*/^(){}[]_. ")
_NAMED = re.compile(r"[A-Za-z] ?= ?", re.ASCII)
_BRACKETS = {"(": ")]", "[": "])", "\\{": "\\}"}
MOST_DIGITS, MOST_POWERS, MOST_PARTS = 9, 4, 12


@dataclass(frozen=True)
class Judgement:
    """Whether the answer is right; `legal` says that it can be read as an answer at all, `remark` why not."""

    right: bool
    legal: bool
    remark: str


def judge(answer: str, gold: str, same_formula: SameFormula) -> Judgement:
    """Compare an answer (hostile text) with the gold answer.

    Where the gold is a number the answer must be that number, written out: exact rationals, no rounding, no expression left to
    work out. A percent sign is a unit: 50% is 50 and not .5. A unit counts only where both have one. Raises what `same_formula`
    raises.
    """
    given, wanted = tidy(answer), tidy(gold)
    if given is None:
        return Judgement(False, False, "the answer is empty, too long or holds characters that no answer has")
    if wanted is None:
        return Judgement(False, True, "wrong")
    if read_number(wanted.text) is not None and read_number(_unnamed(given.text)) is None:
        return Judgement(False, False, "the answer is not a number")
    right = _same(given, wanted, same_formula)
    return Judgement(right, True, "right" if right else "wrong")


def needs_formulas(gold: str) -> bool:
    """Whether answers to this gold may have to be compared as formulas: it is neither a number nor mere words."""
    wanted = tidy(gold)
    if wanted is None or read_number(wanted.text) is not None:
        return False
    return any(is_formula(part) and read_number(part) is None for part in _parts(_unnamed(wanted.text))[2])


def _same(given: Written, wanted: Written, same_formula: SameFormula) -> bool:
    if given.unit and wanted.unit and given.unit != wanted.unit:
        return False
    mine, theirs = _unnamed(given.text), _unnamed(wanted.text)
    if _folded(given.text) == _folded(wanted.text) or _folded(mine) == _folded(theirs):
        return True
    if read_number(theirs) is not None or read_number(mine) is not None:
        return _same_part(mine, theirs, same_formula)
    opened, closed, parts = _parts(mine)
    wanted_opened, wanted_closed, wanted_parts = _parts(theirs)
    if (opened, closed, len(parts)) != (wanted_opened, wanted_closed, len(wanted_parts)) or len(parts) > MOST_PARTS:
        return False
    if opened in ("(", "["):
        return all(_same_part(a, b, same_formula) for a, b in zip(parts, wanted_parts, strict=True))
    left = list(parts)
    for part in wanted_parts:
        match = next((other for other in left if _same_part(other, part, same_formula)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _same_part(given: str, wanted: str, same_formula: SameFormula) -> bool:
    if _folded(given) == _folded(wanted):
        return True
    mine, theirs = read_number(given), read_number(wanted)
    if theirs is not None:
        return mine == theirs
    if not (is_formula(given) and is_formula(wanted)) or ("." in given and "." not in wanted):
        return False
    return same_formula(given, wanted)


def is_formula(text: str) -> bool:
    """Whether math-verify may be asked about this text: a single formula of whitelisted parts with small exponents."""
    tokens = _TOKEN.findall(text.strip())
    if not tokens or len(text) > 200 or tokens.count("^") > MOST_POWERS:
        return False
    for token in tokens:
        if token[0] == "\\":
            allowed = token in _COMMANDS
        elif token[0].isdigit():
            allowed = len(token) <= MOST_DIGITS
        elif token[0].isalpha():
            allowed = len(token) <= 2 and token.lower() not in ("or", "to", "in")
        else:
            allowed = token in _SYMBOLS
        if not allowed:
            return False
    return any(token[0].isalnum() or token in _COMMANDS for token in tokens) and "**" not in text and _small_exponents(text)


def _small_exponents(text: str) -> bool:
    """Every exponent is one character, or a short bracket without a power in it; none is itself raised."""
    for found in re.finditer(r"\^", text):
        rest = text[found.end() :].lstrip()
        if rest.startswith("{"):
            inside, bracket, after = rest[1:].partition("}")
            if not bracket or len(inside) > 8 or "^" in inside or "{" in inside:
                return False
        else:
            inside, after = rest[:1], rest[1:]
        if not inside or inside in "(^" or after.lstrip().startswith("^"):
            return False
        if any(len(number) > 2 for number in re.findall(r"[0-9]+", inside)):
            return False
    return True


def _parts(text: str) -> tuple[str, str, list[str]]:
    """Opening and closing bracket and the parts between commas; no brackets for a single formula or a bare list."""
    text = text.strip()
    for start, ends in _BRACKETS.items():
        closing = [end for end in ((ends,) if start == "\\{" else tuple(ends)) if text.endswith(end)]
        if text.startswith(start) and closing:
            parts = _split(text[len(start) : -len(closing[0])])
            if parts is not None and (len(parts) > 1 or start == "\\{"):
                return start, closing[0], parts
    parts = _split(text)
    return "", "", [text] if parts is None else parts


def _split(text: str) -> list[str] | None:
    """Parts between commas that stand in no bracket; None when brackets do not close in order."""
    depth, parts, start = 0, [], 0
    for at, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
        if depth < 0:
            return None
    return None if depth else [*parts, text[start:].strip()]


def _unnamed(text: str) -> str:
    """Without "x =" before it."""
    found = _NAMED.match(text)
    return text[found.end() :] if found else text


def _folded(text: str) -> str:
    return (
        "".join(text.split()).casefold() if "\\" in text or any(c.isdigit() for c in text) else " ".join(text.split()).casefold()
    )
