"""The metrics of a run: one flat JSON object a step in metrics.jsonl, and the same numbers to TensorBoard, W&B or trackio."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ragen2.errors import ConfigError, MissingDependency, StorageError, UnknownName
from ragen2.storage import write_whole

FILE_NAME = "metrics.jsonl"
WRITERS = ("jsonl", "tensorboard", "wandb", "trackio")

Value = float | int | str | bool | None

_log = logging.getLogger(__name__)
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Writer(Protocol):
    """A place outside the run directory's metrics.jsonl that numbers go to."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricsLog:
    """Appends metrics to `run_dir`/metrics.jsonl and to the writers asked for.

    A line is `{"step": 3, "train/success": 0.5, ...}`: one object a step, steps increasing. None is written as null and means
    "not measured"; NaN and infinities, which JSON does not have, are written as the strings "nan", "inf" and "-inf" and read
    back as floats by `read_metrics`. Each line is on disk when `log` returns.

    `writers` may name "jsonl" (always on), "tensorboard" (left out with a note when not installed), "wandb" and "trackio" (an
    error when not installed, since they were asked for). A last line cut short by a kill is dropped on opening. `notes` holds
    what was left out or dropped. Raises UnknownName, MissingDependency, StorageError.
    """

    def __init__(
        self,
        run_dir: str | Path,
        writers: Sequence[str] = ("jsonl", "tensorboard"),
        *,
        project: str = "ragen2",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(run_dir) / FILE_NAME
        self.notes: list[str] = []
        self._project, self._config = project, dict(config or {})
        self._names = _usable_writers(writers, self.notes)
        self._writers: dict[str, Writer] = {}
        self._purge_step: int | None = None
        steps = self._repair()
        self.last_step: int | None = steps[-1] if steps else None
        self._file = _open_for_append(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write the metrics of one step. Raises ConfigError for a step already written or a value that is not a scalar,
        StorageError when the disk takes no more (what was there before stays readable)."""
        if self.last_step is not None and step <= self.last_step:
            raise ConfigError(
                f"metrics of step {step} after those of step {self.last_step}: steps must increase."
                f" To go back, call truncate_after({step - 1}) first."
            )
        record = {"step": int(step), **{_checked_name(name): _scalar(name, value) for name, value in metrics.items()}}
        line = json.dumps({name: _to_json(value) for name, value in record.items()}, allow_nan=False) + "\n"
        self._append(line.encode())
        self.last_step = int(step)
        numbers = {name: float(x) for name, x in record.items() if name != "step" and isinstance(x, int | float)}
        for name in self._names:
            self._writer(name).write(step, numbers)

    def truncate_after(self, step: int) -> int:
        """Drop the lines of steps later than `step` (exact resume from a checkpoint) and return how many were dropped.

        TensorBoard hides the later points; W&B and trackio keep what they were sent.
        """
        records = _read_records(self.path) if self.path.exists() else []
        kept = [line for line, record in records if record["step"] <= step]
        dropped = len(records) - len(kept)
        if dropped:
            self._file.close()
            write_whole(self.path, b"".join(kept))
            self._file = _open_for_append(self.path)
            self.notes.append(f"dropped {dropped} lines of metrics after step {step}")
            tensorboard = self._writers.pop("tensorboard", None)
            if tensorboard is not None:
                tensorboard.close()
        self.last_step = max((record["step"] for _, record in records if record["step"] <= step), default=None)
        self._purge_step = step + 1
        return dropped

    def close(self) -> None:
        """Close the file and every writer. Safe to call twice."""
        self._file.close()
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _append(self, data: bytes) -> None:
        start = self._file.tell()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            os.truncate(self.path, start)
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}. Free some space.") from error

    def _repair(self) -> list[int]:
        """Cut a half-written last line off the file; return the steps it holds."""
        if not self.path.exists():
            return []
        records = _read_records(self.path)
        whole = sum(len(line) for line, _ in records)
        size = self.path.stat().st_size
        if whole < size:
            os.truncate(self.path, whole)
            self.notes.append(f"dropped a half-written last line ({size - whole} bytes) of {self.path.name}")
        return [record["step"] for _, record in records]

    def _writer(self, name: str) -> Writer:
        if name not in self._writers:
            if name == "tensorboard":
                self._writers[name] = _TensorBoard(self.path.parent / "tensorboard", self._purge_step)
            else:
                self._writers[name] = _HostedRun(name, self._project, self.path.parent, self._config)
        return self._writers[name]


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """The steps of a metrics.jsonl (or of the run directory that holds it), in order, non-finite numbers as floats.

    A half-written last line is left out and reported through `logging`. Raises StorageError naming any other line that does
    not read.
    """
    path = Path(path)
    path = path / FILE_NAME if path.is_dir() else path
    records = _read_records(path)
    whole, size = sum(len(line) for line, _ in records), path.stat().st_size
    if whole < size:
        _log.warning("%s: left out a half-written last line (%d bytes)", path, size - whole)
    return [{name: _from_json(value) for name, value in record.items()} for _, record in records]


def _read_records(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Whole lines with their objects; only a last line without a line end may be broken."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    found = []
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StorageError(f"{path} line {number} is not JSON: {error}. Mend or remove that line.") from error
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise StorageError(f"{path} line {number} is not an object with a whole number 'step'. Mend or remove that line.")
        found.append((line, record))
    return found


def _open_for_append(path: Path) -> Any:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: what a full disk refused must not be written later, when the file is closed.
        return open(path, "ab", buffering=0)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}. Choose another folder.") from error


def _usable_writers(asked: Iterable[str], notes: list[str]) -> list[str]:
    usable = []
    for name in asked:
        if name not in WRITERS:
            raise UnknownName("metrics writer", name, WRITERS)
        package = "torch" if name == "tensorboard" and importlib.util.find_spec("torch") is None else name
        if name == "jsonl":
            continue
        if importlib.util.find_spec(package) is not None:
            usable.append(name)
        elif name == "tensorboard":
            notes.append(f"no TensorBoard files: the package {package!r} is not installed (pip install 'ragen2[train]')")
        else:
            raise MissingDependency(name, name, f"the metrics writer {name!r}")
    return usable


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name or name == "step":
        raise ConfigError(f"metric name {name!r}: use a non-empty path such as 'train/success'; 'step' is taken")
    return name


def _scalar(name: str, value: Any) -> Value:
    if not isinstance(value, str) and hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ConfigError(f"metric {name!r} is a {type(value).__name__}: give a number, text, True, False or None")


def _to_json(value: Value) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def _from_json(value: Any) -> Any:
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


class _TensorBoard:
    def __init__(self, folder: Path, purge_step: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=purge_step)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _HostedRun:
    """A W&B or trackio run; both packages share init, log and finish."""

    def __init__(self, package: str, project: str, run_dir: Path, config: Mapping[str, Any]) -> None:
        self._package = importlib.import_module(package)
        options: dict[str, Any] = {"project": project, "name": run_dir.resolve().name, "config": dict(config)}
        if package == "wandb":
            options["dir"] = str(run_dir)
        self._package.init(**options)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._package.log(dict(numbers), step=step)

    def close(self) -> None:
        self._package.finish()
