"""Lines of a text file one at a time, in bounded memory, and a tally of what was passed over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ragen2.errors import StorageError

LONGEST_LINE = 8 << 20
"""Bytes. Wide tables have headers of a megabyte; no record of a log is longer than this."""
BOM = b"\xef\xbb\xbf"


class Skipped:
    """Counts what was passed over or cut, by reason, and remembers where each was met first: in which line, or other `unit`."""

    def __init__(self, unit: str = "line") -> None:
        self.unit = unit
        self._counts: dict[str, int] = {}
        self._first: dict[str, int] = {}

    def add(self, reason: str, line: int) -> None:
        """Count one; `line` is the number of its line."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        self._first.setdefault(reason, line)

    def __len__(self) -> int:
        return sum(self._counts.values())

    def notes(self) -> list[str]:
        """A sentence a reason."""
        return [
            f"skipped: {reason} ({f'{count} times, first ' if count > 1 else ''}in {self.unit} {self._first[reason]})"
            for reason, count in self._counts.items()
        ]


def text_lines(path: Path, skipped: Skipped, longest: int = LONGEST_LINE) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line without its end) of a file. A line longer than `longest` bytes is cut there and counted.

    Raises StorageError when the file cannot be read.
    """
    number = 0
    try:
        with open(path, "rb") as file:
            while line := file.readline(longest + 1):
                number += 1
                if number == 1:
                    line = line.removeprefix(BOM)
                if len(line) > longest and not line.endswith(b"\n"):
                    skipped.add(f"what stands beyond {longest >> 20} MiB of a line", number)
                    yield number, line[:longest]
                    while line and not line.endswith(b"\n"):
                        line = file.readline(1 << 20)
                    continue
                yield number, line.rstrip(b"\r\n")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error


def ends_whole(path: Path) -> bool:
    """Whether a file ends with a line end. Raises StorageError when it cannot be read or is empty."""
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
