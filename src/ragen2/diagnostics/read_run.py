"""Reads the series of a run directory of ours, or of its metrics.jsonl."""

from __future__ import annotations

from pathlib import Path

from ragen2.diagnostics.readers.folder import METRICS_FILE as FILE_NAME
from ragen2.diagnostics.readers.place import existing
from ragen2.diagnostics.readers.ragen2_metrics import read_metrics_file
from ragen2.diagnostics.readers.run_series import RunSeries

__all__ = ["FILE_NAME", "RunSeries", "read_run"]


def read_run(path: str | Path) -> RunSeries:
    """Series of a run directory, or of its metrics.jsonl. A half-written last line is left out and noted.

    Raises StorageError naming the file, and the line that does not read.
    """
    place, is_folder = existing(path)
    return read_metrics_file(place / FILE_NAME if is_folder else place)
