"""`ragen2 report`: the HTML page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("report")(report)


def report(run: Annotated[Path, typer.Argument(help="A run directory, finished or not.")]) -> None:
    """Write report.html of a run directory anew."""
    from ragen2.reports import write_report

    typer.echo(write_report(run))
