"""Collect the records of a log line by line: our metrics.jsonl and console logs of verl."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ragen2.diagnostics.readers import RunSeries
from ragen2.diagnostics.readers.columns import Columns
from ragen2.diagnostics.readers.metric_names import STEP, resolve
from ragen2.diagnostics.readers.numbers import as_step, is_reading
from ragen2.diagnostics.readers.to_series import to_run_series
from ragen2.diagnostics.readers.verl_console import SOURCE, take_line
from ragen2.diagnostics.series import number


class Collector(Protocol):
    """Takes lines without their ends and gives the series so far."""

    def take(self, line: bytes) -> bool:
        """Whether the line held a record."""
        ...

    def run(self) -> RunSeries:
        """All series so far."""
        ...


class ConsoleCollector:
    """Console logs of verl and RAGEN."""

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self._columns = Columns(mapping)
        self._lines = 0

    def take(self, line: bytes) -> bool:
        """See Collector."""
        self._lines += 1
        before = self._columns.readings
        if b"step:" in line:
            take_line(self._columns, self._lines, line)
        return self._columns.readings > before

    def run(self) -> RunSeries:
        """See Collector. Raises UnknownName when the mapping asks for a column that was not logged so far."""
        return to_run_series(self._columns, SOURCE)


class MetricsCollector:
    """Our metrics.jsonl: one flat object a step. Lines that are something else are counted, not fatal."""

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self._renamed = [(ours, theirs) for ours, theirs in resolve(mapping).items() if ours != STEP]
        self._series: dict[str, dict[int, float]] = {}
        self._steps: set[int] = set()
        self._stop: str | None = None
        self._bad = 0

    def take(self, line: bytes) -> bool:
        """See Collector."""
        if not line.strip():
            return False
        record = _record(line)
        if record is None:
            self._bad += 1
            return False
        step = record["step"]
        self._steps.add(step)
        reason = record.get("stop/reason", record.get("stop"))
        self._stop = reason if isinstance(reason, str) else self._stop
        record |= {ours: record[theirs] for ours, theirs in self._renamed if theirs in record}
        for name in record:
            value = number(record, name) if name != "step" else None
            if value is not None and is_reading(value):
                self._series.setdefault(name, {})[step] = value
        return True

    def run(self) -> RunSeries:
        """See Collector."""
        series = {name: sorted(readings.items()) for name, readings in self._series.items()}
        notes = (f"{self._bad} line{'s were' if self._bad > 1 else ' was'} no record and left out",) if self._bad else ()
        return RunSeries(series, len(self._steps), self._stop, notes)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    step = record.get("step")
    return record if isinstance(step, int) and not isinstance(step, bool) and as_step(step) is not None else None
