"""The table people watch while a run trains; plain lines where the output is not a terminal."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

ROWS_SHOWN = 15
TIMES_FOR_ETA = 10


@dataclass(frozen=True)
class Column:
    """A column: its heading and how a step's metrics become the cell."""

    heading: str
    cell: Callable[[Mapping[str, Any]], str]

    @property
    def lines(self) -> str:
        """The heading on up to two lines."""
        if len(self.heading) <= 8:
            return self.heading
        first, _, second = self.heading.replace(" ", "\n").replace("/", "/\n").partition("\n")
        return f"{first}\n{second}" if second else self.heading.replace("-", "-\n")


def number(value: Any, digits: int = 2) -> str:
    """A metric as short text; an en dash where it was not measured."""
    if value is None or isinstance(value, str | bool):
        return "–" if value is None else str(value)
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.{digits}f}"


def percent(value: Any) -> str:
    """A rate in 0..1 as a percentage."""
    return "–" if not isinstance(value, int | float) or not math.isfinite(value) else f"{100 * value:.1f}%"


def _kept(metrics: Mapping[str, Any]) -> str:
    kept, groups = metrics.get("filter/kept_groups"), metrics.get("filter/groups")
    ratio = metrics.get("filter/kept_ratio")
    if groups is None and isinstance(kept, int | float) and isinstance(ratio, int | float) and ratio > 0:
        groups = kept / ratio
    return number(kept, 0) if groups is None else f"{number(kept, 0)}/{number(groups, 0)}"


def _mutual_information(metrics: Mapping[str, Any]) -> str:
    for view in ("probe", "first_turn", "trajectory"):
        value, ceiling = metrics.get(f"collapse/{view}/mi_sequence"), metrics.get(f"collapse/{view}/mi_upper_bound")
        if isinstance(value, int | float):
            return number(value) if ceiling is None else f"{number(value)}/{number(ceiling)}"
    return "–"


def _validation(metrics: Mapping[str, Any]) -> str:
    found = [x for name, x in metrics.items() if name.startswith("validation/") and name.endswith("/success")]
    numbers = [x for x in found if isinstance(x, int | float)]
    return percent(sum(numbers) / len(numbers)) if numbers else "–"


COLUMNS = (
    Column("success", lambda m: percent(m.get("train/success"))),
    Column("held-out success", _validation),
    Column("return", lambda m: number(m.get("train/return"))),
    Column("kept groups", _kept),
    Column("valid-think", lambda m: percent(m.get("collapse/valid_think_rate"))),
    Column("MI/ceiling", _mutual_information),
    Column("entropy", lambda m: number(m.get("policy/entropy"), 3)),
    Column("tokens/s", lambda m: number(m.get("speed/sampled_tokens_per_second"), 0)),
    Column("time", lambda m: "–" if m.get("time/iteration") is None else f"{m['time/iteration']:.1f} s"),
)


class LiveTable:
    """Shows the last rows of a run, a bar with the time left for the whole run, and the progress of the present phase.

    `total_iterations` counts the whole run, `done` those finished before (a resumed run). Use as a context manager. Where the
    console is not a terminal, `row` and `note` print one line each and `phase` prints nothing. A row whose metrics hold a
    "step" stands for that iteration (step 0: what was measured before the first); one without stands for the next.
    """

    def __init__(
        self,
        total_iterations: int,
        title: str,
        *,
        done: int = 0,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.title, self.done = total_iterations, title, done
        self.console = console or Console()
        self._clock = clock
        self._rows: deque[tuple[str, ...]] = deque(maxlen=ROWS_SHOWN)
        self._times: deque[float] = deque(maxlen=TIMES_FOR_ETA)
        self._phase: tuple[str, int | None, int | None] = ("starting", None, None)
        self._started = self._row_at = clock()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._started = self._row_at = self._clock()
        if self.console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self.console, refresh_per_second=4, transient=False)
            self._live.start()
        else:
            self._print(f"{self.title}: {self.total} iterations")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._phase = ("finished" if kind is None else "stopped", None, None)
        if self._live is not None:
            self._live.stop()
            self._live = None

    def row(self, metrics: Mapping[str, Any]) -> None:
        """One iteration is finished: show its metrics (names as in metrics.jsonl; what is missing shows as a dash)."""
        now = self._clock()
        step = int(metrics.get("step", self.done + 1))
        if step > 0:
            self._times.append(now - self._row_at)
        self._row_at = now
        self.done = step
        cells = tuple(column.cell(metrics) for column in COLUMNS)
        self._rows.append((str(step), *cells))
        if self._live is None:
            parts = [f"{column.heading} {cell}" for column, cell in zip(COLUMNS, cells, strict=True) if cell != "–"]
            self._print(f"iteration {step}/{self.total}  " + "  ".join(parts) + f"  left {self._left()}")

    def phase(self, name: str, done: int | None = None, total: int | None = None) -> None:
        """What the run is doing now (rollout, update, validation, …) and, where known, how much of it is done."""
        self._phase = (name, done, total)

    def note(self, text: str) -> None:
        """A line above the table that stays on the screen."""
        self._print(text)

    def _print(self, text: str) -> None:
        self.console.print(escape(text), highlight=False, soft_wrap=True)

    def _left(self) -> str:
        """Time left, from the mean of the last iterations."""
        if not self._times:
            return "?"
        mean = sum(self._times) / len(self._times)
        return duration(mean * max(0, self.total - self.done))

    def _render(self) -> RenderableType:
        table = Table(title=Text(self.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
        for heading in ("iter.", *(column.lines for column in COLUMNS)):
            table.add_column(heading, justify="right", no_wrap=True)
        for cells in tuple(self._rows):
            table.add_row(*(Text(cell) for cell in cells))
        bars = Table.grid(padding=(0, 1))
        elapsed = duration(self._clock() - self._started)
        whole = f"{self.done}/{self.total}  {elapsed} so far, {self._left()} left"
        bars.add_row("run", ProgressBar(self.total, self.done, width=30), Text(whole))
        name, done, total = self._phase
        if done is not None and total:
            bars.add_row(Text(name), ProgressBar(total, done, width=30), Text(f"{done}/{total}"))
        else:
            bars.add_row(Text(name), "", "")
        return Group(table, bars)


def duration(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
