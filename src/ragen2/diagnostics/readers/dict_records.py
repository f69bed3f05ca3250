"""Records written as a dict: flat or nested a little, in JSON or as Python prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ragen2.diagnostics.readers.columns import Columns
from ragen2.diagnostics.readers.numbers import as_number

LONGEST_RECORD = 1 << 18
"""Bytes of a line that are looked at."""
KEY = re.compile(r"""['"]\s?:""")
"""Without a quoted key there is no dict to look for."""
MOST_STARTS = 8
"""Braces of a line at which a dict is looked for."""
DEEPEST = 3
MOST_KEYS = 5_000
PAIR = re.compile(
    r"\s*(?:'([^'\\]{1,300})'|\"([^\"\\]{1,300})\")\s*:\s*"
    r"(?:'([^'\\]{0,300})'|\"([^\"\\]{0,300})\"|([^\s,{}\[\]'\"()]{1,80}(?:\([^()'\"]{0,60}(?:'[^']{0,30}')?[^()'\"]{0,20}\))?))"
    r"\s*([,}])"
)
"""'key': value, with a number, a name, a short text, np.float64(…) or tensor(…, device='…') as the value."""


def parse_record(text: str) -> Mapping[str, Any] | None:
    """The first dict in a piece of text that reads up to its last brace or is flat, None where there is none. Nothing is
    evaluated."""
    end = text.rfind("}")
    if end < 0 or len(text) > LONGEST_RECORD or KEY.search(text) is None:
        return None
    text = text[: end + 1]
    start = -1
    for _ in range(MOST_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            return None
        found = _json_object(text[start:]) or _python_dict(text, start)
        if found:
            return found
    return None


def numbers_in(record: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """(name, number) of a record; nested ones are named by their path."""
    for count, (key, value) in enumerate(record.items()):
        if count >= MOST_KEYS:
            return
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if depth < DEEPEST:
                yield from numbers_in(value, f"{name}/", depth + 1)
            continue
        number = as_number(value)
        if number is not None:
            yield name, number


def take_record(columns: Columns, step: int, record: Mapping[str, Any]) -> None:
    """Take the readings of a record."""
    take_numbers(columns, step, numbers_in(record))


def take_numbers(columns: Columns, step: int, numbers: Iterable[tuple[str, float]]) -> None:
    """Take readings by name."""
    for name, value in numbers:
        if name not in NO_METRICS and columns.wants(name):
            columns.add(step, name, value)


NO_METRICS = frozenset({"step", "epoch", "global_step", "_step"})


def _json_object(text: str) -> Mapping[str, Any] | None:
    if '"' not in text:
        # What Python prints of plain numbers is JSON but for its quotes.
        text = text.replace("'", '"')
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _python_dict(text: str, start: int) -> Mapping[str, Any] | None:
    """A flat dict literal, scanned pair by pair."""
    found: dict[str, Any] = {}
    position = start + 1
    while len(found) < MOST_KEYS:
        pair = PAIR.match(text, position)
        if pair is None:
            return None
        key = pair[1] or pair[2]
        quoted = pair[3] if pair[3] is not None else pair[4]
        found[key] = quoted if quoted is not None else pair[5]
        position = pair.end()
        if pair[6] == "}":
            return found
    return None
