"""The judge of a program: it runs the hidden tests and compares, outside the sandbox, what came out with what was expected.

Nothing in the sandbox knows an expected output, so a program can only answer; it cannot tell a verdict.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragen2.envs.deepcoder_problems import CallTest, Problem, ProgramTest
from ragen2.errors import SandboxBroken
from ragen2.sandbox import Cause, CheckScript, Sandbox, SandboxFunction, SandboxLimits, run_check

_NUMBER = re.compile(rb"[-+]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,4})?")
_BLANKS = b" \t\r\f\v"

_KEPT_TESTERS = 2
_PROOF = ("print(6 * 7)", b"42\n")


@dataclass(frozen=True)
class Verdict:
    """Tests passed, of how many. `cause` and `error` tell of the first that was not: "ok" with no error is a wrong answer."""

    passed: int
    total: int
    cause: Cause = "ok"
    error: str = ""

    @property
    def success(self) -> bool:
        return self.passed == self.total


@dataclass(frozen=True)
class JudgeSettings:
    """How answers are judged. `all_or_nothing` stops at the first test that fails.

    A test not reached within `total_seconds` counts as failed for time. Of a problem's tests the first `max_tests` are run.
    """

    limits: SandboxLimits = field(default_factory=SandboxLimits)
    sandbox: str = "bubblewrap"
    total_seconds: float = 8.0
    max_tests: int = 20
    all_or_nothing: bool = False


@functools.cache
def judge_for(settings: JudgeSettings) -> Judge:
    """The judge of this process for these settings: environments of one kind share it, and what it keeps running."""
    return Judge(settings)


class Judge:
    """Judges answers, each in a new sandbox. Sandboxes of trusted test code are kept for the next answer until `close`."""

    def __init__(self, settings: JudgeSettings) -> None:
        self.settings = settings
        self._totals: dict[str, int] = {}
        self._testers: list[Sandbox] = []

    def judge(self, problem: Problem, code: str) -> Verdict:
        """Run the tests. Raises SandboxUnavailable or SandboxBroken where they could not be run: that is no verdict."""
        with Sandbox(self.settings.limits, mode=self.settings.sandbox) as sandbox:
            if isinstance(problem.tests, CheckScript):
                verdict = self._judge_check(sandbox, problem, problem.tests, code)
            else:
                verdict = self._judge_tests(sandbox, problem, problem.tests[: self.settings.max_tests], code)
        if verdict.cause == "killed":
            self._confirm()
        return verdict

    def close(self) -> None:
        """End the sandboxes that are kept. Safe to call twice, and the judge can be used again."""
        while self._testers:
            self._testers.pop().close()

    def _judge_tests(self, sandbox: Sandbox, problem: Problem, tests: Sequence[ProgramTest | CallTest], code: str) -> Verdict:
        sandbox.start().wait_ready()
        end = time.monotonic() + self.settings.total_seconds
        first: tuple[Cause, str] | None = None
        passed = 0
        for test in tests:
            left = end - time.monotonic()
            seconds = min(left, self.settings.limits.wall_seconds)
            right, cause, error = _run_test(sandbox, problem, code, test, seconds) if left > 0 else (False, "time", "")
            passed += right
            if not right:
                first = first or (cause, error)
                if self.settings.all_or_nothing or cause == "refused":
                    break
        return Verdict(passed, len(tests), *(first or ("ok", "")))

    def _judge_check(self, sandbox: Sandbox, problem: Problem, script: CheckScript, code: str) -> Verdict:
        settings = self.settings
        tester = self._tester()
        try:
            tester.start().wait_ready()
            sandbox.start().wait_ready()
            seconds = min(settings.total_seconds, settings.limits.wall_seconds)
            with SandboxFunction(sandbox, code, script.name, preamble=problem.preamble, seconds=seconds) as function:
                known = self._totals.get(problem.content)
                outcome = run_check(tester, function, script, known)
        except BaseException:
            tester.close()
            raise
        self._keep(tester)
        if known is None and outcome.counted:
            self._totals[problem.content] = outcome.counted
        return Verdict(outcome.passed, outcome.total, outcome.cause, outcome.error)

    def _tester(self) -> Sandbox:
        try:
            return self._testers.pop()
        except IndexError:
            # the tests may wait for the function for as long as that may take
            limits = self.settings.limits
            patient = replace(limits, wall_seconds=self.settings.total_seconds + limits.wall_seconds)
            return Sandbox(patient, mode=self.settings.sandbox)

    def _keep(self, tester: Sandbox) -> None:
        if len(self._testers) < _KEPT_TESTERS:
            self._testers.append(tester)
        else:
            tester.close()

    def _confirm(self) -> None:
        """A process that was killed may have done it itself, or the machine did: see that the sandbox still works."""
        with Sandbox(self.settings.limits, mode=self.settings.sandbox) as sandbox:
            result = sandbox.run(_PROOF[0])
        if result.stdout != _PROOF[1]:
            raise SandboxBroken(f"the sandbox no longer runs a program that prints 42: {result}")


def _run_test(
    sandbox: Sandbox, problem: Problem, code: str, test: ProgramTest | CallTest, seconds: float
) -> tuple[bool, Cause, str]:
    """(right, cause, error) of one test."""
    if isinstance(test, ProgramTest):
        return _run_program(sandbox, problem, code, test, seconds)
    return _run_call(sandbox, problem, code, test, seconds)


def _run_program(sandbox: Sandbox, problem: Problem, code: str, test: ProgramTest, seconds: float) -> tuple[bool, Cause, str]:
    result = sandbox.run(code, test.given, seconds=seconds)
    if not result.ok:
        return False, result.cause, f"exit status {result.exit_status}" if result.cause == "ok" else ""
    return same_output(test.output.encode(), result.stdout, problem.tolerance), "ok", ""


def _run_call(sandbox: Sandbox, problem: Problem, code: str, test: CallTest, seconds: float) -> tuple[bool, Cause, str]:
    name = problem.name or ""
    with SandboxFunction(sandbox, code, name, preamble=problem.preamble, seconds=seconds) as function:
        answer = function.call(test.arguments)
    if answer.error is not None:
        return False, answer.cause, answer.error
    return same_value(test.output, answer.tree, problem.tolerance), "ok", ""


def same_output(expected: bytes, found: bytes, tolerance: float = 0.0) -> bool:
    """Whether a program wrote what it should: white space at the end of a line and empty lines at the end do not count.

    With a tolerance, lines are compared word by word, and two numbers may differ by it (relative to the expected one where that
    is larger than 1). Bytes are compared, so digits of other scripts are no numbers.
    """
    wanted, given = _lines(expected), _lines(found)
    if wanted == given:
        return True
    if not tolerance or len(wanted) != len(given):
        return False
    return all(_same_words(left.split(), right.split(), tolerance) for left, right in zip(wanted, given, strict=True))


def same_value(expected: Any, tree: object, tolerance: float = 0.0) -> bool:
    """Whether a function returned what it should. `tree` is a checked tree of values.py.

    A tuple counts as a list, 2.0 as 2, and a whole-number key as its text, all of which JSON cannot tell apart; True is not 1.
    """
    if isinstance(expected, (bool, str)) or expected is None:
        return type(tree) is type(expected) and tree == expected
    if isinstance(expected, (int, float)):
        return _is_number(tree) and _near(expected, tree, tolerance)
    if isinstance(expected, (list, tuple)):
        items = tree["t"] if isinstance(tree, dict) and "t" in tree else tree
        if not isinstance(items, list) or len(items) != len(expected):
            return False
        return all(same_value(wanted, item, tolerance) for wanted, item in zip(expected, items, strict=True))
    if not isinstance(tree, dict) or "d" not in tree or len(tree["d"]) != len(expected):
        return False
    given = dict(_keyed(tree["d"]))
    return given.keys() == expected.keys() and all(same_value(expected[key], given[key], tolerance) for key in expected)


def _keyed(pairs: Iterable[Any]) -> Iterable[tuple[str, object]]:
    for key, item in pairs:
        if isinstance(key, str):
            yield key, item
        elif isinstance(key, int) and not isinstance(key, bool):
            yield str(key), item


def _lines(data: bytes) -> list[bytes]:
    lines = [line.rstrip(_BLANKS) for line in data.split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_words(wanted: list[bytes], given: list[bytes], tolerance: float) -> bool:
    return len(wanted) == len(given) and all(
        left == right or (_number(left) is not None and _near(_number(left), _number(right), tolerance))
        for left, right in zip(wanted, given, strict=True)
    )


def _number(word: bytes) -> float | None:
    return float(word) if _NUMBER.fullmatch(word) else None


def _is_number(tree: object) -> bool:
    return isinstance(tree, (int, float)) and not isinstance(tree, bool)


def _near(expected: Any, found: Any, tolerance: float) -> bool:
    if found is None:
        return False
    if expected == found:
        return True
    try:
        gap = abs(float(found) - float(expected))
    except OverflowError:
        return False
    return math.isfinite(gap) and gap <= tolerance * max(1.0, abs(float(expected)))
