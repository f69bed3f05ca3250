"""Generated word problems of a few steps, easy enough for a very small model: somebody has some things, then things happen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.math_problems import MathProblem, Sum

NAMES = ("Ann", "Ben", "Carl", "Dora", "Eva", "Fred", "Gus", "Hana", "Ida", "Jon", "Kim", "Leo")
THINGS = ("pens", "cards", "eggs", "coins", "books", "apples", "stones", "shells", "balls", "cups", "keys", "nuts")
MOST = 99
"""The largest number that a story reaches."""

_START = ("{name} has {right} {things}.", "{name} owns {right} {things}.", "There are {right} {things} on the table of {name}.")
_PACKED = ("{name} has {left} boxes of {right} {things} each.", "{name} buys {left} bags with {right} {things} in each.")
_HAPPENS = {
    "+": ("{other} gives {name} {right} more.", "{name} finds {right} more.", "{name} buys {right} more."),
    "-": ("{name} gives {right} to {other}.", "{name} loses {right}.", "{name} sells {right}."),
    "/": ("{name} shares all among {right} friends.", "{name} puts all into {right} equal boxes."),
}
_ASK = ("How many {things} does {name} have now?", "How many {things} are there now?")
_ASK_TOTAL = ("How many {things} is that?", "How many {things} are there in all?")
_ASK_SHARE = {"friends": "How many {things} does each friend get?", "boxes": "How many {things} are in each box?"}


def draw_story(steps: int, largest: int, rng: np.random.Generator) -> MathProblem:
    """A problem of `steps` sums, the given numbers 2 to `largest` (a first number up to MOST where a sharing needs it)."""
    sums = _draw_sums(steps, largest, rng)
    name, other = (NAMES[k] for k in rng.permutation(len(NAMES))[:2].tolist())
    things = THINGS[int(rng.integers(len(THINGS)))]
    words = {"name": name, "other": other, "things": things}
    first = sums[0]
    told = [_pick(_PACKED, rng).format(left=first.left, right=first.right, **words)] if first.operator == "*" else []
    if not told:
        told.append(_pick(_START, rng).format(right=first.left, **words))
    for happened in sums[1:] if first.operator == "*" else sums:
        told.append(_pick(_HAPPENS[happened.operator], rng).format(right=happened.right, **words))
    told.append(_question(sums, told[-1], rng).format(**words))
    question = " ".join(told)
    return MathProblem(question, str(sums[-1].result), question, sums=tuple(sums))


def _question(sums: Sequence[Sum], last: str, rng: np.random.Generator) -> str:
    if sums[-1].operator == "/":
        return _ASK_SHARE["friends" if "friends" in last else "boxes"]
    return _pick(_ASK_TOTAL if sums[-1].operator == "*" else _ASK, rng)


def _draw_sums(steps: int, largest: int, rng: np.random.Generator) -> list[Sum]:
    """Sums that go on from each other's result, which stays from 1 to MOST. Only the first multiplies, only the last divides."""
    sums: list[Sum] = []
    while len(sums) < steps:
        operators = ["+", "-", *(["*"] if not sums else []), *(["/"] if len(sums) == steps - 1 else [])]
        operator = operators[int(rng.integers(len(operators)))]
        right = int(rng.integers(2, largest + 1))
        if sums:
            left = sums[-1].result
        elif operator == "/":
            left = right * int(rng.integers(2, max(3, MOST // right + 1)))
        else:
            left = int(rng.integers(2, largest + 1))
        if operator == "/" and left % right:
            right = next((number for number in rng.permutation(np.arange(2, 11)).tolist() if left % number == 0), 1)
        result = {"+": left + right, "-": left - right, "*": left * right, "/": left // max(right, 1)}[operator]
        if result >= 1 and max(result, left) <= MOST and right > 1:
            sums.append(Sum(left, operator, right, result))
    return sums


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
