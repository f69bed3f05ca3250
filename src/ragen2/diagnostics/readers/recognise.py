"""What kind of log a path holds, found out from its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ragen2.diagnostics.readers.csv_table import header_of, is_table, split_row
from ragen2.diagnostics.readers.dict_lines import is_record, parse_line
from ragen2.diagnostics.readers.metric_names import is_ours
from ragen2.diagnostics.readers.numbers import as_step
from ragen2.diagnostics.readers.place import READABLE, beginning, existing, refuse_what_is_no_text
from ragen2.diagnostics.readers.tensorboard_events import is_event_file
from ragen2.diagnostics.readers.text_lines import Skipped, text_lines
from ragen2.diagnostics.readers.trl_state import holds_history
from ragen2.diagnostics.readers.verl_console import holds_record
from ragen2.diagnostics.readers.wandb_csv import is_wandb_header
from ragen2.errors import StorageError

KINDS = ("ragen2", "verl console", "verl csv", "trl trainer_state", "dict log", "wandb csv", "tensorboard", "rollouts")
OURS_BEGIN = ("train/", "validation/", "filter/", "collapse/", "policy/", "time/", "critic/", "history/", "parse/")


def recognise(path: str | Path) -> str:
    """One of KINDS, by the content of a regular file, whatever its name.

    Raises StorageError when there is nothing at the path, it cannot be read, or it is no log this version knows.
    """
    place, is_folder = existing(path)
    if is_folder:
        raise StorageError(f"{path} is a folder; give a file.")
    start = beginning(place)
    if is_event_file(start):
        return "tensorboard"
    if _is_rollouts(place):
        return "rollouts"
    refuse_what_is_no_text(place, start)
    kind = _by_first_line(place) or _by_any_line(place)
    if kind is None:
        raise StorageError(f"{path} is not a log this version reads. {READABLE}.")
    return kind


def _by_first_line(path: Path) -> str | None:
    """Kinds that the beginning of a file tells."""
    if holds_history(path):
        return "trl trainer_state"
    lines = [line for _, line in _first_lines(path, 3)]
    if not lines:
        return None
    if _is_our_record(lines[0]):
        return "ragen2"
    found = header_of(lines[0])
    if found is None:
        return None
    header, delimiter = found
    row = split_row(lines[1].decode("utf-8", errors="replace"), delimiter) if len(lines) > 1 else None
    if is_wandb_header(header):
        return "wandb csv"
    return "verl csv" if is_table(header, row) or (row is None and is_table(header, ["0"] * len(header))) else None


def _by_any_line(path: Path) -> str | None:
    """Kinds whose records stand somewhere between other text. Records of verl win over dicts: its processes print both."""
    dicts = False
    for _, line in text_lines(path, Skipped()):
        if holds_record(line):
            return "verl console"
        dicts = dicts or is_record(parse_line(line))
    return "dict log" if dicts else None


def _first_lines(path: Path, count: int) -> list[tuple[int, bytes]]:
    found = []
    for number, line in text_lines(path, Skipped()):
        if line.strip():
            found.append((number, line))
        if len(found) == count or number > 1000:
            break
    return found


def _is_our_record(line: bytes) -> bool:
    """Whether a line is an object of metrics.jsonl: a whole number `step` and names of ours."""
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(record, dict) or as_step(record.get("step")) is None or isinstance(record["step"], bool | str | float):
        return False
    names = [name for name in record if name != "step"]
    return not names or any(is_ours(name) for name in names) or all(name.startswith(OURS_BEGIN) for name in names)


def _is_rollouts(path: Path) -> bool:
    from ragen2.diagnostics.rollout_files import is_rollout_file

    return is_rollout_file(path)
