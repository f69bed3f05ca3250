"""Watches a growing log: alarms as they come, the verdict so far at any time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ragen2.diagnostics.examine import Examined, examine_series
from ragen2.diagnostics.follow_formats import CannotFollow, open_source
from ragen2.diagnostics.follow_sources import Source, first_step
from ragen2.diagnostics.online_verdict import Alarm, OnlineVerdict
from ragen2.diagnostics.readers import RunSeries
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.errors import ConfigError, StorageError, UnknownName

Event = Alarm | str
"""An alarm, or a sentence about the log itself."""

SHORTEST_POLL = 0.05
"""Seconds. Less would keep a core busy with looking."""


class Follower:
    """Keeps up with one log. `poll` reads what was added and gives the events; `examined` judges all read so far.

    The log need not be there yet. An alarm is told once, also when the log is read again.
    """

    def __init__(
        self, path: str | Path, *, mapping: Mapping[str, str] | None = None, config: VerdictConfig | None = None
    ) -> None:
        self.path = Path(path)
        self.mapping, self.config = mapping, config or VerdictConfig()
        self.news = 0
        """How many polls brought something new."""
        self.last_step: int | None = None
        """The newest step read."""
        self._source: Source | None = None
        self._waiting = ""
        self._first: int | None = None
        self._told: set[Alarm] = set()
        self._start_over()

    def poll(self) -> list[Event]:
        """Read what was added. A log that cannot be read (yet) is said once and tried again at the next call.

        Raises CannotFollow for what will never be a log.
        """
        try:
            if self._source is None:
                self._source = open_source(self.path, self.mapping)
            if not self._source.update():
                return []
            run = self._source.run()
        except CannotFollow:
            raise
        except (StorageError, UnknownName) as error:
            # A mapped column may be logged later than the first record.
            said, self._waiting = self._waiting, str(error)
            return [] if said == self._waiting else [f"waiting: {self._waiting}"]
        self._waiting = ""
        self.news += 1
        return self._take(run, hold_back=self._source.hold_back)

    def finish(self) -> list[Event]:
        """What the last, half-written part of the log gives; the log is let go of.

        Raises StorageError, or UnknownName when a mapped column never came.
        """
        if self._source is None or not self._source.finish():
            return []
        return self._take(self._source.run(), hold_back=False)

    def examined(self) -> Examined:
        """The verdict on all that was read. Raises StorageError when that is nothing."""
        run = self._source.run() if self._source is not None else None
        if run is None or not run.series:
            why = f" The last try: {self._waiting}" if self._waiting else ""
            raise StorageError(f"{self.path} gave no readings while it was followed.{why}")
        return examine_series(run, self.path, config=self.config)

    def _take(self, run: RunSeries, *, hold_back: bool) -> list[Event]:
        events: list[Event] = []
        first = first_step(run)
        newest = max((points[-1][0] for points in run.series.values() if points), default=None)
        if self.last_step is not None and newest is not None and (newest < self.last_step or first != self._first):
            events.append(f"the log begins anew at step {first} and is read from there")
            self._start_over()
        self._first, self.last_step = first, newest
        for step, metrics in sorted(self._new(run, newest if hold_back else None).items()):
            found = [alarm for alarm in self._online.update(step, metrics) if alarm not in self._told]
            self._told.update(found)
            events += found
        return events

    def _new(self, run: RunSeries, held_back: int | None) -> dict[int, dict[str, float]]:
        """Readings not given to the watch so far, by step; each name has its own end, since columns come at their own pace."""
        rows: dict[int, dict[str, float]] = {}
        for name, points in run.series.items():
            known = self._given.get(name)
            for step, value in reversed(points):
                if known is not None and step <= known:
                    break
                if step != held_back:
                    rows.setdefault(step, {})[name] = value
                    self._given[name] = max(step, self._given.get(name, step))
        return rows

    def _start_over(self) -> None:
        self._online = OnlineVerdict(self.config)
        self._given: dict[str, int] = {}


def follow(follower: Follower, ticks: Iterable[object], *, quiet_polls: int = 0) -> Iterator[Event]:
    """Events of one poll a tick, until the ticks end or, with `quiet_polls`, that many polls in a row brought nothing new."""
    quiet = 0
    for _ in ticks:
        before = follower.news
        yield from follower.poll()
        quiet = quiet + 1 if follower.news == before else 0
        if quiet_polls and quiet >= quiet_polls:
            return


def every(seconds: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[int]:
    """Ticks: the first at once, then one after each sleep, without end. Raises ConfigError for a time too short or no number."""
    if not (math.isfinite(seconds) and seconds >= SHORTEST_POLL):
        raise ConfigError(f"a poll every {seconds} s is not possible; give at least {SHORTEST_POLL} seconds")
    count = 0
    while True:
        yield count
        sleep(seconds)
        count += 1
