"""metrics.jsonl of our own run directories: one flat object a step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen2.diagnostics.readers.metric_names import STEP, resolve
from ragen2.diagnostics.readers.numbers import as_step, is_reading
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.diagnostics.readers.text_lines import Skipped, ends_whole, text_lines
from ragen2.diagnostics.series import number
from ragen2.errors import StorageError, UnknownName

SOURCE = "ragen2"


def read_metrics_file(path: Path, mapping: Mapping[str, str] | None = None) -> RunSeries:
    """Series of a metrics.jsonl, all numbers of it. A half-written last line is left out and noted.

    Raises StorageError naming the file, and the line that does not read.
    """
    table: dict[str, dict[int, float]] = {}
    steps: set[int] = set()
    notes: list[str] = []
    stop: str | None = None
    broken = ""
    skipped = Skipped()
    for count, line in text_lines(path, skipped):
        if not line.strip():
            continue
        if broken:
            raise StorageError(broken)
        record, fault = _record(line)
        if record is None:
            broken = f"{path} line {count} {fault}. Mend or remove that line."
            continue
        step = int(record[STEP])
        steps.add(step)
        for name in record:
            value = number(record, name) if name != STEP else None
            if value is not None and not is_reading(value):
                skipped.add("a reading too large to be one", count)
            elif value is not None:
                table.setdefault(name, {})[step] = value
        reason = record.get("stop/reason", record.get("stop"))
        stop = reason if isinstance(reason, str) else stop
    if broken:
        if ends_whole(path) or not steps:
            raise StorageError(broken)
        notes.append("a half-written last line was left out")
    if not steps:
        raise StorageError(f"{path} holds no metrics: the run wrote nothing yet")
    names = _map(table, mapping)
    series = {name: sorted(readings.items()) for name, readings in table.items()}
    return RunSeries(series, len(steps), stop, tuple(notes + skipped.notes()), SOURCE, (), names)


def _map(table: dict[str, dict[int, float]], mapping: Mapping[str, str] | None) -> dict[str, str]:
    """Put the columns the user named under their names of ours; all names and where they come from."""
    names = {name: name for name in table}
    for ours, theirs in resolve(mapping).items():
        if theirs not in table:
            raise UnknownName("column", theirs, list(table)[:200])
        table[ours], names[ours] = table[theirs], theirs
    return names


def _record(line: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON: {error}"
    step = record.get(STEP) if isinstance(record, dict) else None
    if not isinstance(step, int) or isinstance(step, bool) or as_step(step) is None:
        return None, f"is not an object with a whole number '{STEP}' of at most 15 digits"
    return record, ""
