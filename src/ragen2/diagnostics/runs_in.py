"""The runs that a path stands for: itself, the runs in a folder, or the runs of one table."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from ragen2.diagnostics.readers.csv_table import header_of
from ragen2.diagnostics.readers.folder import log_of_folder
from ragen2.diagnostics.readers.read import RUN_MARK
from ragen2.diagnostics.readers.recognise import recognise
from ragen2.diagnostics.readers.text_lines import Skipped, text_lines
from ragen2.diagnostics.readers.wandb_csv import run_columns
from ragen2.diagnostics.rollout_files import is_rollout_file
from ragen2.errors import StorageError

DEEPEST = 2
"""Folders below the one given that are looked into: runs/<experiment>/<seed>."""
MOST_RUNS = 500
TABLES = ("verl csv", "wandb csv")


def runs_in(path: str | Path) -> list[Path]:
    """`path` itself when it is one run (or nothing that reads: then reading it says why). Else the runs of a W&B export, as
    `export.csv::run`, or the logs, run directories and folders of rollouts in a folder, in order of name.

    A table beside a log of another kind is taken as made from that log and left out.
    """
    place = Path(path)
    if os.path.isfile(place):
        return _runs_of_table(place) or [place]
    if not os.path.isdir(place) or _is_run(place):
        return [place]
    return _below(place, DEEPEST)[:MOST_RUNS] or [place]


def _below(folder: Path, depth: int) -> list[Path]:
    found: list[Path] = []
    files: list[tuple[str, Path]] = []
    for child in _children(folder):
        if os.path.isdir(child):
            if _is_run(child):
                found.append(child)
            elif depth > 1:
                found += _below(child, depth - 1)
        else:
            kind = _kind(child)
            files += [(kind, child)] if kind else []
    logs = [child for kind, child in files if kind not in TABLES]
    tables = [run for kind, child in files if kind in TABLES and not logs for run in _runs_of_table(child) or [child]]
    return sorted([*found, *logs, *tables])


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(islice((child for child in folder.iterdir() if not child.name.startswith(".")), 10 * MOST_RUNS))
    except OSError:
        # A folder that may not be looked into holds no run that could be read.
        return []


def _is_run(folder: Path) -> bool:
    try:
        log_of_folder(folder)
    except StorageError:
        return is_rollout_file(folder)
    return True


def _kind(path: Path) -> str | None:
    try:
        return recognise(path)
    except StorageError:
        return None


def _runs_of_table(path: Path) -> list[Path]:
    """`path::run` for each run of a W&B export that holds several; empty for anything else."""
    if _kind(path) != "wandb csv":
        return []
    line = next((line for _, line in text_lines(path, Skipped()) if line.strip()), b"")
    found = header_of(line)
    names = list(dict.fromkeys(column.run for column in run_columns(found[0]))) if found else []
    return [Path(f"{path}{RUN_MARK}{name}") for name in names] if len(names) > 1 else []
