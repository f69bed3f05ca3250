"""Short names that tell runs apart, and the runs that a folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

GENERIC = frozenset({"metrics.jsonl", "metrics.csv", "train.log", "trainer_state.json", "rollouts", "log", "logs", "output.log"})
"""File names that say nothing about the run: the folder does."""


def short_names(paths: Sequence[Path]) -> list[str]:
    """One name a path: its last part, or the folder's where that says more; with as many parts as it takes to tell them apart."""
    whole = [_parts(path) for path in paths]
    trimmed = [parts[:-1] if len(parts) > 1 and parts[-1] in GENERIC else parts for parts in whole]
    parts = trimmed if len(set(trimmed)) == len(set(whole)) else whole
    count = 1
    while count < max(map(len, parts), default=1) and len({item[-count:] for item in parts}) < len(set(parts)):
        count += 1
    return ["/".join(item[-count:]) for item in parts]


def _parts(path: Path) -> tuple[str, ...]:
    resolved = path.absolute()
    return tuple(part for part in resolved.parts if part != resolved.anchor) or (str(path),)
