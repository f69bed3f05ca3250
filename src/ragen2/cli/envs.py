"""`ragen2 envs` and `ragen2 check-env`: what environments there are, and whether one keeps its contract."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ragen2.envs.spec import EnvSpec
from ragen2.errors import ConfigError
from ragen2.yaml_text import parse_yaml


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("envs")(envs)
    app.command("check-env")(check)


def envs(
    everything: Annotated[
        bool, typer.Option("--all", help="Also list every environment of a family, such as reasoning-gym.")
    ] = False,
) -> None:
    """List the environments, what each needs, and whether that is installed."""
    from ragen2.envs import family_names, list_envs, list_families

    table = Table("id", "what it is", "needs", "installed")
    for spec in list_envs():
        add_row(table, spec.id, spec)
    for family in list_families():
        names = family_names(family)
        count = "any id" if names is None else f"{len(names)} of them, see --all"
        add_row(table, f"{family.prefix}/…", family.member("…"), f"{family.summary} ({count})")
        for name in (names or ()) if everything else ():
            add_row(table, f"{family.prefix}/{name}", family.member(name))
    Console(highlight=False).print(table)


def add_row(table: Table, id: str, spec: EnvSpec, summary: str | None = None) -> None:
    """One line of the table."""
    needs = ", ".join((*spec.needs, *spec.programs)) or "nothing"
    installed = "yes" if spec.installed else f"no: {', '.join(spec.missing)}"
    table.add_row(id, spec.summary if summary is None else summary, needs, installed)


def check(
    name: Annotated[str, typer.Argument(metavar="ID", help="An environment of `ragen2 envs`.")],
    options: Annotated[list[str] | None, typer.Argument(help="The environment's options: key=value.")] = None,
) -> None:
    """Check that an environment keeps its contract: seeds, rewards, hostile actions, splits."""
    from ragen2.envs import check_env, make

    report = check_env(make(name, **parse_options(options)))
    for finding in report.findings:
        typer.echo(str(finding))
    typer.echo("ok" if report.ok else "broken")
    if not report.ok:
        raise typer.Exit(1)


def parse_options(options: list[str] | None) -> dict[str, Any]:
    """`key=value` words as keyword arguments."""
    parsed: dict[str, Any] = {}
    for text in options or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"option {text!r} is not of the form key=value, for example size=6")
        parsed[key] = parse_yaml(value, f"option {text!r}: the value")
    return parsed
