"""A growing log as series so far: line by line where the format allows, else by reading it again when it has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ragen2.diagnostics.follow_collectors import Collector
from ragen2.diagnostics.log_tail import LogTail
from ragen2.diagnostics.readers import RunSeries, read_log
from ragen2.errors import StorageError

REST = 10.0
"""A log that is read anew each time gets this many times the reading time before it is read again."""


class Source(Protocol):
    """Where readings come from. `hold_back` says that the newest step may still be incomplete."""

    hold_back: bool

    def update(self) -> bool:
        """Read what was added; whether that was anything. Raises StorageError when the log cannot be read."""
        ...

    def finish(self) -> bool:
        """Take a last line whose end was never written and let go of the log; whether that was anything."""
        ...

    def run(self) -> RunSeries:
        """All series so far."""
        ...


class LineSource:
    """A log with a record a line: only what was added is read.

    When the log begins anew and its steps go on, it was rotated and what was read before stays; when they start over, what was
    read before is forgotten.
    """

    hold_back = False

    def __init__(self, path: Path, collect: Callable[[], Collector]) -> None:
        self._tail, self._collect = LogTail(path), collect
        self._now = collect()
        self._before: RunSeries | None = None
        self._restarts = 0

    def update(self) -> bool:
        """See Source."""
        news = False
        for line in self._tail.read():
            self._look_for_restart()
            news = self._now.take(line) or news
        self._look_for_restart()
        return news

    def finish(self) -> bool:
        """See Source."""
        rest = self._tail.rest
        self._tail.close()
        return bool(rest) and self._now.take(rest)

    def run(self) -> RunSeries:
        """See Source."""
        now = self._now.run()
        found = now if self._before is None else joined(self._before, now)
        if not self._tail.too_long:
            return found
        count = self._tail.too_long
        return replace(found, notes=(*found.notes, f"{count} line{'s' if count > 1 else ''} too long for a record left out"))

    def _look_for_restart(self) -> None:
        if self._tail.restarts == self._restarts:
            return
        self._restarts = self._tail.restarts
        self._before = self.run()
        self._now = self._collect()


class SnapshotSource:
    """A log in a format without a record a line: read anew when it has changed, and not so often that reading takes all the
    time. A table may still gain columns of its newest step."""

    hold_back = True

    def __init__(self, path: Path, mapping: Mapping[str, str] | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._mapping, self._clock = path, mapping, clock
        self._state: tuple[tuple[int, int, int], ...] = ()
        self._not_before = clock()
        self._run: RunSeries | None = None

    def update(self) -> bool:
        """See Source."""
        return self._clock() >= self._not_before and self._read()

    def finish(self) -> bool:
        """See Source."""
        self._read()
        return True

    def run(self) -> RunSeries:
        """See Source."""
        return self._run or RunSeries({}, 0)

    def _read(self) -> bool:
        state = _state(self._path)
        if state == self._state:
            return False
        started = self._clock()
        self._run = read_log(self._path, self._mapping)
        self._not_before = self._clock() + REST * (self._clock() - started)
        self._state = state
        return True


def joined(before: RunSeries, after: RunSeries) -> RunSeries:
    """What two files of a log say together: `after` alone when its steps start over, else also what came before its first."""
    start, first = first_step(before), first_step(after)
    if first is None:
        return before
    if start is None or first <= start:
        return after
    series = {name: [point for point in points if point[0] < first] for name, points in before.series.items()}
    for name, points in after.series.items():
        series[name] = [*series.get(name, []), *points]
    series = {name: points for name, points in series.items() if points}
    steps = len({step for points in series.values() for step, _ in points})
    notes = tuple(dict.fromkeys([*before.notes, *after.notes, f"the log began anew at step {first}"]))
    names = {**before.names, **after.names}
    unmapped = tuple(sorted({*before.unmapped, *after.unmapped}))
    return RunSeries(series, steps, after.stop or before.stop, notes, after.source, unmapped, names)


def first_step(run: RunSeries) -> int | None:
    """The first step with a reading."""
    return min((points[0][0] for points in run.series.values() if points), default=None)


def _state(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Inode, size and time of the file, or of every file of a folder."""
    try:
        files = sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]
        found = [os.stat(item) for item in files]
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return tuple((item.st_ino, item.st_size, item.st_mtime_ns) for item in found)
