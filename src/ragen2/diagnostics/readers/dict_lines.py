"""Logs with a dict a line: what Hugging Face trainers print, JSON lines, and what loops print by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragen2.diagnostics.readers.aliases import match
from ragen2.diagnostics.readers.columns import Columns, require_readings
from ragen2.diagnostics.readers.dict_records import numbers_in, parse_record, take_numbers
from ragen2.diagnostics.readers.numbers import as_step
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.diagnostics.readers.text_lines import text_lines
from ragen2.diagnostics.readers.to_series import to_run_series

SOURCE = "dict log"
STEP_KEYS = ("step", "global_step", "train/global_step", "trainer/global_step", "_step", "iteration", "iter", "training_step")
SUMMARY = "train_runtime"
"""Only the summary at the end of training has this."""
LEAST_NUMBERS = 2
MOST_SHAPES = 10_000
"""Different sets of names; a trainer prints a handful."""


def parse_line(line: bytes) -> Mapping[str, Any] | None:
    """The record of a line, None where it holds none. Progress bars before it end with a carriage return."""
    if b"{" not in line or b"}" not in line:
        return None
    text = line.decode("utf-8", errors="replace")
    if "\r" in text:
        return parse_record(text.rpartition("\r")[2]) or parse_record(text)
    return parse_record(text)


def is_record(record: Mapping[str, Any] | None, mapping: Mapping[str, str] | None = None) -> bool:
    """Whether a dict is a record of training and not, say, settings: two numbers at least, one of which we know the name of."""
    if record is None or SUMMARY in record:
        return False
    return are_known([name for name, _ in numbers_in(record)], mapping)


def are_known(names: Sequence[str], mapping: Mapping[str, str] | None = None) -> bool:
    """Whether these are the names of the numbers of a record."""
    wanted = set((mapping or {}).values())
    return len(names) >= LEAST_NUMBERS and any(name in wanted or match(name) is not None for name in names)


def read_dict_lines(path: Path, mapping: Mapping[str, str] | None = None) -> RunSeries:
    """Series of a log. Raises StorageError when no line holds a record."""
    columns = Columns(mapping)
    keys = (columns.step_column,) if columns.step_column else STEP_KEYS
    counted, last = 0, None
    known: dict[tuple[str, ...], bool] = {}
    for number, line in text_lines(path, columns.skipped):
        record = parse_line(line)
        if record is None:
            if b"{" in line and line.count(b":") > 2:
                columns.skipped.add("no readable dict", number)
            continue
        numbers = list(numbers_in(record))
        names = tuple(name for name, _ in numbers)
        if names not in known and len(known) < MOST_SHAPES:
            known[names] = SUMMARY not in record and are_known(names, mapping)
        if not known.get(names, False):
            continue
        step = next((as_step(record[key]) for key in keys if as_step(record.get(key)) is not None), None)
        if step is None:
            if last is None or not _is_evaluation(record):
                counted += 1
            step = counted
        last = step
        if columns.begin(step, number):
            take_numbers(columns, step, numbers)
    if counted:
        columns.notes.append("records without a step were counted: step n is the n-th of them")
    require_readings(columns, str(path), "record with numbers we know")
    return to_run_series(columns, SOURCE)


def _is_evaluation(record: Mapping[str, Any]) -> bool:
    """Readings of an evaluation belong to the step before it."""
    return all(key.startswith("eval") or key in ("epoch", "step") for key in record)
