"""How the demonstrations of mathematics talk: the worked answer step by step in varied words, or a guess."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.math_problems import MathProblem, Sum

_FIRST = {
    "+": ("{left} and {right} more.", "start with {left}, get {right}.", "has {left}, then {right} more."),
    "-": ("{left} and {right} go.", "start with {left}, lose {right}.", "has {left}, then {right} less."),
    "*": ("{left} times {right}.", "{left} with {right} in each.", "there are {left} of {right} each."),
    "/": ("{left} in {right} parts.", "share {left} among {right}.", "has {left}, split by {right}."),
}
_THEN = {
    "+": ("then {right} more.", "now get {right}."),
    "-": ("then {right} less.", "now lose {right}."),
    "*": ("then {right} times.", "now times {right}."),
    "/": ("then in {right} parts.", "now split by {right}."),
}
_WORKED = ("{left} {operator} {right} = {result}.", "{left} {operator} {right} is {result}.")
_SO = ("so {gold}.", "it is {gold}.", "that makes {gold}.", "answer {gold}.")
_OPEN = ("step by step.", "work it out.", "first the facts.", "let me see.")
_GUESS = ("maybe {guess}.", "about {guess}.", "guess {guess}.", "try {guess}.", "perhaps {guess}.")


def tell(problem: MathProblem, rng: np.random.Generator) -> str:
    """The worked answer: the sums of a generated problem in the order of its text, or the lines that came with it."""
    end = _pick(_SO, rng).format(gold=problem.gold)
    if not problem.sums:
        return " ".join([_pick(_OPEN, rng), *problem.lines, end])
    return " ".join([*(_told(step, at == 0, rng) for at, step in enumerate(problem.sums)), end])


def tell_guess(problem: MathProblem, guess: str, rng: np.random.Generator) -> str:
    """A guess, after the first fact where the problem is a generated one."""
    said = _pick(_GUESS, rng).format(guess=guess)
    if not problem.sums:
        return said
    first = problem.sums[0]
    return f"{_pick(_FIRST[first.operator], rng).format(left=first.left, right=first.right)} {said}"


def _told(step: Sum, first: bool, rng: np.random.Generator) -> str:
    words = {"left": step.left, "operator": step.operator, "right": step.right, "result": step.result}
    return f"{_pick((_FIRST if first else _THEN)[step.operator], rng).format(**words)} {_pick(_WORKED, rng).format(**words)}"


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
