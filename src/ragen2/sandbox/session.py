"""A sandbox that runs several things one after the other, so that its start is paid once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from ragen2.errors import ConfigError
from ragen2.sandbox.inside import MEMORY_EXIT, TASKS_EXIT
from ragen2.sandbox.limits import SandboxLimits
from ragen2.sandbox.process import SandboxProcess, check_mode
from ragen2.sandbox.result import Cause, SandboxResult
from ragen2.sandbox.transfer import Watch, read_streams

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class Sandbox:
    """Runs programs and functions, one at a time; one that goes over a limit costs a new start, made when it is needed.

    `mode` "bubblewrap" isolates; "unsafe" does not and warns. `paths` are further files or folders to show read-only (any user
    must be able to read them); they come first in `sys.path`. Not for use by two threads at once. Starting raises
    SandboxUnavailable where there is no bubblewrap.
    """

    def __init__(
        self, limits: SandboxLimits | None = None, *, mode: str = "bubblewrap", paths: Sequence[Path | str] = ()
    ) -> None:
        self.limits = limits or SandboxLimits()
        self.mode = check_mode(mode)
        self._paths = tuple(Path(path).resolve() for path in paths)
        for path in self._paths:
            if not path.exists():
                raise ConfigError(f"sandbox path {str(path)!r} does not exist; name files and folders that do")
        self._process: SandboxProcess | None = None
        self._owner = os.getpid()

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self) -> SandboxProcess:
        """The sandbox, started where there is none. It comes up meanwhile: the first order waits for it."""
        if self._owner != os.getpid():
            # a forked copy of this object: the sandbox belongs to the process that started it
            self._process, self._owner = None, os.getpid()
        if self._process is not None and not self._process.alive:
            self.close()
        if self._process is None:
            self._process = SandboxProcess(self.limits, self.mode, self._paths)
        return self._process

    def close(self) -> None:
        """End it and everything in it. Safe to call twice; another run starts it again."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def run(self, code: str, stdin: bytes | str = b"", *, seconds: float | None = None) -> SandboxResult:
        """Run a program to its end, for `seconds` by the clock at most (default: the limit), and tell what came of it.

        Raises SandboxBroken where the sandbox itself fails.
        """
        reason = refusal(code, self.limits)
        if reason is not None:
            return SandboxResult(b"", reason.encode(), None, "refused", 0.0)
        process = self.start()
        process.wait_ready()
        started = time.monotonic()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            (out, out_theirs), (err, err_theirs) = (pipe(ours, theirs) for _ in range(2))
            given = memory_file(theirs, stdin.encode() if isinstance(stdin, str) else stdin)
            try:
                process.order("program", [given, out_theirs, err_theirs, memory_file(theirs, code.encode())])
                theirs.close()
                watch = Watch(process, self.limits, started + (seconds or self.limits.wall_seconds))
                (stdout, stderr), cause = read_streams(watch, [out, err], self.limits.output_bytes)
            except BaseException:
                self.close()
                raise
        if cause != "ok" or watch.gone:
            self.close()
        status, cause = outcome(watch, cause)
        return SandboxResult(stdout, stderr, status, cause, time.monotonic() - started)


def refusal(code: str, limits: SandboxLimits) -> str | None:
    """Why this text is not run at all; None when it is."""
    if "\x00" in code:
        return "refused: the program holds a null byte"
    if len(code) > limits.code_bytes:
        return f"refused: the program has {len(code)} characters, more than {limits.code_bytes}"
    try:
        size = len(code.encode())
    except UnicodeEncodeError:
        return "refused: the program is not Unicode text"
    return None if size <= limits.code_bytes else f"refused: the program has {size} bytes, more than {limits.code_bytes}"


def outcome(watch: Watch, cause: Cause) -> tuple[int | None, Cause]:
    """(exit status, cause) of a run that has been read to its end."""
    status = watch.status
    if cause != "ok" or status is None:
        return None, cause if cause != "ok" else "killed"
    if status < 0:
        return None, "time" if status == -signal.SIGXCPU else "killed"
    causes: dict[int, Cause] = {MEMORY_EXIT: "memory", TASKS_EXIT: "processes"}
    return status, causes.get(status, "ok")


def pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends close with these stacks."""
    read_end, write_end = os.pipe()
    reader.callback(os.close, read_end)
    writer.callback(os.close, write_end)
    return read_end, write_end


def memory_file(owner: contextlib.ExitStack, data: bytes) -> int:
    """A file in memory that holds `data`, cannot be changed any more, and closes with the stack."""
    fd = os.memfd_create("ragen2-input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    owner.callback(os.close, fd)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


@contextlib.contextmanager
def null_file() -> Iterator[int]:
    """A descriptor of /dev/null for reading and writing."""
    fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
