"""`ragen2 eval`: a checkpoint, run or model on held-out levels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("eval")(evaluate)


def evaluate(
    checkpoint: Annotated[str, typer.Argument(help="A run, a checkpoint; with --recipe also any model.")],
    recipe: Annotated[str | None, typer.Option(help="Recipe whose environments are played; default the run's own.")] = None,
    levels: Annotated[int | None, typer.Option(help="Held-out levels; default as the run's validation.")] = None,
    samples: Annotated[int, typer.Option(help="Trajectories a level.")] = 1,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature; 0 is greedy.")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the rollouts into this folder, a file for each environment.")] = None,
) -> None:
    """Measure success, return and unbiased pass@k on the validation levels."""
    from ragen2.training.evaluate import evaluate_model

    console = Console(highlight=False)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("playing", total=None)
        results, batches = evaluate_model(
            checkpoint,
            recipe=recipe,
            levels=levels,
            samples=samples,
            temperature=temperature,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    table = Table("metric", "value")
    for key, value in results.items():
        table.add_row(key, f"{value:.4f}")
    console.print(table)
    if save is not None:
        for batch in batches:
            path = save / f"eval-{batch.trajectories[0].environment.replace('/', '-')}.jsonl"
            batch.to_jsonl(path)
            typer.echo(path)
