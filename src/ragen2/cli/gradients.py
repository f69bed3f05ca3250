"""`ragen2 gradients`: task, KL and entropy gradients of a checkpoint by reward variance, with their noise floors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rich.table import Table

    from ragen2.diagnostics.gradient_norms import GradientReport

WIDTH = 150
"""Columns of the tables where the output is no terminal."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("gradients")(gradients)


def gradients(
    checkpoint: Annotated[str, typer.Argument(help="A run directory (its newest checkpoint), or one of its checkpoints.")],
    groups: Annotated[int, typer.Option(help="Prompts to sample.")] = 32,
    group_size: Annotated[int, typer.Option(help="Trajectories a prompt.")] = 16,
    buckets: Annotated[int | None, typer.Option(help="Buckets of equal numbers of groups.  [default: 6]")] = None,
    edges: Annotated[str | None, typer.Option(help="Fixed edges in their place: 0,0.1,0.5,inf.")] = None,
    spread: Annotated[str, typer.Option(help="What sorts the groups: variance or std of their task returns.")] = "variance",
    zero_apart: Annotated[bool, typer.Option(help="A bucket of their own for groups of equal returns.")] = True,
    seed: Annotated[int, typer.Option(help="Fixes levels, sampling and the choice of tokens.")] = 0,
    blocks: Annotated[int, typer.Option(help="Blocks that halves are made of: even, 2 to 12. Memory holds as many vectors.")] = 8,
    bound_groups: Annotated[int, typer.Option(help="Groups whose bound is checked.")] = 4,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a page with charts to this file.")] = None,
) -> None:
    """Does the task gradient of low-variance groups rise above its noise, and do the regularisers dominate? Changes nothing."""
    from ragen2.errors import ConfigError
    from ragen2.reports.gradient_page import write_gradient_page
    from ragen2.storage import write_whole
    from ragen2.training.gradient_probe import analyse_gradients
    from ragen2.training.gradient_settings import ProbeSettings

    if edges is not None and buckets is not None:
        raise ConfigError(f"--buckets {buckets} and --edges {edges} exclude one another; give one of them")
    settings = ProbeSettings(
        groups=groups,
        group_size=group_size,
        buckets=(6 if edges is None else 1) if buckets is None else buckets,
        edges=None if edges is None else read_edges(edges),
        spread=spread,
        zero_apart=zero_apart,
        seed=seed,
        blocks=blocks,
        bound_groups=bound_groups,
    )
    console = Console(highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading", total=None)
        report = analyse_gradients(
            checkpoint,
            settings,
            progress=lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
            note=bar.console.print,
        )
    show(report, console if console.is_terminal else Console(highlight=False, width=WIDTH))
    if json_file is not None:
        write_whole(json_file, (json.dumps(report.to_json(), indent=1, allow_nan=False) + "\n").encode())
        typer.echo(json_file)
    if html_file is not None:
        write_gradient_page(report, html_file)
        typer.echo(html_file)


def read_edges(text: str) -> tuple[float, ...]:
    """Edges from `0,0.1,inf`. Raises ConfigError naming the part that is no number."""
    from ragen2.errors import ConfigError

    edges = []
    for part in text.split(","):
        try:
            edges.append(float(part))
        except ValueError as error:
            raise ConfigError(
                f"edges: {part.strip()!r} is not a number; give numbers with commas, for example 0,0.1,inf"
            ) from error
    return tuple(edges)


def show(report: GradientReport, console: Console) -> None:
    """Print tables, notes and the reading."""
    from ragen2.diagnostics.gradient_norms import reading
    from ragen2.reports import gradient_page as page

    console.print(page.headline(report))
    console.print(_table(page.bucket_columns(report), [page.bucket_cells(bucket) for bucket in report.buckets]))
    console.print(_table(page.PLAIN_COLUMNS, [page.plain_cells(bucket) for bucket in report.buckets]))
    if report.bound:
        console.print(_table(page.BOUND_COLUMNS, [page.bound_cells(check) for check in report.bound]))
    for line in report.notes:
        console.print(f"note: {line}", markup=False)
    for line in reading(report):
        console.print(f"- {line}", markup=False)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.table import Table

    table = Table()
    for place, head in enumerate(heads):
        table.add_column(head, no_wrap=place == 0, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table
