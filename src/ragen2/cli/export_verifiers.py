"""`ragen2 export-verifiers`: an environment as a package for verifiers and prime-rl."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragen2.cli.envs import parse_options


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("export-verifiers")(export_verifiers)


def export_verifiers(
    name: Annotated[str, typer.Argument(metavar="ID", help="An environment of `ragen2 envs`.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must be absent or empty.")],
    options: Annotated[list[str] | None, typer.Argument(help="The environment's options: key=value.")] = None,
    package: Annotated[str | None, typer.Option(help="Name of the package; ragen2-ID where it is not given.")] = None,
) -> None:
    """Write a small package that depends on ragen2 and that verifiers loads by its name.

    Use it with: pip install FOLDER, then vf-eval PACKAGE
    """
    from ragen2.integrations.verifiers_export import write_package

    written = write_package(name, out, parse_options(options), package=package)
    typer.echo(f"wrote {written.name} to {out}: pip install {out}, then: vf-eval {written.name}")
