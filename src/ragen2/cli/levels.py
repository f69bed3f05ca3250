"""`ragen2 levels`: how many levels an environment has, how many repeat, whether splits share any, how short they are."""

from __future__ import annotations

import math
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ragen2.cli.envs import parse_options


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("levels")(levels)


def levels(
    name: Annotated[str, typer.Argument(metavar="ID", help="An environment of `ragen2 envs`.")],
    options: Annotated[list[str] | None, typer.Argument(help="The environment's options: key=value.")] = None,
    train: Annotated[int, typer.Option(min=1, help="Level seeds of the training split.")] = 1600,
    held_out: Annotated[int, typer.Option(min=1, help="Level seeds of the validation and of the test split.")] = 512,
) -> None:
    """Report distinct and repeated levels of each split, levels that splits share, and the demonstrator's solution lengths."""
    from ragen2.envs import make
    from ragen2.envs.level_report import level_report

    settings = parse_options(options)
    ranges = {"train": train, "validation": held_out, "test": held_out}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("looking at levels", total=sum(ranges.values()))
        report = level_report(
            lambda split: make(name, split, **settings), ranges, lambda done, total: bar.update(task, completed=done)
        )
    table = Table("split", "level seeds", "distinct", "repeats", "one action", "solution: shortest, median, longest", "unsolved")
    for split in report.splits:
        lengths = [actions for actions, count in split.actions.items() for _ in range(count)]
        shown = f"{lengths[0]}, {lengths[math.ceil(len(lengths) / 2) - 1]}, {lengths[-1]}" if lengths else "–"
        unsolved = "no demonstrator" if split.unsolved is None else str(split.unsolved)
        row = (split.seeds, split.distinct, split.repeats, split.trivial if lengths else "–", shown, unsolved)
        table.add_row(split.split, *map(str, row))
    Console(highlight=False).print(table)
    for (first, second), count in report.shared.items():
        typer.echo(f"{first} and {second} share {count} levels")
