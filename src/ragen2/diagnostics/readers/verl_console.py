"""Console logs of verl and RAGEN: a record a step, `step:K - key:value - …`, between everything else that processes print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ragen2.diagnostics.readers.columns import Columns, require_readings
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.diagnostics.readers.text_lines import ends_whole, text_lines
from ragen2.diagnostics.readers.to_series import to_run_series

SOURCE = "verl console"
COLOUR = re.compile(rb"\x1b\[[0-9;?]{0,16}[A-Za-z]")
RECORD = re.compile(rb"(?<![\w/])step: ?(\d{1,15}) - (?=[^\s:]{1,300}:)")
"""A record begins anywhere in a line: other processes write without line ends."""
VALUE = re.compile(
    r"\s*(?:(?:np|numpy|torch|jnp)?\.?[a-z]{1,10}[0-9]{0,3}\(\s*)?"
    r"([-+]?(?:nan|inf(?:inity)?|[0-9]{1,40}(?:\.[0-9]{0,40})?(?:e[-+]?[0-9]{1,4})?|\.[0-9]{1,40}(?:e[-+]?[0-9]{1,4})?))",
    re.IGNORECASE,
)
"""The number a value begins with; what is glued behind it is another process' text."""


def holds_record(line: bytes) -> bool:
    """Whether a record begins in this line."""
    return b"step:" in line and any(True for _ in records(line))


def records(line: bytes) -> Iterator[tuple[int, str]]:
    """(step, text of its pairs) of every record in a line."""
    if b"\x1b" in line:
        line = COLOUR.sub(b"", line)
    for piece in line.split(b"\r"):
        starts = list(RECORD.finditer(piece))
        ends = [*(start.start() for start in starts[1:]), len(piece)]
        for start, end in zip(starts, ends, strict=False):
            yield int(start[1]), piece[start.end() : end].decode("utf-8", errors="replace")


def read_verl_console(path: Path, mapping: Mapping[str, str] | None = None) -> RunSeries:
    """Series of a console log. Raises StorageError when it holds no record."""
    columns = Columns(mapping)
    last: tuple[int, bytes] = (0, b"")
    for number, line in text_lines(path, columns.skipped):
        if b"step:" in last[1]:
            take_line(columns, *last)
        elif b"\x00" in last[1]:
            columns.skipped.add("binary content", last[0])
        last = (number, line)
    if holds_record(last[1]) and not ends_whole(path):
        columns.notes.append(f"line {last[0]}, the last, is half-written: its last value was left out, since it may be cut")
        last = (last[0], last[1].rpartition(b" - ")[0])
    take_line(columns, *last)
    require_readings(columns, str(path), "record of a step")
    return to_run_series(columns, SOURCE)


def take_line(columns: Columns, number: int, line: bytes) -> None:
    """Take the records of a line, if any."""
    for step, text in records(line):
        if not columns.begin(step, number):
            return
        for pair in text.split(" - "):
            name, _, value = pair.partition(":")
            name = name.strip()
            if not name or not columns.wants(name):
                continue
            found = VALUE.match(value)
            if found is None:
                columns.skipped.add("a value that is no number", number)
                continue
            columns.add(step, name, float(found[1]))
