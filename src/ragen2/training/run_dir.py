"""The run directory: its files and their names."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen2.errors import ConfigError, StorageError
from ragen2.storage import write_whole


@dataclass(frozen=True)
class RunDirectory:
    """`config.yaml`, `run.json` (versions, model, machine), `metrics.jsonl`, `rollouts/`, `checkpoints/`, `verdict.json`,
    `summary.json`, `model/` (the trained policy) and `report.html`."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def about(self) -> Path:
        return self.path / "run.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def rollouts(self) -> Path:
        return self.path / "rollouts"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def model(self) -> Path:
        return self.path / "model"

    def write_json(self, path: Path, data: Any) -> None:
        """Write plain data, whole."""
        write_whole(path, (json.dumps(data, indent=1) + "\n").encode())


def new_run_directory(out: str, recipe: str, algorithm: str) -> RunDirectory:
    """A new folder `<out>/<recipe>-<algorithm>-<time>`, numbered when it exists."""
    # A recipe's name may hold anything; a folder's should be easy to type.
    name = re.sub(r"[^\w.-]+", "-", Path(recipe).stem).strip("-.")[:60] or "run"
    stem = f"{name}-{algorithm}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1000):
        path = Path(out) / (stem if number == 0 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except (OSError, ValueError) as error:
            # ValueError: a NUL in `out`.
            reason = getattr(error, "strerror", None) or error
            raise StorageError(f"cannot make the run directory {path}: {reason}. Choose another `out`.") from error
        return RunDirectory(path)
    raise StorageError(f"a thousand run directories named {stem} exist already; clean up {out}")


def open_run_directory(path: str | Path) -> RunDirectory:
    """An existing run. Raises ConfigError when `path` is not one."""
    run = RunDirectory(Path(path))
    if not run.config.is_file():
        raise ConfigError(f"{path} is not a run directory: it has no config.yaml")
    return run


@contextmanager
def only_trainer(run: RunDirectory) -> Iterator[None]:
    """Hold the run's lock (the system lets go of it even when the process dies). Raises ConfigError when another process trains
    in this folder: the two would delete each other's checkpoints."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(run.path / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"another process is training in {run.path}; wait for it, or stop it first") from error
        yield
