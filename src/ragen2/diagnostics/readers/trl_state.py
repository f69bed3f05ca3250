"""`trainer_state.json` of the Hugging Face trainers (TRL): the list `log_history`, read entry by entry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ragen2.diagnostics.readers.columns import Columns, require_readings
from ragen2.diagnostics.readers.dict_records import take_record
from ragen2.diagnostics.readers.numbers import as_step
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.diagnostics.readers.text_lines import BOM
from ragen2.diagnostics.readers.to_series import to_run_series
from ragen2.errors import StorageError

SOURCE = "trl trainer_state"
HISTORY = re.compile(rb'"log_history"\s{0,20}:\s{0,20}\[')
CHUNK = 1 << 20
LONGEST_ENTRY = 1 << 20
"""Characters. An entry is a flat object of some dozens of numbers."""
MOST_DAMAGED = 1_000
"""Times that reading goes on at the next opening brace."""
BETWEEN = " \t\r\n,"


def holds_history(path: Path) -> bool:
    """Whether the file is a JSON object with a list `log_history` somewhere in it."""
    with open(path, "rb") as file:
        if not file.read(64).removeprefix(BOM).lstrip().startswith(b"{"):
            return False
        file.seek(0)
        return _find_history(file) is not None


def read_trl_state(path: Path, mapping: Mapping[str, str] | None = None) -> RunSeries:
    """Series of a trainer state. A file that breaks off is read up to there and noted. Raises StorageError without entries."""
    columns = Columns(mapping)
    columns.skipped.unit = "entry"
    try:
        with open(path, "rb") as file:
            offset = _find_history(file)
            if offset is None:
                raise StorageError(f"{path} has no list 'log_history'.")
            file.seek(offset)
            last: int | None = None
            for number, entry in enumerate(_entries(file, columns), 1):
                step = as_step(entry.get("step"))
                step = last if step is None else step
                if step is None:
                    columns.skipped.add("an entry without a step", number)
                    continue
                last = step
                if columns.begin(step, number):
                    take_record(columns, step, entry)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    require_readings(columns, str(path), "entry of log_history")
    return to_run_series(columns, SOURCE)


def _decode(decoder: json.JSONDecoder, window: str) -> tuple[Any, int]:
    """A value and where it ends; ends at 0 where there is no whole one."""
    try:
        return decoder.raw_decode(window)
    except (ValueError, RecursionError):
        return None, 0


def _find_history(file: BinaryIO) -> int | None:
    """Offset just after the opening bracket."""
    base, window = 0, b""
    while chunk := file.read(CHUNK):
        window += chunk
        found = HISTORY.search(window)
        if found:
            return base + found.end()
        drop = max(len(window) - 256, 0)
        base, window = base + drop, window[drop:]
    return None


def _entries(file: BinaryIO, columns: Columns) -> Iterator[Mapping[str, Any]]:
    """Objects of the list up to its closing bracket or to where the file breaks off."""
    decoder = json.JSONDecoder()
    window, count, damaged, ended = "", 0, 0, False
    while True:
        window = window.lstrip(BETWEEN)
        if window.startswith("]"):
            return
        entry, end = _decode(decoder, window)
        if end:
            count += 1
            window = window[end:]
            if isinstance(entry, dict):
                yield entry
            else:
                columns.skipped.add("an entry of log_history that is no object", count)
            continue
        if ended or len(window) > LONGEST_ENTRY:
            following = window.find("{", 1) if damaged < MOST_DAMAGED else -1
            if following > 0:
                damaged += 1
                columns.skipped.add("an entry of log_history that does not read", count + damaged)
                window = window[following:]
                continue
            columns.notes.append(f"the file breaks off or is broken after entry {count} of log_history; the rest was not read")
            return
        chunk = file.read(min(CHUNK, max(65536, len(window))))
        ended = not chunk
        window += chunk.decode("utf-8", errors="replace")
