"""Compares formulas with math-verify in a child process that can be ended: a formula may hang it, never the training."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ragen2.errors import EnvironmentFault, MissingDependency

SECONDS = 3.0
"""Processor time of one comparison. Beyond it the formulas count as different. Processor time, so that a busy machine gives the
same verdicts."""

START_SECONDS, WALL_SECONDS = 180.0, 60.0
"""Longest wait for the child to start, and for an answer, by the clock: beyond these the machinery is broken, not the answer."""

_CHILD = Path(__file__).with_name("math_child.py")
_LONGEST_REPLY = 1 << 16


def require_math_verify() -> None:
    """Raises MissingDependency where math-verify is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise MissingDependency("math-verify", "math", "comparing formulas in environment 'metamathqa'")


@functools.lru_cache(maxsize=100_000)
def same_formula(given: str, wanted: str) -> bool:
    """Whether math-verify takes two formulas (LaTeX) for equal; False when it needs more than SECONDS.

    Raises MissingDependency, and EnvironmentFault when the child does not start, dies or does not answer.
    """
    require_math_verify()
    return _checker(os.getpid()).ask(given, wanted)


@functools.lru_cache(maxsize=1)
def _checker(process: int) -> FormulaChecker:
    """The checker of this process: a forked one must not share its parent's pipes."""
    checker = FormulaChecker()
    atexit.register(checker.close)
    return checker


class FormulaChecker:
    """A child process that compares formulas, one at a time: started on the first question, and again after it was ended."""

    def __init__(self, seconds: float = SECONDS, wall_seconds: float = WALL_SECONDS) -> None:
        self.seconds, self.wall_seconds = seconds, wall_seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def ask(self, given: str, wanted: str) -> bool:
        """Whether the formulas are equal. Raises EnvironmentFault when the child fails for any reason but its time limit."""
        with self._lock:
            child = self._started()
            question = json.dumps({"given": given, "wanted": wanted}) + "\n"
            try:
                reply = self._exchange(child, question.encode(), self.wall_seconds)
            except OSError as error:
                self._end()
                raise EnvironmentFault(f"the formula checker broke off: {error}; the episode is invalid") from error
            if reply is None:
                return self._why_silent(child)
            equal = reply.get("equal")
            if not isinstance(equal, bool):
                self._end()
                raise EnvironmentFault(f"the formula checker said {str(reply)[:80]}, which is no verdict; the episode is invalid")
            return equal

    def close(self) -> None:
        """End the child. Safe to call twice, and in a forked process, which leaves its parent's child alone."""
        if os.getpid() == self._owner:
            self._end()

    def _why_silent(self, child: subprocess.Popen[bytes]) -> bool:
        """False where the time limit ended the child; else EnvironmentFault."""
        still_runs = not _ends_soon(child)
        self._end()
        if not still_runs and child.returncode == -signal.SIGPROF:
            return False
        what = f"gave no answer in {self.wall_seconds:g} s" if still_runs else f"ended with status {child.returncode}"
        raise EnvironmentFault(f"the formula checker {what}; the episode is invalid")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._end()
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-B", str(_CHILD), str(self.seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
            ready = self._exchange(self._child, b"", START_SECONDS)
        except OSError as error:
            self._end()
            raise EnvironmentFault(f"the formula checker does not start: {error}") from error
        if ready is None or not ready.get("ready"):
            self._end()
            raise EnvironmentFault(
                f"the formula checker did not start within {START_SECONDS:g} s or ended; is math-verify whole?"
            )
        return self._child

    def _exchange(self, child: subprocess.Popen[bytes], question: bytes, seconds: float) -> dict[str, object] | None:
        """Write the question, read one line: None when the child ended or said nothing in time, {} for no JSON object."""
        if child.stdin is None or child.stdout is None:
            raise EnvironmentFault("the formula checker was started without pipes")
        if question:
            child.stdin.write(question)
            child.stdin.flush()
        deadline, read = time.monotonic() + seconds, b""
        while not read.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                return None
            piece = os.read(child.stdout.fileno(), 4096)
            read += piece
            if not piece or len(read) > _LONGEST_REPLY:
                return None
        try:
            reply = json.loads(read)
        except ValueError:
            return {}
        return reply if isinstance(reply, dict) else {}

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


def _ends_soon(child: subprocess.Popen[bytes]) -> bool:
    """Whether the child has ended, which takes a moment after it closed its pipe."""
    try:
        child.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        return False
    return True
