"""JSON objects of a JSON-lines file, one at a time, in bounded memory; what does not read is counted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ragen2.diagnostics.rollout_files.sample import ReadReport
from ragen2.errors import StorageError

Record = dict[str, Any]

MAX_LINE_BYTES = 16 << 20
"""Longer lines are passed over: parsed, one would take some ten times its size."""

SNIFFED_LINES = 5
"""Lines in which a first object is looked for when the kind of a file is found out."""


def read_records(path: Path, report: ReadReport) -> Iterator[Record]:
    """Objects in order. Lines that are broken, too long or no objects are counted in `report`. Raises StorageError."""
    try:
        with open(path, "rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    _pass_over(file, line)
                    report.skip(f"lines longer than {MAX_LINE_BYTES >> 20} MiB")
                elif line.strip():
                    record = _parsed(line)
                    if record is not None:
                        yield record
                    else:
                        report.skip("broken lines" if line.endswith(b"\n") else "half-written last lines")
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error


def first_record(path: Path) -> Record | None:
    """The first object within the first few lines, None where there is none. Raises StorageError."""
    try:
        with open(path, "rb") as file:
            if not file.read(64).lstrip().startswith(b"{"):
                return None
            file.seek(0)
            for _ in range(SNIFFED_LINES):
                line = file.readline(MAX_LINE_BYTES + 1)
                if len(line) > MAX_LINE_BYTES:
                    _pass_over(file, line)
                    continue
                record = _parsed(line)
                if record is not None:
                    return record
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return None


def finite(value: Any) -> float | None:
    """A finite number (True and False count as 1 and 0), else None."""
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def whole(value: Any) -> int | None:
    """A whole number of at most 18 digits, also one written as a float, else None."""
    number = None if isinstance(value, bool) else finite(value)
    return int(number) if number is not None and number.is_integer() and abs(number) < 1e18 else None


SUCCESS_KEYS = ("success", "solved", "won", "correct", "acc", "accuracy", "accuracy_reward", "correctness_reward")


def success_in(values: Mapping[str, Any]) -> bool | None:
    """Success where a key named for it (or one that ends in "/success") is true, false, 0 or 1."""
    for key, value in values.items():
        name = str(key)
        if (name in SUCCESS_KEYS or name.endswith("/success")) and finite(value) in (0.0, 1.0):
            return bool(value)
    return None


def _parsed(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _pass_over(file: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = file.readline(1 << 20)
