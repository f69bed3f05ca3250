"""Folders that are built once and kept (models, search indexes): written whole, safe against a second builder."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ragen2.errors import StorageError


def cache_folder() -> Path:
    """Where built folders are kept: $RAGEN2_CACHE, else $XDG_CACHE_HOME/ragen2, else ~/.cache/ragen2."""
    chosen = os.environ.get("RAGEN2_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "ragen2"


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """`folder`, made by `build` when it does not exist yet.

    `build` writes into a temporary neighbour that is renamed when whole, and removed when `build` raises (Ctrl-C too). A second
    process waits for the first instead of building as well; where the system has no file locks both build and one wins.
    Raises StorageError when the folder cannot be written.
    """
    if folder.is_dir():
        return folder
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock")):
            if folder.is_dir():
                return folder
            try:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
                build(temporary)
                _rename(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"cannot write the folder {folder}: {error.strerror or error}. Free some space or set RAGEN2_CACHE."
        ) from error
    return folder


def _rename(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError:
        # Another builder without a lock was first; its folder is as good.
        if not folder.is_dir():
            raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` (released by the system even when the process dies)."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
