"""`ragen2 warmup`: short supervised training on the environments' demonstrations, for any model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("warmup")(warmup)


def warmup(
    recipe: Annotated[str, typer.Argument(help="Recipe whose environments are learnt (a name or a YAML file).")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings: model=NAME warmup.steps=200 ….")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the model; petri needs none (cached).")] = None,
) -> None:
    """Teach a model the format and to read its prompt, before reinforcement learning. Fails loudly when it does not learn to."""
    from ragen2.training.config import load_config
    from ragen2.training.warmup_command import warm_up

    console = Console(highlight=False)
    folder = warm_up(load_config(recipe, overrides or []), out, lambda text: console.print(text, markup=False))
    console.print(f"warmed-up model: {folder}", markup=False)
