"""Readings of a log collected by column, in little memory, then named like our metrics."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ragen2.diagnostics.readers.aliases import STOP_PREFIX, Match, match
from ragen2.diagnostics.readers.metric_names import STEP, resolve
from ragen2.diagnostics.readers.numbers import is_reading
from ragen2.diagnostics.readers.text_lines import Skipped
from ragen2.errors import StorageError

MAX_COLUMNS = 20_000
MAX_NAME = 300
MAX_READINGS = 20_000_000
"""All columns together; 16 bytes each."""
MOST_RESTARTS = 20
"""Times that the steps of a log may go back and be taken for a resumed run: more are several runs written into one file."""
MOST_KEPT = 100_000
"""Readings of a column that are handed on; of more, every n-th is."""


@dataclass
class Column:
    """Readings of one column in the order they were logged; `bad` were nan or infinite, the first at step `first_bad`, and
    `again` followed another value of the same step."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    bad: int = 0
    again: int = 0
    first_bad: int = 0

    def forget_from(self, step: int) -> int:
        """Drop the readings of a step and of later ones; how many there were."""
        steps_K = np.frombuffer(self.steps, dtype=np.int64)
        keep_K = steps_K < step
        dropped = len(steps_K) - int(keep_K.sum())
        if dropped:
            values_K = np.frombuffer(self.values, dtype=np.float64)
            self.steps, self.values = array("q", steps_K[keep_K].tobytes()), array("d", values_K[keep_K].tobytes())
        return dropped

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
        self._back_to: int | None = None
        self._backwards = 0
        self._restarts: list[tuple[int, int]] = []
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
            self._back_to = step if self._backwards < MOST_RESTARTS else None
            self._backwards += 1
        else:
            self._back_to = None
        self._steps.add(step)
        self._last = step
        return True

    def next_file(self) -> None:
        """What follows is another file of the same run: that its steps begin anew means nothing."""
        self._last = None
        self._back_to = None

    def add(self, step: int, name: str, value: float) -> None:
        """Take a reading of a column that `wants` said yes to."""
        column = self.columns[name]
        if self._back_to is not None and self._back_to in column.steps:
            self._start_over(self._back_to)
        if not is_reading(value):
            column.first_bad = column.first_bad if column.bad else step
            column.bad += 1
            return
        if name.startswith(STOP_PREFIX):
            self.stop = name.removeprefix(STOP_PREFIX) if value > 0 else self.stop
        column.again += bool(column.steps) and column.steps[-1] == step and column.values[-1] != value
        column.steps.append(step)
        column.values.append(value)
        self.readings += 1

    @property
    def steps(self) -> int:
        """Different steps so far."""
        return len(self._steps)

    @property
    def mixed(self) -> str | None:
        """Why several runs seem to be mixed in what was read; None where they do not."""
        if self._backwards < MOST_RESTARTS:
            return None
        return f"steps go back {self._backwards} times: this looks like several runs in one file. Give each its own file"

    def names(self) -> Iterable[str]:
        """All columns met."""
        return self.matches

    def all_notes(self) -> list[str]:
        """What there is to say about the reading."""
        notes = [*self.notes, *self.skipped.notes()]
        notes += self._restart_notes()
        again = [name for name, column in self.columns.items() if column.again > len(column.steps) // 3]
        if again:
            notes.append(
                f"{', '.join(again[:3])}{' and more' if len(again) > 3 else ''}: most steps were logged several times with "
                "different values, and the last counts. Where two runs write into this file, give each its own"
            )
        thinned = [column.stride for column in self.columns.values() if column.stride > 1]
        if thinned:
            notes.append(f"{len(thinned)} columns have more than {MOST_KEPT} readings: every {max(thinned)}th or so was kept")
        bad = [(name, column) for name, column in self.columns.items() if column.bad]
        for name, column in bad[:5]:
            notes.append(f"{name} is nan or infinite {column.bad} times, first at step {column.first_bad}")
        if len(bad) > 5:
            notes.append(f"{len(bad) - 5} more columns are nan or infinite at times")
        return notes

    def _start_over(self, step: int) -> None:
        """A step is logged a second time after later ones: the run was resumed from there, or another one began. What was logged
        from that step on belongs to the attempt that was given up."""
        self._back_to = self.stop = None
        later = [seen for seen in self._steps if seen >= step]
        self._restarts.append((step, max(later)))
        self._steps.difference_update(later)
        self._steps.add(step)
        for column in self.columns.values():
            self.readings -= column.forget_from(step)

    def _restart_notes(self) -> list[str]:
        """What there is to say about steps that went back."""
        if self.mixed:
            return [self.mixed]
        whole = [(step, last) for step, last in self._restarts if step <= min(self._steps, default=step)]
        notes = []
        if whole:
            count = f"{len(whole)} earlier run{'s' if len(whole) > 1 else ''}"
            notes.append(
                f"the log starts over at step {whole[-1][0]} after step {whole[-1][1]}: {count} in the same file "
                f"{'were' if len(whole) > 1 else 'was'} left out and only the last is judged"
            )
        resumed = [restart for restart in self._restarts if restart not in whole]
        if resumed:
            again = f" ({len(resumed)} times)" if len(resumed) > 1 else ""
            first, last = resumed[0]
            notes.append(
                f"steps were logged again from {first} on{again} (a resumed run): "
                f"what had been logged from there to step {last} was left out"
            )
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
