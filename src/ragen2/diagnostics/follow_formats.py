"""How the log at a path is followed, by its kind."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ragen2.diagnostics.follow_collectors import ConsoleCollector, MetricsCollector
from ragen2.diagnostics.follow_sources import LineSource, SnapshotSource, Source
from ragen2.diagnostics.readers.folder import log_of_folder
from ragen2.diagnostics.readers.place import beginning, refuse_what_is_no_text
from ragen2.diagnostics.readers.recognise import recognise
from ragen2.errors import StorageError

BY_LINE = {"ragen2": MetricsCollector, "verl console": ConsoleCollector}


class CannotFollow(StorageError):
    """What stands at the path will never become a log that can be followed."""


def open_source(path: Path, mapping: Mapping[str, str] | None) -> Source:
    """The source for the log at `path`, a file or a folder that holds one.

    Raises StorageError where there is no record to recognise it by yet, CannotFollow where waiting will not help.
    """
    if not path.exists():
        raise StorageError(f"{path} is not there yet")
    if path.is_dir():
        kind, files, _ = log_of_folder(path)
    else:
        kind, files = _kind(path), [path]
    if kind == "rollouts":
        raise CannotFollow(f"{path} holds rollouts, and --follow reads logs. Leave --follow out to measure what is there.")
    if kind in BY_LINE:
        return LineSource(files[0], partial(BY_LINE[kind], mapping))
    return SnapshotSource(path, mapping)


def _kind(path: Path) -> str:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise CannotFollow(f"{path} is no regular file and cannot be followed. Write its content to a file: … | tee train.log")
    try:
        return recognise(path)
    except StorageError as error:
        start = beginning(path)
        try:
            refuse_what_is_no_text(path, start)
        except StorageError as refusal:
            raise CannotFollow(str(refusal)) from error
        raise StorageError(f"{path} holds no record yet that tells what kind of log it is") from error
