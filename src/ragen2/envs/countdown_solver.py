"""Exact solver for Countdown: which values can be made of some numbers with + - * / and parentheses, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ragen2.errors import ConfigError

OPERATORS = ("+", "-", "*", "/")

MAX_NUMBERS = 6


@dataclass(frozen=True)
class Term:
    """An expression as text, with its exact value and its outermost operator ("" for a number alone)."""

    text: str
    value: Fraction
    operator: str = ""


Made = dict[Fraction, Term]
"""One expression for every value that can be made."""


def number(value: int) -> Term:
    """A number alone."""
    return Term(str(value), Fraction(value))


def combine(left: Term, operator: str, right: Term) -> Term | None:
    """`left operator right` with the parentheses it needs; None for a division by zero."""
    if operator == "/" and not right.value:
        return None
    value = {
        "+": lambda: left.value + right.value,
        "-": lambda: left.value - right.value,
        "*": lambda: left.value * right.value,
        "/": lambda: left.value / right.value,
    }[operator]()
    sums = ("+", "-")
    around_left = operator in ("*", "/") and left.operator in sums
    around_right = (operator != "+" and right.operator in sums) or (operator == "/" and right.operator in ("*", "/"))
    return Term(f"{_wrapped(left, around_left)} {operator} {_wrapped(right, around_right)}", value, operator)


def _wrapped(term: Term, wrap: bool) -> str:
    return f"({term.text})" if wrap else term.text


def reachable(numbers: Sequence[int]) -> Made:
    """Every value of an expression that uses each number exactly once, with one such expression. At most MAX_NUMBERS numbers."""
    everything = (1 << _checked(numbers)) - 1
    tables = _tables(numbers, include_all=True)
    return tables[everything]


def solve(numbers: Sequence[int], target: int, exactly_once: bool = True) -> str | None:
    """An expression with the value `target`, or None when there is none: exact rationals, intermediate fractions allowed.

    Uses every number exactly once, or with `exactly_once=False` each at most once. Raises ConfigError beyond MAX_NUMBERS numbers.
    """
    everything = (1 << _checked(numbers)) - 1
    goal = Fraction(target)
    tables = _tables(numbers, include_all=False)
    if len(numbers) == 1 or not exactly_once:
        for subset in sorted(tables, key=lambda subset: (subset.bit_count(), subset)):
            if goal in tables[subset]:
                return tables[subset][goal].text
    for part, rest in _halves(everything):
        for term in tables[part].values():
            found = _complete(term, tables[rest], goal)
            if found is not None:
                return found.text
    return None


def solvable(numbers: Sequence[int], target: int, exactly_once: bool = True) -> bool:
    """Whether `solve` finds an expression."""
    return solve(numbers, target, exactly_once) is not None


def uses_allowed(used: Sequence[int], numbers: Sequence[int], exactly_once: bool = True) -> bool:
    """Whether the numbers of an expression are exactly the given ones (as multisets), or some of them, each at most once."""
    have, want = Counter(used), Counter(numbers)
    return have == want if exactly_once else bool(used) and have <= want


def _checked(numbers: Sequence[int]) -> int:
    if not 1 <= len(numbers) <= MAX_NUMBERS:
        raise ConfigError(f"the Countdown solver was given {len(numbers)} numbers; it takes 1 to {MAX_NUMBERS}")
    return len(numbers)


def _tables(numbers: Sequence[int], include_all: bool) -> dict[int, Made]:
    """What each subset of the numbers (a bit mask of their places) can make; the whole set only with `include_all`."""
    count = len(numbers)
    tables: dict[int, Made] = {}
    for index, value in enumerate(numbers):
        tables[1 << index] = {Fraction(value): number(value)}
    subsets = range(1, (1 << count) - (0 if include_all else 1))
    for subset in sorted(subsets, key=lambda subset: subset.bit_count()):
        if subset.bit_count() > 1:
            made: Made = {}
            for part, rest in _halves(subset):
                for left in tables[part].values():
                    for right in tables[rest].values():
                        _join(left, right, made)
            tables[subset] = made
    return tables


def _halves(subset: int) -> Iterator[tuple[int, int]]:
    """Every way to split a subset in two, each once."""
    part = (subset - 1) & subset
    while part:
        rest = subset ^ part
        if part < rest:
            yield part, rest
        part = (part - 1) & subset


def _join(left: Term, right: Term, made: Made) -> None:
    """Put what two expressions make with each operator, in either order, into `made`; the first expression of a value stays."""
    a, b = left.value, right.value
    made_now = [(a + b, left, "+", right), (a - b, left, "-", right), (b - a, right, "-", left), (a * b, left, "*", right)]
    if b:
        made_now.append((a / b, left, "/", right))
    if a:
        made_now.append((b / a, right, "/", left))
    for value, first, operator, second in made_now:
        if value not in made:
            term = combine(first, operator, second)
            if term is not None:
                made[value] = term


def _complete(term: Term, others: Made, goal: Fraction) -> Term | None:
    """`term` joined with one of `others` so that the value is `goal`; None when no operator does it."""
    value = term.value
    wanted = [(goal - value, "+", True), (value - goal, "-", True), (goal + value, "-", False)]
    if value:
        wanted += [(goal / value, "*", True), (goal * value, "/", False)]
        if goal:
            wanted.append((value / goal, "/", True))
    elif not goal:
        wanted += [(other, "*", True) for other in list(others)[:1]]
    for partner, operator, term_first in wanted:
        if partner in others:
            left, right = (term, others[partner]) if term_first else (others[partner], term)
            joined = combine(left, operator, right)
            if joined is not None:
                return joined
    return None
