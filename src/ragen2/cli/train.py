"""`ragen2 train`: a recipe, overrides, and a run to the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ragen2.errors import ConfigError

if TYPE_CHECKING:
    from ragen2.training.run import Outcome


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("train")(train)


def train(
    recipe: Annotated[str | None, typer.Argument(help="A recipe's name or a YAML file.")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings, e.g. algorithm=grpo filter.top_p=0.8.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run directory or checkpoint.")] = None,
    print_config: Annotated[bool, typer.Option("--print-config", help="Show the resulting configuration and stop.")] = False,
) -> None:
    """Train an agent. Without --resume, RECIPE names what to train (see the README's table)."""
    from ragen2.training.config import dump_config, list_recipes, load_config

    changes = list(overrides or [])
    if resume is not None:
        changes = ([recipe] if recipe else []) + changes
        _run_resumed(resume, changes)
        return
    if recipe is None or ("=" in recipe and not Path(recipe).is_file()):
        raise ConfigError(f"name a recipe before the settings. Recipes: {', '.join(list_recipes())}")
    config = load_config(recipe, changes)
    if print_config:
        typer.echo(dump_config(config), nl=False)
        return
    from ragen2.training.run import start_run

    console = Console(highlight=False)
    _show(start_run(config, lambda text: console.print(text, markup=False)), console)


def _run_resumed(resume: Path, changes: list[str]) -> None:
    from ragen2.training.run import resume_run

    console = Console(highlight=False)
    _show(resume_run(resume, changes, lambda text: console.print(text, markup=False)), console)


def _show(outcome: Outcome, console: Console) -> None:
    """The closing summary: success before and after, verdict, where the report lies."""
    from ragen2.reports import write_report

    columns = ("environment", "success at the start", "at the end", "return", "valid-think")
    table = Table(*columns, title="validation on held-out levels")
    for name, item in outcome.summary["environments"].items():
        start, end = item["start"], item["end"]
        table.add_row(
            name, _rate(start), _rate(end), f"{_number(start['return'])} -> {_number(end['return'])}",
            f"{_number(start['valid_think_rate'])} -> {_number(end['valid_think_rate'])}",
        )  # fmt: skip
    console.print(table)
    stopped = outcome.summary["stopped_early"]
    if stopped:
        console.print(f"stopped early ({stopped['reason']}): {stopped['explanation']}", markup=False)
    verdict = outcome.verdict
    console.print(f"verdict: {verdict.verdict} (confidence {verdict.confidence:.2f}). {verdict.explanation}", markup=False)
    console.print(f"trained model: {outcome.run.model}", markup=False)
    console.print(f"report: {write_report(outcome.run.path)}", markup=False)
    raise typer.Exit(outcome.exit_code)


def _rate(item: dict[str, Any]) -> str:
    if item["success"] is None:
        return "not measured"
    return f"{100 * item['success']:.1f} % [{100 * item['success_low']:.1f}, {100 * item['success_high']:.1f}]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
