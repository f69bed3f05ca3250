"""Reads the series of a run directory's metrics.jsonl."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragen2.diagnostics.series import series_from_records
from ragen2.errors import StorageError

FILE_NAME = "metrics.jsonl"


@dataclass(frozen=True)
class RunSeries:
    """Named series of (step, value) of one run, and what was said in words: why it ended early, what was left out."""

    series: dict[str, list[tuple[int, float]]]
    steps: int
    stop: str | None = None
    notes: tuple[str, ...] = field(default=())


def read_run(path: str | Path) -> RunSeries:
    """Series of a run directory, or of its metrics.jsonl. A half-written last line is left out and noted.

    Raises StorageError naming the file, and the line that does not read.
    """
    path = Path(path)
    path = path / FILE_NAME if path.is_dir() else path
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror or error}. Give a run directory that holds {FILE_NAME}."
        ) from error
    records: list[dict[str, Any]] = []
    notes: list[str] = []
    stop: str | None = None
    lines = data.splitlines(keepends=True)
    for count, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if count == len(lines) and not line.endswith(b"\n") and not _is_json(line):
            notes.append("a half-written last line was left out")
            break
        record = _record(path, count, line)
        records.append(record)
        reason = record.get("stop/reason", record.get("stop"))
        stop = reason if isinstance(reason, str) else stop
    if not records:
        raise StorageError(f"{path} holds no metrics: the run wrote nothing yet")
    steps = {record["step"] for record in records}
    return RunSeries(series_from_records(records), len(steps), stop, tuple(notes))


def looks_like_metrics(path: Path) -> bool:
    """Whether a file begins like metrics.jsonl: an object with a whole number `step`."""
    try:
        with open(path, "rb") as file:
            first = file.readline(1_000_000)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and _is_step(record.get("step"))


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} line {number} is not JSON: {error}. Mend or remove that line.") from error
    if not isinstance(record, dict) or not _is_step(record.get("step")):
        raise StorageError(f"{path} line {number} is not an object with a whole number 'step'. Mend or remove that line.")
    return record


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
