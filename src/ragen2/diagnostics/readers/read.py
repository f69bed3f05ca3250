"""One call for every kind of log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ragen2.diagnostics.readers.csv_table import read_csv_table
from ragen2.diagnostics.readers.dict_lines import read_dict_lines
from ragen2.diagnostics.readers.folder import log_of_folder
from ragen2.diagnostics.readers.home_made import home_made
from ragen2.diagnostics.readers.place import existing
from ragen2.diagnostics.readers.ragen2_metrics import read_metrics_file
from ragen2.diagnostics.readers.recognise import recognise
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.diagnostics.readers.tensorboard_events import read_tensorboard
from ragen2.diagnostics.readers.trl_state import read_trl_state
from ragen2.diagnostics.readers.verl_console import read_verl_console
from ragen2.diagnostics.readers.wandb_csv import read_wandb_csv
from ragen2.errors import StorageError

RUN_MARK = "::"
"""`export.csv::run name` is one run of a W&B export that holds several."""
Reader = Callable[[Path, Mapping[str, str] | None], RunSeries]
READERS: dict[str, Reader] = {
    "ragen2": read_metrics_file,
    "verl console": read_verl_console,
    "verl csv": read_csv_table,
    "trl trainer_state": read_trl_state,
    "dict log": read_dict_lines,
}


def read_log(path: str | Path, mapping: Mapping[str, str] | None = None) -> RunSeries:
    """Series of the run logged at `path`, in our metric names.

    Args:
        path: a run directory of ours, a log of any kind of `KINDS` but rollouts, a folder that holds exactly one log (of a log
            and the table made from it, the log is read; of checkpoints of a Hugging Face trainer, the newest), a folder of
            TensorBoard event files, or `export.csv::run name` for one run of a W&B export.
        mapping: {name of ours: their column}, where ours is a full metric name or a short one (`SHORT_NAMES`); `step` names the
            column of steps.

    Raises StorageError when there is nothing at `path`, it does not read or it is no log we know; UnknownName when the mapping
    names a metric or a column that does not exist; MissingDependency for TensorBoard files without the library.
    """
    place, run = _part(path)
    place, is_folder = existing(place)
    if is_folder:
        kind, files, notes = log_of_folder(place)
    else:
        kind, files, notes = _kind(place, mapping), [place], []
    if run is not None and kind != "wandb csv":
        raise StorageError(f"{path}: only W&B exports hold several runs to choose from; this is a {kind} log.")
    if kind == "rollouts":
        raise StorageError(
            f"{path} holds rollouts, not a log of metrics: measure it with `ragen2 diagnose {path} --scorer MODEL`."
        )
    if kind == "tensorboard":
        found = read_tensorboard(sorted(files), mapping)
    elif kind == "wandb csv":
        found = read_wandb_csv(files, mapping, run)
    else:
        found = READERS[kind](files[0], mapping)
    return replace(found, notes=(*notes, *found.notes)) if notes else found


def _kind(place: Path, mapping: Mapping[str, str] | None) -> str:
    try:
        return recognise(place)
    except StorageError:
        kind = home_made(place, mapping) if mapping else None
        if kind is None:
            raise
        return kind


def _part(path: str | Path) -> tuple[str | Path, str | None]:
    """A path and the run chosen in it. A file that is really called so is taken as it is."""
    text = str(path)
    if RUN_MARK not in text or os.path.exists(text):
        return path, None
    place, _, run = text.rpartition(RUN_MARK)
    return place, run.strip()
