"""MetaMathQA: a question, one attempt or several, each later one worth half (RAGEN-2, arXiv 2604.06268, appendix B)."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.math_answers import judge, needs_formulas
from ragen2.envs.math_checker import require_math_verify, same_formula
from ragen2.envs.math_numbers import read_number
from ragen2.envs.math_problems import MathProblem, gsm_problem, read_metamath
from ragen2.envs.math_stories import MOST, draw_story
from ragen2.envs.math_words import tell, tell_guess
from ragen2.envs.options import whole_number
from ragen2.envs.splits import check_seed, draw_level, level_rng, split_of
from ragen2.errors import ConfigError, EnvironmentFault

SOURCES = ("generated", "gsm")


class MetaMathQA(TextEnv):
    """Answer a question with a number or a formula. See `math_answers.judge` for what counts as right.

    With `attempts` = k the agent may try k times: the first right answer pays 1, .5, .25 … by its attempt and ends the episode;
    after the last wrong one the episode ends without success. An answer that cannot be read is an attempt too, and not a legal
    action.

    `source` is "generated" (word problems of `steps` sums with numbers to `largest`), "gsm" (the templates of GSM-Symbolic, which
    needs the package reasoning-gym), or the path of a .jsonl or .parquet file of MetaMathQA (see `math_problems`). Levels are
    split by the question, in a file by the question that a row was rephrased from; `dropped` counts the rows of a file that were
    left out. Raises ConfigError for a value that cannot be used, MissingDependency where the source needs a package that is
    absent. A formula checker that breaks raises EnvironmentFault in `step`: the episode is invalid, not wrong.
    """

    multi_action = False

    def __init__(
        self, split: str = "train", attempts: int = 1, source: str = "generated", steps: int = 1, largest: int = 20
    ) -> None:
        super().__init__(split)
        self.attempts = whole_number("attempts", attempts, 1, 64)
        if not isinstance(source, (str, Path)) or not str(source):
            raise ConfigError(f"metamathqa source is {source!r}; give generated, gsm, or the path of a .jsonl or .parquet file")
        self.source = str(source)
        self.steps = whole_number("steps", steps, 1, 6)
        self.largest = whole_number("largest", largest, 3, MOST // 2)
        self.dropped: dict[str, int] = {}
        self._problems: tuple[MathProblem, ...] = ()
        if self.source == "gsm":
            gsm_problem(np.random.default_rng(0))
        elif self.source != "generated":
            self._problems, formulas = _of_split(self.source, self.split)
            self.dropped = dict(read_metamath(self.source).dropped)
            if formulas:
                require_math_verify()
                self.concurrency = 4
        self._problem: MathProblem | None = None
        self._used = 0
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        lines = [
            "Solve the problem. Answer with the result alone: a number such as 12, 3/4 or 0.5, or a formula if asked for one."
        ]
        if self.attempts == 1:
            return "\n".join([*lines, "One attempt. Reward 1 when it is right, else 0."])
        return "\n".join(
            [*lines, f"At most {self.attempts} attempts. Reward 1 for the first, half as much with every further one."]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        if self._problems:
            self._problem = self._problems[int(level_rng(level_seed).integers(len(self._problems)))]
        else:
            self._problem = draw_level(level_seed, self.split, self._generate, lambda problem: problem.content)
        self._used, self._last = 0, None
        return Observation(self._problem.question)

    def step(self, action: str) -> StepResult:
        problem = self._current()
        if self._last is not None:
            return self._last.again()
        judged = judge(action, problem.gold, same_formula)
        self._used += 1
        reward = 0.5 ** (self._used - 1) if judged.right else 0.0
        left = self.attempts - self._used
        done = judged.right or left == 0
        info = {
            "legal": judged.legal,
            "attempt": self._used,
            "remark": judged.remark,
            **({"success": judged.right} if done else {}),
        }
        told = judged.remark if done else f"{judged.remark}, {left} {'attempt' if left == 1 else 'attempts'} left"
        result = StepResult(Observation(f"{problem.question}\n{told}"), reward, done, False, info)
        self._last = result if done else None
        return result

    def content(self) -> str:
        return self._current().content

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The worked answer, or a guess. Raises EnvironmentFault after the end."""
        problem = self._current()
        whole_number("max_actions", max_actions, 1, 1000)
        if self._last is not None:
            raise EnvironmentFault("metamathqa: no demonstration after the end of an episode; reset first")
        if rng.random() < expertise:
            return Demonstration(tell(problem, rng), (problem.gold,))
        gold = read_number(problem.gold)
        near = gold is not None and gold.denominator == 1 and 0 < gold <= MOST
        guess = str(int(rng.integers(1, 2 * int(gold) + 2))) if near and gold is not None else str(int(rng.integers(1, MOST + 1)))
        return Demonstration(tell_guess(problem, guess, rng), (guess,))

    def _generate(self, rng: np.random.Generator) -> MathProblem | None:
        return gsm_problem(rng) if self.source == "gsm" else draw_story(self.steps, self.largest, rng)

    def _current(self) -> MathProblem:
        if self._problem is None:
            raise EnvironmentFault("metamathqa has no level yet; call reset(level_seed, noise_seed) first")
        return self._problem


@functools.lru_cache(maxsize=16)
def _of_split(path: str, split: str) -> tuple[tuple[MathProblem, ...], bool]:
    """The problems of a file that belong to a split, and whether any of them may have to be compared as a formula."""
    problems = read_metamath(path).problems
    found = tuple(problem for problem in problems if split_of(problem.content) == split)
    if not found:
        raise ConfigError(
            f"none of the {len(problems)} problems of {path} belongs to split {split!r}; about 8 of 10 families of questions are "
            f"train, 1 validation, 1 test: give a file of more problems"
        )
    return found, any(needs_formulas(problem.gold) for problem in found)
