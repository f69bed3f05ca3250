"""Trusted test code, run in a sandbox of its own on a function that lives in another.

The tests call the function by values, so the code under test never shares an interpreter with them and cannot see what they
expect: it learns the arguments of one call at a time.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import marshal
import time
from dataclasses import dataclass

from ragen2.errors import SandboxBroken
from ragen2.sandbox.function import SandboxFunction
from ragen2.sandbox.result import Cause
from ragen2.sandbox.session import Sandbox, memory_file, null_file, pipe
from ragen2.sandbox.transfer import Stopped, Watch, read_frame, write_frame
from ragen2.sandbox.values import read_tree, write_tree

_TESTER_ANSWER_BYTES = 1 << 24


@dataclass(frozen=True)
class CheckScript:
    """Test code: `check` defines `check(candidate)`, made of asserts; `setup` runs before it and defines the helpers it uses.

    With `reference`, setup also defines a right function `name`, and the number of tests is what that one passes.
    """

    name: str
    setup: str
    check: str
    reference: bool = True


@dataclass(frozen=True)
class CheckOutcome:
    """How many tests held, of how many; the cause of the first that did not, and its error.

    `counted` is the number of tests that the reference passed, None where there is none or the tests did not end.
    """

    passed: int
    total: int
    cause: Cause = "ok"
    error: str = ""
    counted: int | None = None


def run_check(tester: Sandbox, function: SandboxFunction, script: CheckScript, total: int | None = None) -> CheckOutcome:
    """Count the tests that hold. `total` is their number where an earlier run told it.

    The tester stays up afterwards, for the next tests, unless something went wrong. One that goes over its time because of what
    the function returned counts as failed. Raises SandboxBroken where the tester fails by itself, or the reference fails its own
    tests.
    """
    process = tester.start()
    content = marshal.dumps({"setup": script.setup, "check": counted(script.check), "total": total if script.reference else 0})
    with contextlib.ExitStack() as ours:
        with contextlib.ExitStack() as theirs:
            reply, reply_theirs = pipe(ours, theirs)
            request_theirs, request = pipe(theirs, ours)
            null = theirs.enter_context(null_file())
            fds = [null, null, process.complaints_fd, memory_file(theirs, content), request_theirs, reply_theirs]
            process.order("check", fds, name=script.name)
        watch = Watch(process, tester.limits, time.monotonic() + tester.limits.wall_seconds)
        try:
            outcome = _relay(watch, request, reply, function, total)
            while not watch.ended:
                watch.wait([], [])
            return outcome
        except Stopped as stopped:
            tester.close()
            return CheckOutcome(0, max(1, total or 1), stopped.cause, f"the tests went over the limit: {stopped.cause}")
        except BaseException:
            tester.close()
            raise


def _relay(watch: Watch, request: int, reply: int, function: SandboxFunction, total: int | None) -> CheckOutcome:
    """Carry calls from the tests to the function and its answers back, until the tests tell their verdict."""
    cause, error = "ok", ""
    while True:
        frame = read_frame(watch, reply, _TESTER_ANSWER_BYTES)
        if frame is None:
            raise SandboxBroken(f"the tests ended without a verdict: {watch.process.complaint()[-500:]}")
        message = read_tree(frame)
        if not isinstance(message, list):
            raise SandboxBroken("the tests sent what is no message")
        if message[0] == "verdict":
            _, passed, failed, counted_total, why = message
            if counted_total == -1:
                raise SandboxBroken("the reference solution fails its own tests; the problem is broken")
            if passed + failed + counted_total == 0:
                raise SandboxBroken("the tests hold no assert; the problem is broken")
            return CheckOutcome(passed, max(passed + failed, counted_total), cause, error or why, counted_total or None)
        answer = function.call_trees(message[1], message[2])
        if answer.error is not None and not error:
            cause, error = answer.cause, answer.error
        text = ["value", answer.tree] if answer.error is None else ["error", answer.error]
        if not write_frame(watch, request, write_tree(text)):
            raise SandboxBroken("the tests ended before their verdict")


@functools.lru_cache(maxsize=1024)
def counted(check: str) -> str:
    """The test code with every assert counted, held or not, instead of ending the tests. Asserts of a constant are left out."""
    tree = ast.parse(check)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "check":
            node.body = [_Counting().visit(statement) for statement in node.body]
    return ast.unparse(ast.fix_missing_locations(tree))


class _Counting(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        if isinstance(node.test, ast.Constant):
            return ast.Pass()
        held, failed = (ast.parse(f"_hold({kind!r})").body for kind in ("passed", "failed"))
        catch = ast.ExceptHandler(type=ast.Name("Exception", ast.Load()), name=None, body=failed)
        return ast.Try(body=[ast.Assert(test=node.test)], handlers=[catch], orelse=held, finalbody=[])
