"""How Countdown's demonstrations talk: short reasoning in varied words, every statement of which is true arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.countdown_solver import OPERATORS, Term, combine, number

_NEED = (
    "need {target} from {numbers}.",
    "target {target}, numbers {numbers}.",
    "make {target} with {numbers}.",
    "I have {numbers} and want {target}.",
    "{numbers} must give {target}.",
)
_ABOVE = ("{target} is above {largest}.", "{target} is more than {largest}.", "{largest} is less than {target}.")
_BELOW = ("{target} is below {largest}.", "{target} is less than {largest}.", "{largest} is more than {target}.")
_SMALL = ("too small", "not enough", "below {target}")
_BIG = ("too big", "too much", "above {target}")
_RIGHT = (
    "{text} is {value}, that is the target.",
    "{text} is {value}, right.",
    "{text} gives {value}, done.",
    "take {text}, it is {value}.",
)
_GUESS = (
    "try {text}, it is {value}.",
    "maybe {text}, that is {value}.",
    "guess {text}, it is {value}.",
    "perhaps {text}, which is {value}.",
)
FAR = 999
"""Values beyond this (or below its negative) are told as such: their digits would teach nothing."""


def random_term(numbers: Sequence[int], rng: np.random.Generator) -> Term:
    """An expression of all the numbers: random pairs joined by random operators, never dividing by zero."""
    terms = [number(value) for value in numbers]
    while len(terms) > 1:
        first, second = rng.permutation(len(terms))[:2].tolist()
        joined = combine(terms[first], OPERATORS[int(rng.integers(len(OPERATORS)))], terms[second])
        if joined is not None:
            terms = [term for index, term in enumerate(terms) if index not in (first, second)] + [joined]
    return terms[0]


def tell_solution(numbers: Sequence[int], target: int, solution: Term, tries: Sequence[Term], rng: np.random.Generator) -> str:
    """Reasoning that finds the target: what is asked, how the target compares, failed `tries`, then the solution."""
    parts = [_opening(numbers, target, rng)]
    for term in tries:
        verdict = _pick(_BIG if term.value > target else _SMALL, rng).format(target=target)
        parts.append(f"{term.text} is {_told(term)}" + (f", {verdict}." if term.value.denominator == 1 else "."))
    parts.append(_pick(_RIGHT, rng).format(text=solution.text, value=solution.value))
    return " ".join(parts)


def tell_guess(numbers: Sequence[int], target: int, guess: Term, rng: np.random.Generator) -> str:
    """Reasoning that settles on an expression without testing it against the target."""
    return f"{_opening(numbers, target, rng)} {_pick(_GUESS, rng).format(text=guess.text, value=_told(guess))}"


def _told(term: Term) -> str:
    """The value in words that are true and short."""
    if term.value.denominator != 1:
        return "not whole"
    if abs(term.value) > FAR:
        return f"over {FAR}" if term.value > 0 else f"under -{FAR}"
    return str(term.value)


def _opening(numbers: Sequence[int], target: int, rng: np.random.Generator) -> str:
    named = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
    need = _pick(_NEED, rng).format(target=target, numbers=named)
    largest = max(numbers)
    compare = "" if target == largest else " " + _pick(_ABOVE if target > largest else _BELOW, rng)
    return need + compare.format(target=target, largest=largest)


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
