"""Logs and rollout files examined for people: the diagnosis with the series it was made from, several paths at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ragen2.diagnostics.cross_score import Progress
from ragen2.diagnostics.diagnose import Diagnosis, diagnosis_of
from ragen2.diagnostics.figures import RunFigures, run_figures
from ragen2.diagnostics.readers import RunSeries, read_log
from ragen2.diagnostics.readers.folder import log_of_folder
from ragen2.diagnostics.rollout_files import is_rollout_file, measure_rollouts
from ragen2.diagnostics.run_names import short_names
from ragen2.diagnostics.series import Points
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.errors import Ragen2Error, StorageError

SAMPLING_SEED = 0
"""Of the draw of reasonings that a scorer scores."""


@dataclass(frozen=True)
class Examined:
    """A run that was read. `name` is short and tells it from the runs beside it; `series` is in our metric names;
    `unmapped` are columns of the log that stand for none of our metrics."""

    path: str
    name: str
    diagnosis: Diagnosis
    series: Mapping[str, Points]
    figures: RunFigures
    unmapped: tuple[str, ...] = field(default=())

    @property
    def step_range(self) -> tuple[int, int] | None:
        """First and last step with a reading; None without readings."""
        steps = [step for points in self.series.values() if points for step in (points[0][0], points[-1][0])]
        return (min(steps), max(steps)) if steps else None


@dataclass(frozen=True)
class Unreadable:
    """A path that could not be read: `kind` names the error, `exit_code` is what the console script ends with for it."""

    path: str
    name: str
    kind: str
    message: str
    exit_code: int
    error: Ragen2Error = field(compare=False)


Examination = Examined | Unreadable


def examine(
    path: str | Path,
    *,
    mapping: Mapping[str, str] | None = None,
    scorer: Any = None,
    config: VerdictConfig | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> Examined:
    """Read one log, run directory, rollout file or folder of them, and judge it.

    Args:
        path: what to read; its kind is found out from its content.
        mapping: our metric name -> the log's column, for home-made names.
        scorer: measures mutual information of rollout files; logs do not need it.
        config: thresholds of the verdict.
        name: what to call the run; the short form of its path when left out.
        progress: called with (contexts scored, contexts in all) of each view while a scorer is at work.

    Raises StorageError when there is nothing at `path` or it does not read, MissingDependency for a format whose package is not
    installed.
    """
    return examine_series(read_any(path, mapping, scorer, progress), path, config=config, name=name)


def examine_series(run: RunSeries, path: str | Path, *, config: VerdictConfig | None = None, name: str | None = None) -> Examined:
    """Judge series that were read already."""
    diagnosis = diagnosis_of(run, path, config)
    return Examined(
        path=str(path),
        name=name or short_names([Path(path)])[0],
        diagnosis=diagnosis,
        series=run.series,
        figures=run_figures(run.series, config),
        unmapped=run.unmapped,
    )


def examine_all(
    paths: Sequence[str | Path],
    *,
    mapping: Mapping[str, str] | None = None,
    scorer: Any = None,
    config: VerdictConfig | None = None,
    progress: Progress | None = None,
) -> Iterator[Examination]:
    """Every path in turn; one that cannot be read does not stop the others."""
    places = [Path(path) for path in paths]
    for place, name in zip(places, short_names(places), strict=True):
        try:
            yield examine(place, mapping=mapping, scorer=scorer, config=config, name=name, progress=progress)
        except Ragen2Error as error:
            yield Unreadable(str(place), name, type(error).__name__, str(error), error.exit_code, error)


def read_any(
    path: str | Path, mapping: Mapping[str, str] | None, scorer: Any = None, progress: Progress | None = None
) -> RunSeries:
    """Series of a log, or measured from rollout files. Of a folder that holds both the log is read, unless there is a scorer."""
    if is_rollout_file(path) and (scorer is not None or not _holds_log(Path(path))):
        # The same file gives the same figures every time.
        return measure_rollouts(path, scorer, rng=np.random.default_rng(SAMPLING_SEED), progress=progress)
    run = read_log(path, mapping)
    if scorer is None:
        return run
    inside = Path(path) / "rollouts"
    hint = f" Its rollouts are in {inside}: give that folder." if inside.is_dir() else ""
    note = f"the scorer was not used: this is a log, and only rollout files hold the reasoning that it scores.{hint}"
    return replace(run, notes=(*run.notes, note))


def _holds_log(place: Path) -> bool:
    if not os.path.isdir(place):
        return False
    try:
        log_of_folder(place)
    except StorageError:
        return False
    return True
