"""Countdown: reach a target number with + - * / from given numbers, in one turn (RAGEN-2, arXiv 2604.06268)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ragen2.envs.arithmetic import NotArithmetic, read_expression
from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.countdown_solver import OPERATORS, Term, solve, uses_allowed
from ragen2.envs.countdown_words import random_term, tell_guess, tell_solution
from ragen2.envs.options import whole_number
from ragen2.envs.splits import check_seed, draw_level
from ragen2.errors import ConfigError, EnvironmentFault

RIGHT, WELL_FORMED = 1.0, 0.1
"""Reward of an expression that reaches the target, and of one that uses the right numbers but has another value."""

_FORMS, _DRAWS = 10, 64
"""Forms of expression a draw tries, and sets of numbers for each."""


@dataclass(frozen=True)
class Puzzle:
    """Numbers in ascending order and the target."""

    numbers: tuple[int, ...]
    target: int

    @property
    def text(self) -> str:
        return f"numbers {' '.join(map(str, self.numbers))} target {self.target}"


@dataclass(frozen=True)
class Score:
    """What an answer is worth. `legal` says that it is an expression; `value` is None where it is not."""

    reward: float
    legal: bool
    value: Fraction | None
    remark: str


def score(answer: str, puzzle: Puzzle, exactly_once: bool = True) -> Score:
    """Judge an answer by exact arithmetic, without executing it.

    1.0 when it has the target's value and uses the given numbers, every one exactly once (or, with `exactly_once=False`, some of
    them, each at most once); 0.1 when it uses them but has another value; 0.0 otherwise, and when it is no expression.
    """
    try:
        expression = read_expression(answer, claim=puzzle.target)
    except NotArithmetic as problem:
        return Score(0.0, False, None, str(problem))
    if not uses_allowed(expression.numbers, puzzle.numbers, exactly_once):
        return Score(0.0, True, expression.value, "the expression does not use the given numbers as asked")
    if expression.value == puzzle.target:
        return Score(RIGHT, True, expression.value, "right")
    return Score(WELL_FORMED, True, expression.value, "the value is not the target")


class Countdown(TextEnv):
    """One turn: answer with an expression. See `score` for the rewards.

    A puzzle has `numbers` numbers from `low` to `high`, and a target of at most `max_target` that they reach and that is none of
    them. The operators of its making are drawn first, evenly, so that no single one wins most puzzles; differences are taken from
    the larger number and quotients are whole. With two numbers from 1 to 99 and targets to 99 (the defaults with numbers=2) there
    are 7,759 puzzles, 795 of them in the validation split (with numbers to 20 only 528 and 54). Raises ConfigError for a value
    that cannot be used.
    """

    multi_action = False

    def __init__(
        self,
        split: str = "train",
        numbers: int = 3,
        low: int = 1,
        high: int = 99,
        max_target: int = 99,
        exactly_once: bool = True,
    ) -> None:
        super().__init__(split)
        self.numbers = whole_number("numbers", numbers, 2, 5)
        self.low = whole_number("low", low, 1, 999_999)
        self.high = whole_number("high", high, self.low, 999_999)
        self.max_target = whole_number("max_target", max_target, 1, 999_999)
        if not isinstance(exactly_once, bool):
            raise ConfigError(f"countdown exactly_once is {exactly_once!r}; give True or False")
        self.exactly_once = exactly_once
        self._puzzle: Puzzle | None = None
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        use = "Use every number exactly once." if self.exactly_once else "Use each number at most once."
        return "\n".join(
            [
                f"Make the target from the numbers with + - * / and parentheses. {use}",
                "Answer with one expression, for example (1 + 2) * 3.",
                "Reward 1 for the target, 0.1 for another value of the right numbers, else 0.",
            ]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        self._puzzle = draw_level(level_seed, self.split, self._generate, _content, attempts=300)
        self._last = None
        return Observation(self._puzzle.text)

    def step(self, action: str) -> StepResult:
        puzzle = self._current()
        if self._last is not None:
            return self._last.again()
        result = score(action, puzzle, self.exactly_once)
        success = result.reward == RIGHT
        info = {"legal": result.legal, "success": success, "remark": result.remark}
        text = f"{puzzle.text}\n{'right' if success else 'wrong'}"
        self._last = StepResult(Observation(text), result.reward, True, False, info)
        return self._last

    def content(self) -> str:
        return _content(self._current())

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The solver's expression after up to two that fail, or a random one, whose value is told. One action.

        Raises EnvironmentFault after the end.
        """
        puzzle = self._current()
        if self._last is not None:
            raise EnvironmentFault("countdown: no demonstration after the end of an episode; reset first")
        whole_number("max_actions", max_actions, 1, 1000)
        if rng.random() >= expertise:
            guess = random_term(puzzle.numbers, rng)
            return Demonstration(tell_guess(puzzle.numbers, puzzle.target, guess, rng), (guess.text,))
        text = solve(puzzle.numbers, puzzle.target, self.exactly_once)
        if text is None:
            raise EnvironmentFault(f"countdown: the puzzle {puzzle.text!r} was drawn as solvable and the solver finds nothing")
        tries = [random_term(puzzle.numbers, rng) for _ in range(int(rng.choice(3, p=(0.4, 0.4, 0.2))))]
        failed = [term for term in {term.value: term for term in tries}.values() if term.value != puzzle.target]
        solution = Term(text, Fraction(puzzle.target))
        return Demonstration(tell_solution(puzzle.numbers, puzzle.target, solution, failed, rng), (text,))

    def _generate(self, rng: np.random.Generator) -> Puzzle | None:
        """Draw a form of expression, then numbers until its value is a target; None when several forms gave none."""
        for _ in range(_FORMS):
            form = [
                (OPERATORS[int(rng.integers(len(OPERATORS)))], rng.permutation(left)[:2].tolist())
                for left in range(self.numbers, 1, -1)
            ]
            for drawn in rng.integers(self.low, self.high + 1, size=(_DRAWS, self.numbers)).tolist():
                target = _whole_value(drawn, form)
                if target is not None and target <= self.max_target and target not in drawn:
                    return Puzzle(tuple(sorted(drawn)), target)
        return None

    def _current(self) -> Puzzle:
        if self._puzzle is None:
            raise EnvironmentFault("countdown has no level yet; call reset(level_seed, noise_seed) first")
        return self._puzzle


def _whole_value(numbers: list[int], form: list[tuple[str, list[int]]]) -> int | None:
    """Value of joining, step by step, two of the numbers left; None when a step is not a positive whole number."""
    left = list(numbers)
    for operator, places in form:
        small, large = sorted((left[places[0]], left[places[1]]))
        if operator in "-/" and (small == large if operator == "-" else large % small):
            return None
        value = {"+": large + small, "-": large - small, "*": large * small, "/": large // small}[operator]
        left = [kept for place, kept in enumerate(left) if place not in places] + [value]
    return left[0]


def _content(puzzle: Puzzle) -> str:
    return f"countdown {puzzle.text}"
