"""A Python child process that answers JSON lines and can be ended: what it runs may hang it, never the training."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen2.errors import EnvironmentFault

START_SECONDS, WALL_SECONDS = 180.0, 120.0
"""Longest wait for the child to start, and for an answer, by the clock: beyond these the machinery is broken, not the answer."""

_LONGEST_REPLY = 1 << 24


class TookTooLong(EnvironmentFault):
    """A request that needed more processor time than a request may have."""


class JsonChild:
    """Runs the program at `path` with PYTHONHASHSEED=0, one request at a time: started on the first, and again after it ended.

    The program gets `seconds`, the processor time of a request, as its argument, writes a line when it is ready, then reads a
    JSON object a line and writes one. It ends itself by SIGPROF when a request takes longer. A forked copy starts its own child.
    """

    def __init__(self, path: Path, seconds: float, what: str, wall_seconds: float = WALL_SECONDS) -> None:
        self.path, self.seconds, self.what, self.wall_seconds = path, seconds, what, wall_seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request. Raises TookTooLong, and EnvironmentFault when the child fails for another reason."""
        if self._owner != os.getpid():
            self._child, self._lock, self._owner = None, threading.Lock(), os.getpid()
        with self._lock:
            child = self._started()
            try:
                line = _exchange(child, json.dumps(request).encode() + b"\n", self.wall_seconds)
            except OSError as error:
                self._end()
                raise EnvironmentFault(f"{self.what} broke off: {error}; the episode is invalid") from error
            if line is None:
                raise self._why_silent(child)
            return self._read(line)

    def close(self) -> None:
        """End the child. Safe to call twice, and in a forked process, which leaves its parent's child alone."""
        if os.getpid() == self._owner:
            self._end()

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            self._end()
            raise EnvironmentFault(f"{self.what} said {line[:80]!r}, which is no reply; the episode is invalid")
        return reply

    def _why_silent(self, child: subprocess.Popen[bytes]) -> EnvironmentFault:
        with contextlib.suppress(subprocess.TimeoutExpired):
            # a moment passes between its pipe's end and its own
            child.wait(timeout=0.5)
        status = child.poll()
        self._end()
        if status == -signal.SIGPROF:
            return TookTooLong(f"{self.what} needed more than {self.seconds:g} s of processor time")
        ending = f"gave no answer in {self.wall_seconds:g} s" if status is None else f"ended with status {status}"
        return EnvironmentFault(f"{self.what} {ending}; the episode is invalid")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is not None and self._child.poll() is None:
            return self._child
        self._end()
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-B", str(self.path), str(self.seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
            ready = _exchange(self._child, b"", START_SECONDS)
        except OSError as error:
            self._end()
            raise EnvironmentFault(f"{self.what} does not start: {error}") from error
        if ready is None:
            self._end()
            raise EnvironmentFault(f"{self.what} ended or was not ready within {START_SECONDS:g} s; is its package whole?")
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def _exchange(child: subprocess.Popen[bytes], question: bytes, seconds: float) -> bytes | None:
    """Write the question, read one line: None when the child ended, said nothing in time or too much."""
    if child.stdin is None or child.stdout is None:
        raise EnvironmentFault("a child process was started without pipes")
    child.stdin.write(question)
    child.stdin.flush()
    deadline, pieces, length = time.monotonic() + seconds, [], 0
    while not pieces or not pieces[-1].endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
            return None
        pieces.append(os.read(child.stdout.fileno(), 1 << 16))
        length += len(pieces[-1])
        if not pieces[-1] or length > _LONGEST_REPLY:
            return None
    return b"".join(pieces)
