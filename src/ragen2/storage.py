"""Files written whole: temporary name in the same folder, flushed to disk, then renamed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ragen2.errors import StorageError


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` so that a reader sees the old file or the new one, never a part. Raises StorageError, as on a full disk."""

    def put(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    replace_whole(path, put)


def replace_whole(path: Path, put: Callable[[Path], None]) -> None:
    """Let `put` write a temporary neighbour of `path`, then rename it. The temporary file goes when `put` fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(temporary)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}. Free some space or choose another folder."
        ) from error
