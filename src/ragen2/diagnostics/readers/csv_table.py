"""Tables with a row a step and a column a metric: the CSVs that people make of their logs."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from ragen2.diagnostics.readers.aliases import match
from ragen2.diagnostics.readers.columns import Columns, require_readings
from ragen2.diagnostics.readers.metric_names import resolve
from ragen2.diagnostics.readers.numbers import as_step, parse_number
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.diagnostics.readers.text_lines import Skipped, text_lines
from ragen2.diagnostics.readers.to_series import to_run_series
from ragen2.errors import StorageError

SOURCE = "verl csv"
STEP_NAMES = ("step", "global_step", "_step", "trainer/global_step", "train/global_step", "iteration", "iter", "steps", "epoch")
"""Names of the column of steps, in any case, best first."""
DELIMITERS = (",", "\t", ";")
EMPTY = ("", "None", "null", "NA", "N/A", "-")
"""Cells that mean "not logged at this step"; nan is a reading that failed, and is counted."""


def split_row(text: str, delimiter: str) -> list[str] | None:
    """Cells of one line; None where quoting is broken. A quoted cell does not go on in the next line: metrics have none."""
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None


def header_of(line: bytes) -> tuple[list[str], str] | None:
    """Cells of a header and its delimiter; None where the line is no header of at least two columns."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return None
    delimiter = max(DELIMITERS, key=text.count)
    if not text.count(delimiter):
        return None
    cells = split_row(text, delimiter)
    if cells is None or not any(cell.strip() for cell in cells):
        return None
    return [cell.strip() for cell in cells], delimiter


def step_column(header: list[str], wanted: str | None = None) -> int | None:
    """Index of the column of steps; None where there is none."""
    if wanted is not None:
        return header.index(wanted) if wanted in header else None
    lower = [cell.lower() for cell in header]
    return next((lower.index(name) for name in STEP_NAMES if name in lower), None)


def is_table(header: list[str], row: list[str] | None, mapping: Mapping[str, str] | None = None) -> bool:
    """Whether this is a table of metrics: a column of steps or of a metric we know, and numbers below."""
    if row is None or len(row) != len(header):
        return False
    wanted = set(resolve(mapping).values())
    known = step_column(header) is not None or any(cell in wanted or match(cell) is not None for cell in header if cell)
    return known and any(parse_number(cell) is not None for cell in row)


def read_csv_table(path: Path, mapping: Mapping[str, str] | None = None) -> RunSeries:
    """Series of a table. Raises StorageError when it has no column of steps or no row."""
    columns = Columns(mapping)
    lines = text_lines(path, columns.skipped)
    header, delimiter = _header(path, lines)
    place = step_column(header, columns.step_column)
    if place is None:
        raise StorageError(
            f"{path} has no column of steps. Name it: --map step=COLUMN, one of {', '.join(header[:30])}."
            if columns.step_column is None
            else f"{path} has no column {columns.step_column!r}; its columns are {', '.join(header[:30])}."
        )
    wanted = [(index, name) for index, name in enumerate(header) if index != place and name and columns.wants(name)]
    for number, cells in rows(lines, delimiter, len(header), columns.skipped):
        step = as_step(cells[place])
        if step is None:
            columns.skipped.add("the step is no whole number", number)
        elif columns.begin(step, number):
            for index, name in wanted:
                take_cell(columns, number, step, name, cells[index])
    require_readings(columns, str(path), "row with a step")
    return to_run_series(columns, SOURCE)


def rows(lines: Iterator[tuple[int, bytes]], delimiter: str, width: int, skipped: Skipped) -> Iterator[tuple[int, list[str]]]:
    """Rows as wide as the header; others are counted."""
    for number, line in lines:
        if not line.strip():
            continue
        cells = split_row(line.decode("utf-8", errors="replace"), delimiter)
        if cells is None:
            skipped.add("broken quotes or a cell that is too long", number)
        elif len(cells) != width:
            skipped.add(f"not {width} cells", number)
        else:
            yield number, cells


def take_cell(columns: Columns, number: int, step: int, name: str, cell: str) -> None:
    """Take one cell; an empty one was not logged."""
    cell = cell.strip()
    if cell in EMPTY:
        return
    value = parse_number(cell)
    if value is None:
        columns.skipped.add("a value that is no number", number)
    else:
        columns.add(step, name, value)


def _header(path: Path, lines: Iterator[tuple[int, bytes]]) -> tuple[list[str], str]:
    first = next((line for _, line in lines if line.strip()), b"")
    found = header_of(first)
    if found is None:
        raise StorageError(f"{path} has no header of columns in its first line.")
    return found
