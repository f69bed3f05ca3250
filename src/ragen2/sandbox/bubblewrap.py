"""How bubblewrap is called, and whether it works on this machine."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen2.errors import SandboxUnavailable
from ragen2.sandbox.limits import SandboxLimits
from ragen2.sandbox.python_files import PYTHON_OPTIONS, python_files

_OLDEST = (0, 5)
_SIZED_TMP = (0, 7)
"""From this version on, the size of a tmpfs can be given; before it, nothing in the sandbox can be written."""

INSTALL = (
    "Install it: apt-get install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora, RHEL), "
    "apk add bubblewrap (Alpine), pacman -S bubblewrap (Arch), zypper install bubblewrap (openSUSE)."
)
_ALLOW = (
    "As an ordinary user it needs user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Debian before 11), "
    "sysctl kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile for bwrap (Ubuntu 24.04). "
    "In Docker: docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined."
)
UNSAFE = (
    "Code of a model must not run unprotected on a machine that matters; on a throw-away one, "
    'sandbox="unsafe" runs it as a plain process under resource limits only.'
)


@dataclass(frozen=True)
class Bubblewrap:
    """The program, its version, and whether this process is root and so keeps its user namespace and changes user inside."""

    program: str
    version: tuple[int, ...]
    as_root: bool


@functools.cache
def find_bubblewrap() -> Bubblewrap:
    """The program on the path. Raises SandboxUnavailable where it is missing or too old; starts nothing in it yet."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxUnavailable(f"running a model's code needs bubblewrap, and there is no program 'bwrap'. {INSTALL} {UNSAFE}")
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailable(f"{program} --version failed: {error}. {INSTALL} {UNSAFE}") from error
    found = re.search(r"(\d{1,4})\.(\d{1,4})", told)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < _OLDEST:
        raise SandboxUnavailable(f"{program} is {told.strip()!r}; version 0.5 or later is needed. {INSTALL} {UNSAFE}")
    return Bubblewrap(program, version, os.geteuid() == 0)


def cannot_start(reason: str) -> SandboxUnavailable:
    """The error for a bubblewrap that is there and does not start."""
    return SandboxUnavailable(f"bubblewrap does not work here: {reason.strip()[:500] or 'it ended at once'}. {_ALLOW} {UNSAFE}")


def sandbox_command(
    bubblewrap: Bubblewrap, limits: SandboxLimits, paths: Sequence[Path], *, info_fd: int, filter_fd: int | None
) -> list[str]:
    """The command line up to the interpreter's own options: everything unshared, only what Python needs shown, read-only.

    `paths` are further files or folders to show. bubblewrap writes its child's process id to `info_fd` and reads the system call
    filter from `filter_fd`.
    """
    files = python_files()
    spaces = ("pid", "net", "ipc", "uts", "cgroup-try")
    command = [bubblewrap.program, *(f"--unshare-{space}" for space in spaces)]
    if bubblewrap.as_root:
        # Without a user namespace, so that the process can become a user of its own: the limit on processes does not bind root.
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user"]
    command += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    for name, value in environment().items():
        command += ["--setenv", name, value]
    command += _open_parents([*files.folders, files.executable])
    for folder in files.folders:
        command += ["--ro-bind", folder, folder]
    command += ["--ro-bind", files.executable, files.executable]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for target, place in files.links:
        command += ["--symlink", target, place]
    for folder in files.hide:
        command += ["--tmpfs", folder]
    command += ["--dev", "/dev", "--remount-ro", "/dev"]
    if bubblewrap.version >= _SIZED_TMP:
        command += ["--perms", "1777", "--size", str(limits.file_bytes), "--tmpfs", "/tmp"]
    else:
        command += ["--dir", "/tmp"]
    command += _open_parents([str(path) for path in paths])
    for path in paths:
        command += ["--ro-bind", str(path), str(path)]
    for folder in (*files.hide, "/"):
        command += ["--remount-ro", folder]
    command += ["--chdir", "/tmp", "--info-fd", str(info_fd)]
    return command + (["--seccomp", str(filter_fd)] if filter_fd is not None else [])


def _open_parents(places: Sequence[str]) -> list[str]:
    """Options that make the folders on the way to these places, open to any user: bubblewrap's own are not."""
    folders = {str(parent) for place in places for parent in Path(place).parents} - {"/"}
    return [option for folder in sorted(folders) for option in ("--dir", folder)]


def environment() -> dict[str, str]:
    """All environment variables of code in the sandbox."""
    return {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "HOME": "/tmp", "PATH": ""}


def python_command(program: str) -> list[str]:
    """The interpreter with a program given as text."""
    return [python_files().executable, *PYTHON_OPTIONS, "-c", program]


_numbers = itertools.count(int.from_bytes(os.urandom(6), "big"))


def next_user() -> int:
    """A user id for one sandbox: far from real ones, another each time, so that two sandboxes never share a process count."""
    first, end = _free_users()
    return first + next(_numbers) % (end - first)


@functools.cache
def _free_users() -> tuple[int, int]:
    """Range of user ids that this user namespace maps and that no account of its own is likely to have."""
    highest = 0
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        inside, _, count = (int(part) for part in line.split())
        highest = max(highest, inside + count)
    if highest < 4:
        raise cannot_start(f"only {highest} user ids are mapped in this container, and the sandbox needs one of its own")
    if highest > 1 << 31:
        return 1 << 30, (1 << 31) - 2
    return highest // 2, highest - 2
