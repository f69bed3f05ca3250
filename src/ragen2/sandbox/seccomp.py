"""The system calls that code in the sandbox may not make, as a filter program for the kernel.

Namespaces hide the machine; the filter closes what they leave open: new user namespaces (whose own mounts would escape the size
limit of /tmp), memory that no limit counts (memfd, System V), sockets that no network namespace holds (vsock), tracing of other
processes, and interfaces of the kernel that no program of a few lines needs.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""

# Numbers above 423 are the same on all architectures: open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, io_uring_setup,
# io_uring_enter, io_uring_register, pidfd_getfd, process_madvise, mount_setattr, memfd_secret.
_DENIED_EVERYWHERE = (428, 429, 430, 431, 432, 433, 425, 426, 427, 438, 440, 442, 447)
_CLONE3 = 435


@dataclass(frozen=True)
class _Machine:
    """A processor architecture: its audit number and its numbers of system calls."""

    architecture: int
    clone: int
    socket: int
    denied: tuple[int, ...]
    foreign_from: int | None = None
    """Numbers from here on belong to another calling convention."""


# In both lists: unshare, setns, mount, umount2, pivot_root, ptrace, process_vm_readv, process_vm_writev, memfd_create, bpf,
# perf_event_open, keyctl, add_key, request_key, userfaultfd, shmget, semget, msgget, mq_open, name_to_handle_at,
# open_by_handle_at, fanotify_init, syslog, kcmp, quotactl.
_MACHINES = {
    "x86_64": _Machine(
        architecture=0xC000003E,
        clone=56,
        socket=41,
        denied=(
            *(272, 308, 165, 166, 155, 101, 310, 311, 319, 321, 298, 250, 248, 249, 323),
            *(29, 64, 68, 240, 303, 304, 300, 103, 312, 179),
        ),
        foreign_from=0x40000000,
    ),
    "aarch64": _Machine(
        architecture=0xC00000B7,
        clone=220,
        socket=198,
        denied=(
            *(97, 268, 40, 39, 41, 117, 270, 271, 279, 280, 241, 219, 217, 218, 282),
            *(194, 190, 186, 180, 264, 265, 262, 116, 272, 60),
        ),
    ),
}


def seccomp_filter(machine: str | None = None) -> bytes | None:
    """The filter for this machine (or the named one) as bubblewrap reads it; None for an architecture that is not listed here.

    Denied calls fail with EPERM; clone3 fails with ENOSYS, because its flags cannot be read, so that the C library uses clone.
    """
    numbers = _MACHINES.get(machine or os.uname().machine)
    if numbers is None or struct.calcsize("P") != 8:
        return None
    denied, missing = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS
    steps = [(_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 1, 0, numbers.architecture), (_RETURN, 0, 0, _KILL)]
    steps.append((_LOAD, 0, 0, _NUMBER))
    if numbers.foreign_from is not None:
        steps += [(_JUMP_AT_LEAST, 0, 1, numbers.foreign_from), (_RETURN, 0, 0, denied)]
    for number in (*numbers.denied, *_DENIED_EVERYWHERE):
        steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, denied)]
    steps += [(_JUMP_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, missing)]
    for number, test, value in ((numbers.clone, _JUMP_ANY_BIT, _NEW_NAMESPACES), (numbers.socket, _JUMP_EQUAL, socket.AF_UNIX)):
        when_true, when_false = (denied, _ALLOW) if test == _JUMP_ANY_BIT else (_ALLOW, denied)
        steps += [(_JUMP_EQUAL, 0, 4, number), (_LOAD, 0, 0, _FIRST_ARGUMENT), (test, 0, 1, value)]
        steps += [(_RETURN, 0, 0, when_true), (_RETURN, 0, 0, when_false)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
