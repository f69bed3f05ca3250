"""Reads what was added to a growing text file since the last time, across half lines, truncation and rotation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ragen2.errors import StorageError

CHUNK = 1 << 20
LONGEST_LINE = 8 << 20
"""Bytes. Console logs print whole configurations on a line, but no record is this long."""
ANCHOR = 256
"""Bytes before the reading position that must still be there: else the file was written anew behind our back."""


class LogTail:
    """Whole lines of a file as they are written.

    A line is given once its line end is there; what stands after the last line end waits for the next `read`. When the file
    shrinks, is replaced by another of the same name or no longer holds what was read last, reading starts again at its
    beginning and `restarts` counts up. What was added to a replaced file before it was replaced is still read. Lines longer than
    LONGEST_LINE are left out and counted in `too_long`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.restarts = 0
        self.too_long = 0
        self._file: BinaryIO | None = None
        self._offset = 0
        self._anchor = b""
        self._rest = b""
        self._skipping = False

    @property
    def rest(self) -> bytes:
        """The last line so far, its end not yet written."""
        return self._rest

    def close(self) -> None:
        """Let go of the file. A later `read` opens it anew and goes on where this one stopped."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self) -> Iterator[bytes]:
        """Whole lines added since the last call, without their ends; nothing while there is no file.

        Raises StorageError when the file is there and cannot be read.
        """
        try:
            yield from self._read()
        except FileNotFoundError:
            # Between two files of a rotation, or before the first: it may come.
            self.close()
        except OSError as error:
            self.close()
            raise StorageError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _read(self) -> Iterator[bytes]:
        if self._file is None:
            self._file = open(self.path, "rb")  # noqa: SIM115  (open from one look to the next)
        if not self._still_there(self._file):
            self._start_again()
        yield from self._lines(self._file)
        on_disk, opened = os.stat(self.path), os.fstat(self._file.fileno())
        if (on_disk.st_dev, on_disk.st_ino) != (opened.st_dev, opened.st_ino):
            self.close()
            self._start_again()
            self._file = open(self.path, "rb")  # noqa: SIM115
            yield from self._lines(self._file)

    def _still_there(self, file: BinaryIO) -> bool:
        if os.fstat(file.fileno()).st_size < self._offset:
            return False
        file.seek(self._offset - len(self._anchor))
        return file.read(len(self._anchor)) == self._anchor

    def _start_again(self) -> None:
        self._offset, self._anchor, self._rest, self._skipping = 0, b"", b"", False
        self.restarts += 1

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        file.seek(self._offset)
        while chunk := file.read(CHUNK):
            self._offset += len(chunk)
            self._anchor = (self._anchor + chunk)[-ANCHOR:]
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            for line in whole:
                if self._skipping:
                    self._skipping = False
                    continue
                yield line
            if len(self._rest) > LONGEST_LINE:
                self.too_long += not self._skipping
                self._rest, self._skipping = b"", True
