"""Which log of a folder is meant."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ragen2.diagnostics.readers.place import READABLE
from ragen2.diagnostics.readers.recognise import recognise
from ragen2.errors import StorageError

METRICS_FILE = "metrics.jsonl"
STATE_FILE = "trainer_state.json"
MAX_ENTRIES = 2_000
PREFERRED = ("ragen2", "verl console", "trl trainer_state", "dict log", "tensorboard", "verl csv", "wandb csv")
"""Kinds of log, the one that holds most first: a table is usually made from the log beside it."""
CHECKPOINT = re.compile(r"checkpoint-(\d{1,15})")


def log_of_folder(folder: Path) -> tuple[str, list[Path], list[str]]:
    """(kind, files, notes) of the log in a folder; several files only where they make up one run: TensorBoard, W&B charts.

    Raises StorageError when it holds none, or several of a kind.
    """
    found = _recognised(folder)
    if not found:
        return _deeper(folder)
    kind = next(kind for kind in PREFERRED if kind in found)
    files = found.pop(kind)
    if len(files) > 1 and kind not in ("tensorboard", "wandb csv"):
        names = ", ".join(file.name for file in files[:10])
        raise StorageError(f"{folder} holds {len(files)} logs: {names}. Give one of them.")
    beside = [file.name for others in found.values() for file in others]
    notes = [f"read from {files[0].name}; not read: {', '.join(beside[:10])}"] if beside else []
    return kind, files, notes


def _recognised(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in _files(folder):
        if path.name == METRICS_FILE:
            return {"ragen2": [path]}
        try:
            kind = recognise(path)
        except StorageError:
            continue
        if kind in PREFERRED:
            found.setdefault(kind, []).append(path)
    return found


def _files(folder: Path) -> list[Path]:
    """Regular files, ours first; hidden ones are left out."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for _, entry in zip(range(MAX_ENTRIES), entries, strict=False) if _is_file(entry))
    except OSError as error:
        raise StorageError(f"cannot read the folder {folder}: {error.strerror or error}") from error
    names.sort(key=lambda name: name != METRICS_FILE)
    return [folder / name for name in names]


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.name.startswith(".") and entry.is_file()
    except OSError:
        return False


def _deeper(folder: Path) -> tuple[str, list[Path], list[str]]:
    """The newest checkpoint of a Hugging Face trainer, or the only folder with TensorBoard events."""
    try:
        folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))[:MAX_ENTRIES]
    except OSError as error:
        raise StorageError(f"cannot read the folder {folder}: {error.strerror or error}") from error
    numbered = [(int(found[1]), path) for path in folders if (found := CHECKPOINT.fullmatch(path.name))]
    states = [path / STATE_FILE for _, path in sorted(numbered) if (path / STATE_FILE).is_file()]
    if states:
        return "trl trainer_state", [states[-1]], [f"read from {states[-1].parent.name}/{STATE_FILE}, the newest checkpoint"]
    events = [files for path in folders if (files := _recognised(path).get("tensorboard"))]
    if len(events) == 1:
        return "tensorboard", events[0], [f"read from {events[0][0].parent.name}"]
    if events:
        names = ", ".join(files[0].parent.name for files in events[:10])
        raise StorageError(f"{folder} holds {len(events)} TensorBoard runs: {names}. Give one of them.")
    raise StorageError(
        f"{folder} is not a run directory (it has no {METRICS_FILE}) and holds no log this version reads. {READABLE}. "
        "Give the folder that `ragen2 train` printed, or a log file."
    )
