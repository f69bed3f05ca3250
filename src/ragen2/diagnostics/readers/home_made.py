"""Logs whose names only the user's mapping makes known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ragen2.diagnostics.readers.csv_table import header_of, is_table, split_row
from ragen2.diagnostics.readers.dict_lines import is_record, parse_line
from ragen2.diagnostics.readers.metric_names import resolve
from ragen2.diagnostics.readers.place import beginning, refuse_what_is_no_text
from ragen2.diagnostics.readers.text_lines import Skipped, text_lines


def home_made(path: Path, mapping: Mapping[str, str]) -> str | None:
    """The kind of a log, given that it has the columns of the mapping; None when it has not."""
    resolve(mapping)
    refuse_what_is_no_text(path, beginning(path))
    header, row = None, 0
    for _, line in text_lines(path, Skipped()):
        if not line.strip():
            continue
        row += 1
        header = header_of(line) if row == 1 else header
        if row == 2 and header is not None:
            cells = split_row(line.decode("utf-8", errors="replace"), header[1])
            if is_table(header[0], cells, mapping):
                return "verl csv"
        if is_record(parse_line(line), mapping):
            return "dict log"
    return None
