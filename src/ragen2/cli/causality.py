"""`ragen2 swap-test`: does the reasoning of a policy cause its actions?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

if TYPE_CHECKING:
    from ragen2.training.causality import CausalityReport

SHOWN = (
    ("success", "validation/success", None),
    ("valid-think rate", "collapse/valid_think_rate", None),
    ("first-turn MI / ceiling", "collapse/first_turn/mi_ratio", None),
    ("first-turn MI, nats", "collapse/first_turn/mi_sequence", "collapse/first_turn/mi"),
    ("trajectory MI / ceiling", "collapse/trajectory/mi_ratio", None),
    ("another prompt's reasoning: total variation", "collapse/swap/other_prompt/total_variation", ""),
    ("  Jensen-Shannon distance", "collapse/swap/other_prompt/jensen_shannon", ""),
    ("  likeliest answer changes", "collapse/swap/other_prompt/changed", ""),
    ("  answer is the donor's", "collapse/swap/follows", ""),
    ("  where they differ: follows the reasoning", "collapse/swap/follows_reasoning", ""),
    ("  where they differ: stays with the observation", "collapse/swap/kept_own", ""),
    ("another sample's reasoning: total variation", "collapse/swap/other_sample/total_variation", ""),
    ("  likeliest answer changes", "collapse/swap/other_sample/changed", ""),
    ("another observation, reasoning kept: total variation", "collapse/swap/observation_changed", ""),
    ("effect of the reasoning", "collapse/swap/effect_of_reasoning", ""),
    ("effect of the observation", "collapse/swap/effect_of_observation", ""),
    ("share of the reasoning", "collapse/swap/reasoning_share", ""),
    ("probability the candidate answers cover", "collapse/swap/coverage", None),
)
"""Rows of the table: words, metric, and the name its interval's bounds begin with ("": the metric's own, None: no interval)."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("swap-test")(swap_test)


def swap_test(
    checkpoint: Annotated[str, typer.Argument(help="A run, a checkpoint; with --recipe also any model.")],
    recipe: Annotated[str | None, typer.Option(help="Recipe whose environments are played; default the run's own.")] = None,
    levels: Annotated[int, typer.Option(help="Held-out levels.")] = 32,
    samples: Annotated[int, typer.Option(help="Trajectories a level.")] = 4,
    turns: Annotated[int, typer.Option(help="Most turns whose reasoning is swapped.")] = 128,
    donors: Annotated[int, typer.Option(help="Other reasonings put into each turn, of each kind.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of rollouts and draws.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything measured into this file.")] = None,
) -> None:
    """Put other reasoning before the action, and other observations before the reasoning, and see how far the action moves."""
    from ragen2.diagnostics.action_scores import SwapConfig
    from ragen2.storage import write_whole
    from ragen2.training.causality import measure_causality

    console = Console(highlight=False)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("loading", total=None)
        report = measure_causality(
            checkpoint,
            recipe=recipe,
            levels=levels,
            samples=samples,
            config=SwapConfig(turns=turns, donors=donors),
            seed=seed,
            progress=lambda phase, done, total: bar.update(task, description=phase, completed=done, total=total),
        )
    console.print(_table(report))
    for sentence in report.sentences():
        console.print(sentence)
    if json_file is not None:
        write_whole(json_file, (json.dumps(report.to_json(), indent=1) + "\n").encode())
        typer.echo(json_file)


def _table(report: CausalityReport) -> Table:
    metrics = {**report.figures, **report.causality.metrics()}
    table = Table("figure", "value", "95 % interval")
    for words, name, bounds in SHOWN:
        value = metrics.get(name)
        if not isinstance(value, float):
            continue
        begin = name if bounds == "" else bounds
        low, high = metrics.get(f"{begin}_low"), metrics.get(f"{begin}_high")
        interval = f"{low:.3f} to {high:.3f}" if bounds is not None and isinstance(low, float) and isinstance(high, float) else ""
        table.add_row(words, f"{value:.3f}", interval)
    return table
