"""From the files of a run to its verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ragen2.diagnostics.read_run import FILE_NAME, looks_like_metrics, read_run
from ragen2.diagnostics.verdict import Verdict, judge
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.errors import StorageError


@dataclass(frozen=True)
class Diagnosis(Verdict):
    """A verdict with where it comes from: `path` as given, `source` the kind of log, `steps` how many steps it holds."""

    path: str
    source: str
    steps: int
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data (tuples become lists when written)."""
        return asdict(self)


def diagnose(path: str | Path, config: VerdictConfig | None = None) -> Diagnosis:
    """The verdict on the run at `path`: a run directory or its metrics.jsonl.

    Raises StorageError when there is nothing at `path`, it does not read, or it is not a log this version knows.
    """
    place = Path(path)
    if not place.exists():
        raise StorageError(f"{path} does not exist. Give a run directory (it holds {FILE_NAME}) or a {FILE_NAME}.")
    if place.is_dir() and not (place / FILE_NAME).is_file():
        raise StorageError(
            f"{path} holds no {FILE_NAME}: it is not a run directory. Give the folder that `ragen2 train` printed."
        )
    if place.is_file() and not looks_like_metrics(place):
        raise StorageError(
            f"{path} is not a log this version reads. It reads run directories and {FILE_NAME} (one JSON object a step)."
        )
    run = read_run(place)
    verdict = judge(run.series, config, stop=run.stop)
    fields = {name: getattr(verdict, name) for name in Verdict.__dataclass_fields__}
    return Diagnosis(**fields, path=str(path), source="ragen2", steps=run.steps, notes=run.notes)
