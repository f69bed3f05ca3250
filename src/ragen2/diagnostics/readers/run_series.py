"""What a reader makes of a log: named series in our metric names, and what it had to guess or leave out."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RunSeries:
    """Named series of (step, value) of one run, and what is to be said about the reading in words."""

    series: dict[str, list[tuple[int, float]]]
    """By our metric names; finite values only, in order of step."""
    steps: int
    """How many different steps the log holds."""
    stop: str | None = None
    """Why the run ended early, where the log says so."""
    notes: tuple[str, ...] = field(default=())
    """What was skipped, cut or guessed."""
    source: str = "ragen2"
    """ragen2, verl console, verl csv, trl trainer_state, dict log, wandb csv or tensorboard."""
    unmapped: tuple[str, ...] = field(default=())
    """Columns of the log that stand for none of our metrics."""
    names: dict[str, str] = field(default_factory=dict)
    """Our name -> the column (or columns, in words) its readings came from."""
    mixed: str | None = None
    """Why these are the series of several runs that cannot be told apart, where they seem to be."""
