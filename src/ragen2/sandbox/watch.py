"""What a tree of processes uses right now."""

from __future__ import annotations

import os
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """Resident bytes (pages that two processes share counted twice), and processes and threads, of a tree of processes."""

    resident_bytes: int
    tasks: int


def tree_of(root: int) -> list[int]:
    """Process ids of a process and all that descend from it, the root first. Those that end meanwhile may be missing."""
    found, at = [root], 0
    while at < len(found):
        found += _children(found[at])
        at += 1
    return found


def tree_usage(root: int) -> Usage:
    """What the process and all that descend from it use. Zero for a process that is gone."""
    resident, tasks = 0, 0
    for process in tree_of(root):
        numbers = _read(f"/proc/{process}/statm").split()
        if len(numbers) >= 2:
            resident += int(numbers[1]) * _PAGE
            tasks += len(_tasks(process))
    return Usage(resident, tasks)


def _children(process: int) -> list[int]:
    found: list[int] = []
    for task in _tasks(process):
        found += map(int, _read(f"/proc/{process}/task/{task}/children").split())
    return found


def _tasks(process: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{process}/task")
    except OSError:  # it ended
        return []


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:  # it ended
        return ""
