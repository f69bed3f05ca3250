"""What a run directory holds, read tolerantly: what is missing or broken becomes a note, not a failure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ragen2.errors import ConfigError, StorageError
from ragen2.reports.text import as_number
from ragen2.training.metrics_log import FILE_NAME, read_metrics
from ragen2.trajectory import RolloutBatch

MOST_TRAIN_FILES = 6
MOST_VALIDATION_FILES = 6


@dataclass(frozen=True)
class Rollouts:
    """One rollout file: its name, the step in it, whether it is of held-out levels, and its trajectories."""

    name: str
    step: int
    validation: bool
    batch: RolloutBatch


@dataclass(frozen=True)
class RunData:
    """A run as far as it can be read. `metrics` is one dict a step; `verdict`, `summary` and `about` the content of verdict.json,
    summary.json and run.json, or None; `rollouts` the files read, spread over the run, in order of step."""

    path: Path
    config_text: str | None
    metrics: list[dict[str, Any]]
    verdict: dict[str, Any] | None
    summary: dict[str, Any] | None
    about: dict[str, Any] | None
    rollouts: list[Rollouts]
    rollout_files: int
    notes: list[str] = field(default_factory=list)

    def names(self, *patterns: str) -> list[str]:
        """Metric names that match any of the shell patterns, in the order of the patterns, then of first appearance."""
        seen = dict.fromkeys(name for record in self.metrics for name in record if name != "step")
        return list(dict.fromkeys(name for pattern in patterns for name in seen if fnmatchcase(name, pattern)))

    def series(self, name: str) -> list[tuple[float, float]]:
        """(step, value) where the metric is a finite number."""
        found = [(record["step"], as_number(record.get(name))) for record in self.metrics]
        return [(float(step), value) for step, value in found if value is not None]

    def last(self, name: str) -> float | None:
        """The last finite value of a metric."""
        points = self.series(name)
        return points[-1][1] if points else None


def read_run(run_dir: str | Path) -> RunData:
    """Read a run directory. Raises ConfigError when it is not a folder or holds none of the files a run writes."""
    path = Path(run_dir)
    if not path.is_dir():
        raise ConfigError(f"run directory {str(run_dir)!r} is not a folder. Give the folder that holds {FILE_NAME}.")
    notes: list[str] = []
    config_text = _text(path / "config.yaml", notes)
    metrics = _metrics(path, notes)
    verdict, summary, about = (_json(path / name, notes) for name in ("verdict.json", "summary.json", "run.json"))
    files = sorted((path / "rollouts").glob("*.jsonl"), key=lambda file: (step_of(file.stem), file.name))
    if config_text is None and not metrics and verdict is None and not files:
        raise ConfigError(
            f"{path} holds none of config.yaml, {FILE_NAME}, verdict.json and rollouts/*.jsonl:"
            " it is not a run directory of ragen2. Give the folder that `ragen2 train` printed."
        )
    rollouts = _rollouts(chosen_files(files), notes)
    return RunData(path, config_text, metrics, verdict, summary, about, rollouts, len(files), notes)


def step_of(stem: str) -> int:
    """The last number in a file's stem, `train-000012` -> 12; 0 where there is none."""
    found = re.findall(r"\d+", stem[:200])
    return int(found[-1]) if found else 0


def chosen_files(files: Sequence[Path]) -> list[Path]:
    """Of files in order of step: training files spread over the run, and those of the last validation."""
    held_out = [file for file in files if file.name.startswith("validation")]
    last = [file for file in held_out if step_of(file.stem) == step_of(held_out[-1].stem)][:MOST_VALIDATION_FILES]
    kept = {*spread([file for file in files if file not in held_out], MOST_TRAIN_FILES), *last}
    return [file for file in files if file in kept]


def spread(items: Sequence[Path], most: int) -> list[Path]:
    """At most `most` items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]


def _text(path: Path, notes: list[str]) -> str | None:
    if not path.exists():
        notes.append(f"no {path.name}")
        return None
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        notes.append(f"cannot read {path.name}: {error.strerror or error}")
        return None


def _metrics(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    if not (path / FILE_NAME).exists():
        notes.append(f"no {FILE_NAME}")
        return []
    try:
        return read_metrics(path)
    except StorageError as error:
        notes.append(str(error))
        return []


def _json(path: Path, notes: list[str]) -> dict[str, Any] | None:
    text = _text(path, notes) if path.exists() else None
    if text is None:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        notes.append(f"{path.name} is not JSON: {error}")
        return None
    if not isinstance(record, dict):
        notes.append(f"{path.name} is not a JSON object")
        return None
    return record


def _rollouts(files: Sequence[Path], notes: list[str]) -> list[Rollouts]:
    found = []
    for file in files:
        try:
            batch = RolloutBatch.from_jsonl(file)
            found.append(Rollouts(file.name, step_of(file.stem), file.name.startswith("validation"), batch))
        except StorageError as error:
            notes.append(f"left out of the report: {error}")
    return found
