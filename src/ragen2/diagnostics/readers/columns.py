"""Readings of a log collected by column, in little memory, then named like our metrics."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ragen2.diagnostics.readers.aliases import STOP_PREFIX, Match, match
from ragen2.diagnostics.readers.metric_names import STEP, resolve
from ragen2.diagnostics.readers.text_lines import Skipped
from ragen2.errors import StorageError

MAX_COLUMNS = 20_000
MAX_NAME = 300
MAX_READINGS = 20_000_000
"""All columns together; 16 bytes each."""
MOST_KEPT = 100_000
"""Readings of a column that are handed on; of more, every n-th is."""


@dataclass
class Column:
    """Readings of one column in the order they were logged; `bad` were nan or infinite, the first at step `first_bad`."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    bad: int = 0
    first_bad: int = 0

    @property
    def stride(self) -> int:
        """Every how many readings one is kept: 1 unless there are more than can be looked at."""
        return -(-len(self.steps) // MOST_KEPT)

    def last_by_step(self) -> dict[int, float]:
        """Of several readings of a step the last counts: a resumed run logs steps again."""
        stride = max(self.stride, 1)
        first = (len(self.steps) - 1) % stride
        found = dict(zip(self.steps[first::stride], self.values[first::stride], strict=True))
        return {step: found[step] for step in sorted(found)}


class Columns:
    """Takes readings of a log. Columns that stand for nothing are known by name only.

    Raises UnknownName when the mapping has a name on its left that is none of ours.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self.mapping = resolve(mapping)
        self.step_column = self.mapping.get(STEP)
        self.skipped = Skipped()
        self.notes: list[str] = []
        self.stop: str | None = None
        self.matches: dict[str, Match | None] = {}
        self.columns: dict[str, Column] = {}
        self.readings = 0
        self._steps: set[int] = set()
        self._last: int | None = None
        self._again: int | None = None
        self._wanted = frozenset(self.mapping.values())

    def wants(self, name: str) -> bool:
        """Whether readings of the column are of use (it is remembered by name either way)."""
        if name not in self.columns:
            self._meet(name)
        return name in self.columns

    def begin(self, step: int, line: int) -> bool:
        """A record of a step begins; False when there are too many readings to go on."""
        if self.readings > MAX_READINGS:
            self.skipped.add("more readings than can be kept", line)
            return False
        if self._last is not None and step < self._last and step in self._steps:
            self._again = step if self._again is None else min(self._again, step)
        self._steps.add(step)
        self._last = step
        return True

    def next_file(self) -> None:
        """What follows is another file of the same run: that its steps begin anew means nothing."""
        self._last = None

    def add(self, step: int, name: str, value: float) -> None:
        """Take a reading of a column that `wants` said yes to."""
        column = self.columns[name]
        if not math.isfinite(value):
            column.first_bad = column.first_bad if column.bad else step
            column.bad += 1
            return
        if name.startswith(STOP_PREFIX):
            self.stop = name.removeprefix(STOP_PREFIX) if value > 0 else self.stop
        column.steps.append(step)
        column.values.append(value)
        self.readings += 1

    @property
    def steps(self) -> int:
        """Different steps so far."""
        return len(self._steps)

    def names(self) -> Iterable[str]:
        """All columns met."""
        return self.matches

    def all_notes(self) -> list[str]:
        """What there is to say about the reading."""
        notes = [*self.notes, *self.skipped.notes()]
        if self._again is not None:
            notes.append(f"steps were logged again from {self._again} on (a resumed run); the last reading of a step counts")
        thinned = [column.stride for column in self.columns.values() if column.stride > 1]
        if thinned:
            notes.append(f"{len(thinned)} columns have more than {MOST_KEPT} readings: every {max(thinned)}th or so was kept")
        bad = [(name, column) for name, column in self.columns.items() if column.bad]
        for name, column in bad[:5]:
            notes.append(f"{name} is nan or infinite {column.bad} times, first at step {column.first_bad}")
        if len(bad) > 5:
            notes.append(f"{len(bad) - 5} more columns are nan or infinite at times")
        return notes

    def _meet(self, name: str) -> None:
        if name in self.matches or len(self.matches) >= MAX_COLUMNS:
            return
        found = match(name) if len(name) <= MAX_NAME else None
        self.matches[name[:MAX_NAME]] = found
        helps = name in HELPERS or (name.startswith("rewards/") and name.endswith("/std"))
        if found is not None or name in self._wanted or name.startswith(STOP_PREFIX) or helps:
            self.columns[name] = Column()


HELPERS = ("prompt_length/mean",)
"""Columns that are no metric of ours but tell how to read others."""


def require_readings(columns: Columns, place: str, what: str) -> None:
    """Raise StorageError when nothing was read, saying what was looked for and what was skipped."""
    if columns.steps:
        return
    notes = "; ".join(columns.skipped.notes())
    raise StorageError(f"{place} holds no {what}: nothing to judge" + (f" ({notes})" if notes else "") + ".")
