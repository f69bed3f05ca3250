"""The process of a sandbox: started, given orders, ended with all that it left running."""

from __future__ import annotations

import array
import contextlib
import functools
import json
import marshal
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen2.errors import SandboxBroken, UnknownName
from ragen2.sandbox.bubblewrap import cannot_start, environment, find_bubblewrap, next_user, python_command, sandbox_command
from ragen2.sandbox.limits import SandboxLimits
from ragen2.sandbox.seccomp import seccomp_filter
from ragen2.sandbox.watch import tree_of

MODES = ("bubblewrap", "unsafe")

START_SECONDS = 30.0
"""Longest wait for a sandbox to be ready, or to be gone."""

_BOOT = (
    "import marshal,os,sys;fd=int(sys.argv[1]);parts=marshal.loads(os.read(fd,1<<20));space={'__builtins__':__builtins__};"
    "exec(parts['inside'],space);job=space['serve'](fd,parts);job and job()"
)


class UnsafeSandbox(UserWarning):
    """Code of a model runs without protection."""


def check_mode(mode: str) -> str:
    """`mode` itself. Raises UnknownName unless it is "bubblewrap" or "unsafe"."""
    if mode not in MODES:
        raise UnknownName("sandbox", str(mode), MODES)
    return mode


class SandboxProcess:
    """A sandbox on its way up or waiting for orders. Raises SandboxUnavailable where none can be started."""

    def __init__(self, limits: SandboxLimits, mode: str, paths: Sequence[Path]) -> None:
        self._limits, self._paths, self._isolated = limits, tuple(paths), check_mode(mode) != "unsafe"
        self._folder: str | None = None
        self._info: int | None = None
        self._child: int | None = None
        self._ready = False
        self._closed = False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.complaints_fd = os.memfd_create("ragen2-sandbox-stderr")
        try:
            with theirs:
                self._process = self._start(theirs) if self._isolated else self._start_unsafe(theirs)
        except BaseException:
            self.control.close()
            os.close(self.complaints_fd)
            raise

    @property
    def pid(self) -> int:
        """Process id of the root of the sandbox's processes."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs: it also ends with the thread that started it."""
        return not self._closed and self._process.poll() is None

    def order(self, kind: str, fds: Sequence[int], **details: Any) -> None:
        """Let the sandbox fork a process that gets the descriptors as 0, 1, …. Raises SandboxBroken when it is gone."""
        self.wait_ready()
        order = {"kind": kind, "limits": self._resource_limits, **details}
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            self.control.sendmsg([marshal.dumps(order)], rights)
        except OSError as error:
            raise SandboxBroken(f"the sandbox is gone: {error}; {self.complaint()}") from error

    def wait_ready(self) -> None:
        """Wait until it serves. Raises SandboxUnavailable where it does not come up."""
        if self._ready:
            return
        settings = {"uid": self._user, "paths": [str(path) for path in self._paths], "isolated": self._isolated, "fd_end": 4096}
        self.control.settimeout(START_SECONDS)
        try:
            self._learn_child()
            self.control.send(_parts())
            self.control.send(marshal.dumps(settings))
            ready = self.control.recv(64)
        except (OSError, ValueError, KeyError) as error:
            raise cannot_start(self.complaint() or str(error)) from error
        if ready != b"ready":
            raise cannot_start(self.complaint())
        self._ready = True

    def close(self) -> None:
        """End the sandbox and every process in it, and wait until they are gone. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError, ValueError, KeyError):  # it may never have come up
            self._learn_child()
        self.control.close()
        self._kill()
        os.close(self.complaints_fd)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _learn_child(self) -> None:
        """Take hold of the first process inside, whose number bubblewrap tells once."""
        if self._info is not None:
            with open(self._info, "rb") as file:
                self._info = None
                told = file.read(4096) if select.select([file], [], [], START_SECONDS)[0] else b""
            self._child = os.pidfd_open(json.loads(told)["child-pid"])

    def _kill(self) -> None:
        if self._child is not None:
            # With the first process of a namespace the kernel ends all others, and it is gone only after them.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._child, signal.SIGKILL)
            select.select([self._child], [], [], START_SECONDS)
            os.close(self._child)
        else:
            for member in reversed(tree_of(self._process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        bubblewrap = find_bubblewrap()
        self._user = next_user() if bubblewrap.as_root else None
        self._own_tasks = _own_tasks(bubblewrap.as_root)
        self._info, info_theirs = os.pipe()
        program = seccomp_filter()
        passed = [theirs.fileno(), info_theirs, *([] if program is None else [_memory_file(program)])]
        filter_fd = None if program is None else passed[2]
        try:
            command = sandbox_command(bubblewrap, self._limits, self._paths, info_fd=info_theirs, filter_fd=filter_fd)
            return self._spawn([*command, *python_command(_BOOT), str(theirs.fileno())], passed, "/")
        except BaseException:
            os.close(self._info)
            raise
        finally:
            for fd in passed[1:]:
                os.close(fd)

    def _start_unsafe(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        warnings.warn(
            "sandbox='unsafe': code of a model runs as a plain process of this user, with its files and its network",
            UnsafeSandbox,
            stacklevel=4,
        )
        self._user, self._own_tasks = None, None
        self._folder = tempfile.mkdtemp(prefix="ragen2-unsafe-")
        return self._spawn([*python_command(_BOOT), str(theirs.fileno())], [theirs.fileno()], self._folder)

    def _spawn(self, command: Sequence[str], passed: Sequence[int], folder: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.complaints_fd,
            cwd=folder,
            env=environment(),
            start_new_session=True,
        )

    @property
    def _resource_limits(self) -> list[tuple[str, int, int]]:
        limits = self._limits
        found = [
            ("RLIMIT_CORE", 0, 0),
            # At the soft limit the process can still be told; the hard one kills.
            ("RLIMIT_CPU", limits.cpu_seconds, limits.cpu_seconds + 1),
            ("RLIMIT_AS", limits.memory_bytes, limits.memory_bytes),
            ("RLIMIT_FSIZE", limits.file_bytes, limits.file_bytes),
            ("RLIMIT_NOFILE", limits.open_files, limits.open_files),
            ("RLIMIT_MEMLOCK", 0, 0),
            ("RLIMIT_MSGQUEUE", 0, 0),
        ]
        if self._own_tasks is not None:
            tasks = limits.processes + self._own_tasks
            found.append(("RLIMIT_NPROC", tasks, tasks))
        return found

    def complaint(self) -> str:
        """What bubblewrap and the trusted programs inside wrote to standard error."""
        return os.pread(self.complaints_fd, 2000, 0).decode(errors="replace").strip()


def _own_tasks(as_root: bool) -> int | None:
    """How many processes of the sandbox's own count for the limit on processes; None where that limit cannot be used.

    The serving program counts, and as an ordinary user so does bubblewrap's process inside. Before Linux 5.14 everything that an
    ordinary user runs counts, so there only the watch holds.
    """
    if as_root:
        return 1
    major, minor = (int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    return 2 if (major, minor) >= (5, 14) else None


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("ragen2-sandbox")
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@functools.cache
def _parts() -> bytes:
    """The compiled programs that run inside. The interpreter there is this one, so it reads what this one writes."""
    folder = Path(__file__).parent
    parts: Mapping[str, Any] = {
        name: compile((folder / f"{name}.py").read_text(), f"{name}.py", "exec", optimize=2) for name in ("inside", "values")
    }
    return marshal.dumps(parts)
