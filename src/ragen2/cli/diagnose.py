"""`ragen2 diagnose`: what became of a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("diagnose")(diagnose)


def diagnose(
    path: Annotated[Path, typer.Argument(help="A run directory, or its metrics.jsonl.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a run is healthy or collapsed, since when, how sure that is, and why."""
    from ragen2.diagnostics import diagnose as examine

    diagnosis = examine(path)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(diagnosis), indent=1, default=str))
        return
    onset = "" if diagnosis.onset_step is None else f", since step {diagnosis.onset_step}"
    typer.echo(f"{diagnosis.verdict}{onset} (confidence {diagnosis.confidence:.2f})")
    typer.echo(diagnosis.explanation)
    for line in diagnosis.evidence:
        typer.echo(f"- {line}")
    if diagnosis.also:
        typer.echo(f"also: {', '.join(diagnosis.also)}")
