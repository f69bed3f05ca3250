"""From the files of a run to its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ragen2.diagnostics.readers import RunSeries, read_log
from ragen2.diagnostics.verdict import Verdict, judge, no_verdict
from ragen2.diagnostics.verdict_config import VerdictConfig


@dataclass(frozen=True)
class Diagnosis(Verdict):
    """A verdict with where it comes from: `path` as given, `source` the kind of log, `steps` how many steps it holds, `notes`
    what was skipped or guessed when it was read."""

    path: str
    source: str
    steps: int
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data (tuples become lists when written)."""
        return asdict(self)


def diagnose(path: str | Path, config: VerdictConfig | None = None, *, mapping: Mapping[str, str] | None = None) -> Diagnosis:
    """The verdict on the run logged at `path`, whichever trainer wrote the log (`read_log` says what is read).

    Args:
        path: a log, a run directory, or a folder that holds a log.
        config: thresholds of the verdict.
        mapping: {name of ours: column of the log} for names that are not known.

    Raises what `read_log` raises.
    """
    return diagnosis_of(read_log(path, mapping), path, config)


def diagnosis_of(run: RunSeries, path: str | Path, config: VerdictConfig | None = None) -> Diagnosis:
    """The verdict on series that were read already; `path` says where they come from."""
    if run.mixed:
        verdict = no_verdict(run.mixed, "write every run into a log of its own, or split the file by run, and diagnose each")
    else:
        verdict = judge(run.series, config, stop=run.stop, source=run.source)
    fields = {name: getattr(verdict, name) for name in Verdict.__dataclass_fields__}
    return Diagnosis(**fields, path=str(path), source=run.source, steps=run.steps, notes=run.notes)
