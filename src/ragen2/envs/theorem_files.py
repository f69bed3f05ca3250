"""Stored theorems: the library that comes with ragen2, and files of theorems of one's own."""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from ragen2.errors import ConfigError
from ragen2.provers.base import Theorem

MAX_FILE_BYTES = 1 << 28
MAX_STATEMENT_CHARS = 20_000
_HEADER_FIELDS = ("header", "preamble")
_STATEMENT_FIELDS = ("formal_statement", "statement")


@functools.cache
def library() -> tuple[Theorem, ...]:
    """Theorems on logic, numbers, lists and trees in Coq, each with a reference proof that uses nothing but Coq's prelude."""
    text = files("ragen2.envs").joinpath("data/theorem/library.json").read_text(encoding="utf-8")
    return tuple(
        Theorem(entry["name"], entry["statement"], entry["header"], tuple(entry["proof"]))
        for entry in json.loads(text)["theorems"]
    )


@functools.cache
def theorems_of_file(path: str) -> tuple[Theorem, ...]:
    """Theorems of a JSON Lines file, such as miniF2F's.

    A line is an object with `name`, `formal_statement` (or `statement`), and where needed `header`; `proof` may list tactics. A
    Lean statement may be whole (`theorem name … : … := by sorry`), as miniF2F has it. Raises ConfigError, naming the line, for
    anything else.
    """
    place = Path(path).expanduser()
    try:
        if place.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} has more than {MAX_FILE_BYTES} bytes; give a smaller file of theorems")
        lines = place.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file of theorems {path!r} cannot be read: {error}") from error
    found = tuple(_theorem(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip())
    if not found:
        raise ConfigError(f"{path} holds no theorem; give a line with name and formal_statement for each")
    return found


def _theorem(line: str, where: str) -> Theorem:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is no JSON object: {error}") from error
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is a {type(entry).__name__}; give an object with name and formal_statement")
    statement = _text(entry, _STATEMENT_FIELDS, where)
    if not statement:
        raise ConfigError(f"{where} has no formal_statement; it holds {sorted(entry)[:10]}")
    proof = entry.get("proof") or []
    if not isinstance(proof, list) or not all(isinstance(tactic, str) for tactic in proof):
        raise ConfigError(f"{where}: proof is {type(proof).__name__}; give a list of tactics, or none")
    return Theorem(_text(entry, ("name",), where) or where, statement, _text(entry, _HEADER_FIELDS, where), tuple(proof))


def _text(entry: dict[str, Any], fields: tuple[str, ...], where: str) -> str:
    for field in fields:
        value = entry.get(field)
        if value is None:
            continue
        if not isinstance(value, str) or len(value) > MAX_STATEMENT_CHARS:
            raise ConfigError(f"{where}: {field} must be a text of at most {MAX_STATEMENT_CHARS} characters")
        return value.strip()
    return ""
