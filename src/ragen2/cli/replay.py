"""`ragen2 replay`: watch a recorded trajectory again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragen2.cli.envs import parse_options
from ragen2.errors import ConfigError

SUFFIXES = (".html", ".gif")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("replay")(replay)


def replay(
    rollouts: Annotated[Path, typer.Argument(metavar="ROLLOUTS.jsonl", help="A rollout file of a run.")],
    options: Annotated[
        list[str] | None, typer.Argument(help="The environment's options, key=value; default those of the run's config.yaml.")
    ] = None,
    index: Annotated[int, typer.Option(min=0, help="Which trajectory of the file, counted from 0.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Page (.html) or animation (.gif) to write; default beside the file.")] = None,
    split: Annotated[str | None, typer.Option(help="train, validation or test; default as the prompt id says.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Print the frames instead.")] = False,
) -> None:
    """Play a recorded trajectory again, frame by frame, with the model's words beside it, and compare it with the record."""
    from ragen2.reports.gif import gif_bytes
    from ragen2.reports.replay import options_of_run, pick, recorded_environment
    from ragen2.reports.replay import replay as play_again
    from ragen2.reports.replay_page import replay_html, replay_text
    from ragen2.storage import write_whole
    from ragen2.trajectory import RolloutBatch

    path = out or rollouts.with_name(f"{rollouts.stem}-{index}.html")
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--out is {str(path)!r}; give a name that ends in {' or '.join(SUFFIXES)}")
    trajectory = pick(RolloutBatch.from_jsonl(rollouts).trajectories, index)
    given = {**options_of_run(rollouts, trajectory.environment), **parse_options(options)}
    env = recorded_environment(trajectory, given, split)
    try:
        replayed = play_again(trajectory, env)
    finally:
        env.close()
    if text:
        typer.echo(replay_text(replayed))
        return
    if path.suffix.lower() == ".gif":
        if not replayed.pictures:
            raise ConfigError(f"environment {trajectory.environment!r} draws no pictures; write an .html page or use --text")
        write_whole(path, gif_bytes(replayed.pictures))
    else:
        write_whole(path, replay_html(replayed).encode())
    if replayed.differences:
        typer.echo("the replay differs from the record: " + "; ".join(replayed.differences), err=True)
    typer.echo(path)
