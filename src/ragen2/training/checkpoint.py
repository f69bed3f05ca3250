"""Checkpoints: a folder with the policy as a standard Hugging Face model, everything else needed to go on, and checksums."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen2.errors import CheckpointCorrupt, StorageError

if TYPE_CHECKING:
    import torch

MANIFEST = "manifest.json"
STATE = "state.json"
TENSORS = "tensors.pt"
POLICY = "policy"
_NAME = re.compile(r"step-(\d{6,12})")


@dataclass(frozen=True)
class Checkpoint:
    """A read checkpoint: `state` is plain data, `tensors` a nested dict of tensors, `policy` the model's folder."""

    path: Path
    step: int
    state: dict[str, Any]
    tensors: dict[str, Any]

    @property
    def policy(self) -> Path:
        return self.path / POLICY

    @property
    def start_model(self) -> str:
        """Folder or hub id of the weights its run started from. Raises CheckpointCorrupt when none is named."""
        found = self.state.get("start_model")
        if not isinstance(found, str):
            raise CheckpointCorrupt(f"checkpoint {self.path}: {STATE} names no start_model; it is not a checkpoint of a run")
        return found


def save_checkpoint(
    folder: Path, step: int, save_policy: Callable[[Path], None], state: Mapping[str, Any], tensors: Mapping[str, Any]
) -> Path:
    """Write checkpoint `step` under `folder`, whole: built beside its place, checksummed, then renamed.

    Raises StorageError when it cannot be written (the earlier checkpoints stay).
    """
    import torch

    def put(building: Path) -> None:
        building.mkdir(parents=True)
        save_policy(building / POLICY)
        (building / STATE).write_text(json.dumps({"step": step, **state}), encoding="utf-8")
        torch.save(dict(tensors), building / TENSORS)
        digests = {path.relative_to(building).as_posix(): _digest(path) for path in sorted(building.rglob("*")) if path.is_file()}
        (building / MANIFEST).write_text(json.dumps(digests, indent=1), encoding="utf-8")

    final = folder / f"step-{step:06d}"
    write_folder_whole(final, put, f"the checkpoint {final}")
    return final


def write_folder_whole(final: Path, put: Callable[[Path], None], what: str) -> None:
    """Let `put` make a folder beside its place, then rename it. An earlier folder there is replaced.

    Raises StorageError naming `what` when it cannot be written; nothing half-written stays.
    """
    from safetensors import SafetensorError

    building = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        shutil.rmtree(building, ignore_errors=True)
        final.parent.mkdir(parents=True, exist_ok=True)
        put(building)
        _flush(building)
        if final.exists():
            shutil.rmtree(final)
        os.replace(building, final)
    except (OSError, RuntimeError, SafetensorError) as error:
        # A full disk arrives as OSError, from torch as RuntimeError, from safetensors as its own error.
        shutil.rmtree(building, ignore_errors=True)
        raise StorageError(f"cannot write {what}: {error}. Free some space; earlier checkpoints are whole.") from error


def load_checkpoint(path: Path, device: str | torch.device = "cpu") -> Checkpoint:
    """Read a checkpoint and verify every checksum.

    Raises CheckpointCorrupt naming the file at fault and, when there is one, the newest whole checkpoint beside it.
    """
    import torch

    fault = _fault(path)
    if fault is not None:
        others = [other for other in list_checkpoints(path.parent) if other != path and _fault(other) is None]
        advice = f" Whole: {others[-1]}." if others else " No other checkpoint here is whole."
        raise CheckpointCorrupt(f"checkpoint {path}: {fault}.{advice}")
    try:
        state = dict(json.loads((path / STATE).read_text(encoding="utf-8")))
        step = int(state["step"])
        tensors = torch.load(path / TENSORS, map_location=device, weights_only=True)
    except (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, RecursionError, pickle.UnpicklingError) as error:
        # What torch says about a file it does not trust is advice to load it all the same.
        reason = "it holds more than tensors" if isinstance(error, pickle.UnpicklingError) else repr(error)
        raise CheckpointCorrupt(f"checkpoint {path}: its checksums agree but it does not read ({reason})") from error
    return Checkpoint(path, step, state, tensors)


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints under `folder`, oldest first. Unfinished ones have other names and are not listed."""
    if not folder.is_dir():
        return []
    found = [(int(match.group(1)), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, and what interrupted writes left behind."""
    for path in list_checkpoints(folder)[:-keep]:
        shutil.rmtree(path)
    for path in folder.glob(".step-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def drop_checkpoints_after(folder: Path, step: int) -> None:
    """Remove checkpoints later than `step`: a run that goes on from there makes them anew, and pruning goes by their numbers."""
    for path in list_checkpoints(folder):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)


def find_checkpoint(path: Path) -> Path:
    """The checkpoint meant by `path`: itself, or the newest one of a run directory. Raises StorageError when there is none."""
    if (path / MANIFEST).is_file() or _NAME.fullmatch(path.name):
        return path
    found = list_checkpoints(path / "checkpoints") or list_checkpoints(path)
    if not found:
        raise StorageError(f"no checkpoint in {path}: give a run directory, or one of its checkpoints/step-* folders")
    return found[-1]


def _fault(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        digests = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(digests, dict):
            return f"{MANIFEST} is not a mapping of checksums"
        if missing := [name for name in (STATE, TENSORS) if name not in digests]:
            return f"{MANIFEST} does not list {missing[0]}"
        for name, digest in digests.items():
            # A name that leaves the folder (by dots or a link) is not this checkpoint's, and what is there may never end.
            if not (path / name).resolve().is_relative_to(path.resolve()) or not (path / name).is_file():
                return f"{MANIFEST} lists {name}, which is not a file of this checkpoint"
            if _digest(path / name) != digest:
                return f"{name} does not match its checksum"
        for file in (path / POLICY).rglob("*"):
            if file.is_file() and file.relative_to(path).as_posix() not in digests:
                return f"{MANIFEST} does not list {file.relative_to(path)}"
    except (OSError, ValueError, RecursionError) as error:
        return f"cannot be read ({error})"
    return None


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
