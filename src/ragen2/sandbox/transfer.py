"""Bytes out of the sandbox and into it: bounded, with a deadline, watching what its processes use."""

from __future__ import annotations

import fcntl
import os
import select
import time
from dataclasses import dataclass, field

from ragen2.sandbox.limits import SandboxLimits
from ragen2.sandbox.process import SandboxProcess
from ragen2.sandbox.result import Cause
from ragen2.sandbox.watch import tree_usage

_LOOK_SECONDS = 0.05
_READ_BYTES = 1 << 16


class Stopped(Exception):
    """The run went over a limit; `cause` says which. Never leaves the package."""

    def __init__(self, cause: Cause) -> None:
        self.cause: Cause = cause
        super().__init__(cause)


@dataclass
class Watch:
    """The clock of one run, and the look at memory and processes every 50 ms."""

    process: SandboxProcess
    limits: SandboxLimits
    deadline: float
    status: int | None = field(default=None, init=False)
    """Exit status of the order's process once it is told; negative for a signal."""
    gone: bool = field(default=False, init=False)
    """Whether the serving program ended without telling one."""
    _next_look: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._next_look = time.monotonic() + _LOOK_SECONDS

    @property
    def ended(self) -> bool:
        """Whether the order's process has ended."""
        return self.status is not None or self.gone

    def wait(self, readable: list[int], writable: list[int]) -> tuple[set[int], set[int]]:
        """Descriptors that are ready; both empty when only the process's end came. Raises Stopped at a limit."""
        while True:
            now = time.monotonic()
            if now >= self.deadline:
                raise Stopped("time")
            if now >= self._next_look:
                self._look(now)
            control = [] if self.ended else [self.process.control.fileno()]
            timeout = max(0.0, min(self.deadline, self._next_look) - now)
            poll = select.poll()
            for fd in (*readable, *control):
                poll.register(fd, select.POLLIN)
            for fd in writable:
                poll.register(fd, select.POLLOUT)
            ready = {fd for fd, _ in poll.poll(timeout * 1000)}
            if control and control[0] in ready:
                self._take_status()
                return ready & set(readable), ready & set(writable)
            if ready:
                return ready & set(readable), ready & set(writable)

    def _look(self, now: float) -> None:
        usage = tree_usage(self.process.pid)
        if usage.resident_bytes > self.limits.memory_bytes:
            raise Stopped("memory")
        # bubblewrap's two processes and the serving program are not the run's own
        if usage.tasks > self.limits.processes + 3:
            raise Stopped("processes")
        self._next_look = now + _LOOK_SECONDS

    def _take_status(self) -> None:
        try:
            told = self.process.control.recv(64)
        except OSError:
            told = b""
        try:
            self.status = int(told)
        except ValueError:
            self.gone = True


def read_streams(watch: Watch, fds: list[int], limit: int) -> tuple[list[bytes], Cause]:
    """All that comes from each descriptor until the run has ended and they are closed, at most `limit` bytes of each.

    The second value is "ok", or why reading stopped before.
    """
    found: dict[int, list[bytes]] = {fd: [] for fd in fds}
    left = dict.fromkeys(fds, limit)
    open_fds = list(fds)
    cause: Cause = "ok"
    try:
        while open_fds or not watch.ended:
            ready, _ = watch.wait(open_fds, [])
            for fd in ready:
                data = os.read(fd, min(_READ_BYTES, left[fd] + 1))
                if not data:
                    open_fds.remove(fd)
                found[fd].append(data[: left[fd]])
                if len(data) > left[fd]:
                    raise Stopped("output")
                left[fd] -= len(data)
    except Stopped as stopped:
        cause = stopped.cause
    return [b"".join(found[fd]) for fd in fds], cause


def write_frame(watch: Watch, fd: int, data: bytes) -> bool:
    """Send a message, its length first. False when the other end has closed. Raises Stopped."""
    rest = memoryview(len(data).to_bytes(4, "big") + data)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
    while rest:
        if watch.ended:
            return False
        _, ready = watch.wait([], [fd])
        try:
            rest = rest[os.write(fd, rest) :] if ready else rest
        except BrokenPipeError:
            return False
    return True


def read_frame(watch: Watch, fd: int, limit: int) -> bytes | None:
    """A message of at most `limit` bytes; None when the other end closes before its end. Raises Stopped."""
    head = _read_exactly(watch, fd, 4)
    if head is None:
        return None
    size = int.from_bytes(head, "big")
    if size > limit:
        raise Stopped("output")
    return _read_exactly(watch, fd, size)


def _read_exactly(watch: Watch, fd: int, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        ready, _ = watch.wait([fd], [])
        if not ready:
            continue
        data = os.read(fd, min(size, _READ_BYTES))
        if not data:
            return None
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
