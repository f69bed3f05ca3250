"""CSV exports of W&B charts: a step column, and `run - metric` columns with their __MIN and __MAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen2.diagnostics.readers.columns import Columns, require_readings
from ragen2.diagnostics.readers.csv_table import header_of, rows, take_cell
from ragen2.diagnostics.readers.numbers import as_step
from ragen2.diagnostics.readers.run_series import RunSeries
from ragen2.diagnostics.readers.text_lines import text_lines
from ragen2.diagnostics.readers.to_series import to_run_series
from ragen2.errors import StorageError

SOURCE = "wandb csv"
SEPARATOR = " - "
ENVELOPES = ("__MIN", "__MAX")
AXES = ("step", "global_step", "_step", "trainer/global_step", "train/global_step", "iteration")
TIMES = ("relative time (process)", "relative time (wall)", "relative time", "wall time", "_runtime", "_timestamp", "time")
SHOWN_RUNS = 20


@dataclass(frozen=True)
class RunColumn:
    """A column of one run: its place in the row, its run, its metric."""

    place: int
    run: str
    metric: str


def run_columns(header: list[str]) -> list[RunColumn]:
    """Columns `run - metric`; envelopes and the runs' own step columns are left out."""
    found = []
    for place, cell in enumerate(header[1:], 1):
        run, separator, metric = cell.rpartition(SEPARATOR)
        if separator and not metric.endswith(ENVELOPES) and metric != "_step":
            found.append(RunColumn(place, run.strip(), metric.strip()))
    return found


def is_wandb_header(header: list[str]) -> bool:
    """Whether a header is one of a W&B chart: an axis, then nothing but `run - metric`."""
    axis = header[0].lower()
    if axis not in AXES + TIMES and not axis.endswith("step"):
        return False
    return len(header) > 1 and all(SEPARATOR in cell for cell in header[1:] if cell)


def read_wandb_csv(paths: Sequence[Path], mapping: Mapping[str, str] | None = None, run: str | None = None) -> RunSeries:
    """Series of one run, from the exports of one or several charts.

    Raises StorageError when a file holds several runs and none, or one that it does not have, was chosen, or when the files hold
    different runs.
    """
    columns = Columns(mapping)
    runs: set[str] = set()
    for path in paths:
        columns.next_file()
        runs.add(_take_file(columns, path, run))
    if len(runs) > 1:
        raise StorageError(f"the exports hold different runs: {'; '.join(sorted(runs))}. Give files of one run.")
    require_readings(columns, ", ".join(str(path) for path in paths[:3]), "row with a step")
    return to_run_series(columns, SOURCE)


def _take_file(columns: Columns, path: Path, run: str | None) -> str:
    """Take one export; the name of the run."""
    lines = text_lines(path, columns.skipped)
    found = header_of(next((line for _, line in lines if line.strip()), b""))
    header, delimiter = found if found is not None else ([""], ",")
    if header[0].lower() in TIMES:
        raise StorageError(
            f"{path} is plotted over {header[0]!r}, not over steps. Set the chart's x-axis to Step and export again."
        )
    chosen = _choose(path, run_columns(header), run)
    envelopes = sum(cell.endswith(ENVELOPES) for cell in header)
    if envelopes:
        columns.notes.append(f"{envelopes} columns of smallest and largest values (__MIN, __MAX) were left out")
    wanted = [item for item in chosen if columns.wants(item.metric)]
    for number, cells in rows(lines, delimiter, len(header), columns.skipped):
        step = as_step(cells[0])
        if step is None:
            columns.skipped.add("the step is no whole number", number)
            continue
        if any(cells[item.place].strip() for item in chosen) and columns.begin(step, number):
            for item in wanted:
                take_cell(columns, number, step, item.metric, cells[item.place])
    return chosen[0].run if chosen else ""


def _choose(path: Path, found: list[RunColumn], run: str | None) -> list[RunColumn]:
    names = list(dict.fromkeys(item.run for item in found))
    shown = "; ".join(names[:SHOWN_RUNS]) + (f"; and {len(names) - SHOWN_RUNS} more" if len(names) > SHOWN_RUNS else "")
    if run is not None and run not in names:
        raise StorageError(f"{path} holds no run {run!r}. Its runs are: {shown}.")
    if run is None and len(names) > 1:
        raise StorageError(f"{path} holds {len(names)} runs: {shown}. Choose one: '{path}::{names[0]}'.")
    return [item for item in found if run is None or item.run == run]
