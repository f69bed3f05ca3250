"""The progress bar of a warm-up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ragen2.training.warmup import Report


@contextmanager
def warmup_bar(title: str, steps: int, shown: bool = True) -> Iterator[Report]:
    """A report function for `warmup` that draws a bar on the terminal's error stream; one that does nothing unless `shown`."""
    if not shown:
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        task = progress.add_task(title, total=steps, loss="-")

        def report(step: int, total: int, figures: dict[str, float]) -> None:
            progress.update(task, completed=step, total=total, loss=f"{figures['reply_loss']:.2f}")
            if step == total:
                progress.update(task, description=f"{title}: measuring")

        yield report


def _silent(step: int, total: int, figures: dict[str, float]) -> None:
    return None
