"""`ragen2 serve-env`: an environment behind OpenEnv's protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from ragen2.cli.envs import parse_options


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("serve-env")(serve_env)


def serve_env(
    name: Annotated[str, typer.Argument(metavar="ID", help="An environment of `ragen2 envs`.")],
    options: Annotated[list[str] | None, typer.Argument(help="The environment's options: key=value.")] = None,
    split: Annotated[str, typer.Option(help="Split of levels where a reset names none: train, validation or test.")] = "train",
    host: Annotated[str, typer.Option(help="Address to listen on. Others than 127.0.0.1 let other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    sessions: Annotated[int, typer.Option(min=1, help="Most episodes at once.")] = 64,
    idle: Annotated[float, typer.Option(min=1, help="Seconds after which a silent session is closed.")] = 3600.0,
) -> None:
    """Serve an environment to trainers that speak OpenEnv (TRL, SkyRL, verifiers). Ctrl-C ends it.

    Use it with: ragen2 play openenv url=http://127.0.0.1:8000
    """
    from ragen2.integrations.openenv_app import OpenEnvServer, openenv_app

    app = openenv_app(name, split, parse_options(options), max_sessions=sessions, idle_seconds=idle)
    server = OpenEnvServer(app, host, port)
    typer.echo(f"serving {name} on {server.address} (WebSocket /ws, GET /health, /schema)")
    server.serve_forever()
