"""Whether a path can be read as a log at all: what is no file, no text or packed is refused with the reason."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ragen2.errors import StorageError

READABLE = (
    "It reads run directories of this package, verl and RAGEN console logs and their CSV tables, TRL trainer_state.json, logs "
    "with a dict a line, W&B CSV exports and TensorBoard event files"
)

PACKED = {
    b"\x1f\x8b": ("gzip", "gunzip -c {0} > train.log"),
    b"BZh": ("bzip2", "bunzip2 -c {0} > train.log"),
    b"\xfd7zXZ\x00": ("xz", "xz -dc {0} > train.log"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc {0} > train.log"),
    b"PK\x03\x04": ("zip", "unzip {0}"),
}
"""First bytes of packed files -> what they are called, how to unpack them."""

CONTROL = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n\r\x0b\x0c\x1b")
MOST_CONTROL = 0.05
"""Share of control characters that a text may have: crashes leave some in logs, a tenth of random bytes are such."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")

KINDS_OF_FILE = (
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def existing(path: str | Path) -> tuple[Path, bool]:
    """The path, and whether it is a directory. Raises StorageError for what is neither a regular file nor a directory."""
    place = Path(path)
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError as error:
        raise StorageError(f"{path} does not exist. Give a log file or a folder that holds one.") from error
    except (OSError, ValueError) as error:
        raise StorageError(f"cannot read {str(path)!r}: {_reason(error)}") from error
    if stat.S_ISDIR(mode):
        return place, True
    if not stat.S_ISREG(mode):
        kind = next((words for test, words in KINDS_OF_FILE if test(mode)), "no regular file")
        raise StorageError(f"{path} is {kind}; only regular files are read. Write its content to a file first.")
    return place, False


def beginning(path: Path, length: int = 65536) -> bytes:
    """First bytes of a regular file. Raises StorageError when it cannot be read or is empty."""
    try:
        with open(path, "rb") as file:
            start = file.read(length)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {_reason(error)}") from error
    if not start:
        raise StorageError(f"{path} is empty: nothing was logged yet.")
    return start


def refuse_what_is_no_text(path: Path, start: bytes) -> None:
    """Raise StorageError for packed files, UTF-16 and other binary content."""
    for magic, (name, command) in PACKED.items():
        if start.startswith(magic):
            raise StorageError(f"{path} is packed ({name}) and is not read as it is. Unpack it: {command.format(path)}")
    if start.startswith(UTF16) and b"\x00" in start:
        raise StorageError(f"{path} is UTF-16 text. Convert it: iconv -f UTF-16 -t UTF-8 {path} > train.log")
    if len(start.translate(None, CONTROL)) < (1 - MOST_CONTROL) * len(start):
        raise StorageError(f"{path} is a binary file, not a log this version reads. {READABLE}.")


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error)
