"""What kind of rollout file is this, and its turns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragen2.diagnostics.rollout_files import (
    evaluation_jsonl,
    ours,
    trl_parquet,
    verifiers_results,
    verifiers_traces,
    verl_jsonl,
)
from ragen2.diagnostics.rollout_files.json_lines import first_record
from ragen2.diagnostics.rollout_files.messages import plain_render, template_render
from ragen2.diagnostics.rollout_files.sample import ReadReport, Sample
from ragen2.diagnostics.rollout_files.steps import step_in_name
from ragen2.diagnostics.rollout_files.token_turns import decode_of
from ragen2.errors import StorageError

KINDS = {
    "ragen2": "rollouts of this package",
    "verl_jsonl": "verl rollout JSONL",
    "evaluation_jsonl": "evaluation JSONL of the paper's public code",
    "trl_parquet": "TRL completions parquet",
    "verifiers_traces": "verifiers traces",
    "verifiers_results": "verifiers results",
}
"""Kinds of rollout files and what they are called."""

SUFFIXES = (".jsonl", ".json", ".parquet")
"""Files of a folder that are looked into."""

_MATCHES = {
    "ragen2": ours.matches,
    "verifiers_traces": verifiers_traces.matches,
    "evaluation_jsonl": evaluation_jsonl.matches,
    "verifiers_results": verifiers_results.matches,
    "verl_jsonl": verl_jsonl.matches,
}


def rollout_kind(path: str | Path) -> str | None:
    """A key of `KINDS` found out from the content of a file, or of the files of a folder; None for anything else.

    Raises StorageError when it cannot be read, or a folder holds several kinds.
    """
    place = Path(path)
    if not os.path.isdir(place):
        return _file_kind(place)
    found = _folder(place)
    kinds = sorted(set(found.values()))
    if len(kinds) > 1:
        examples = [next(file.name for file, kind in found.items() if kind == wanted) for wanted in kinds]
        described = ", ".join(f"{KINDS[kind]} ({name})" for kind, name in zip(kinds, examples, strict=True))
        raise StorageError(f"{path} holds several kinds of rollout files: {described}. Give one of them, or part the folder.")
    return kinds[0] if kinds else None


def is_rollout_file(path: str | Path) -> bool:
    """Whether `read_rollouts` knows what to do with a file or folder. A folder of several kinds counts: reading it says why
    it cannot be read. What cannot be opened does not count."""
    place = Path(path)
    try:
        return bool(_folder(place)) if os.path.isdir(place) else _file_kind(place) is not None
    except StorageError:
        return False


def read_rollouts(path: str | Path, *, tokenizer: Any = None, report: ReadReport | None = None) -> Iterator[Sample]:
    """Turns one by one, the files of a folder by step; `report` collects what was left out and assumed.

    With `tokenizer` chat messages are rendered with its template, and where a file of verifiers holds token ids the turns are
    given as ids. Of a folder, files that do not read are left out and counted.

    Raises StorageError for a file that is no rollout file, several kinds in a folder, or nothing that reads.
    """
    place = Path(path)
    report = ReadReport() if report is None else report
    kind = rollout_kind(place)
    if kind is None:
        raise StorageError(
            f"{path} holds no rollouts this version reads. It reads {', '.join(KINDS.values())}: JSON lines or parquet."
        )
    if not os.path.isdir(place):
        yield from _read_file(place, kind, tokenizer, report)
        return
    read, last = 0, None
    for file in sorted(_folder(place), key=lambda item: (step_in_name(item) or 0, item.name)):
        try:
            yield from _read_file(file, kind, tokenizer, report)
            read += 1
        except StorageError as error:
            report.skip("files that do not read")
            last = error
    if last is not None and not read:
        raise last


def _read_file(path: Path, kind: str, tokenizer: Any, report: ReadReport) -> Iterator[Sample]:
    render = plain_render if tokenizer is None else template_render(tokenizer, report)
    if kind == "ragen2":
        return ours.read(path, report)
    if kind == "verl_jsonl":
        return verl_jsonl.read(path, report)
    if kind == "evaluation_jsonl":
        return evaluation_jsonl.read(path, report, render)
    if kind == "trl_parquet":
        return trl_parquet.read(path, report, render)
    if kind == "verifiers_results":
        return verifiers_results.read(path, report, render)
    return verifiers_traces.read(path, report, render, None if tokenizer is None else decode_of(tokenizer))


def _file_kind(path: Path) -> str | None:
    if not os.path.isfile(path):
        return None
    if trl_parquet.matches_file(path):
        return "trl_parquet"
    record = first_record(path)
    if record is None:
        return None
    return next((kind for kind, matches in _MATCHES.items() if matches(record)), None)


def _folder(place: Path) -> dict[Path, str]:
    """Rollout files of a folder and their kinds."""
    try:
        files = sorted(item for item in place.iterdir() if item.suffix in SUFFIXES and not item.name.startswith("."))
    except OSError as error:
        raise StorageError(f"cannot read {place}: {error.strerror or error}") from error
    kinds = {file: _file_kind(file) for file in files}
    return {file: kind for file, kind in kinds.items() if kind is not None}
