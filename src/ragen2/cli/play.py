"""`ragen2 play`: a person plays in the terminal and sees exactly what the model sees."""

from __future__ import annotations

import math
import sys
from typing import Annotated

import typer

from ragen2.cli.envs import parse_options
from ragen2.envs.base import StepResult, TextEnv
from ragen2.errors import ConfigError
from ragen2.prompting.messages import SEPARATOR


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("play")(play)


def play(
    name: Annotated[str, typer.Argument(metavar="ID", help="An environment of `ragen2 envs`.")],
    options: Annotated[list[str] | None, typer.Argument(help="The environment's options: key=value.")] = None,
    seed: Annotated[int, typer.Option(help="Level seed: the same seed, the same level.")] = 0,
    noise_seed: Annotated[int, typer.Option(help="Noise seed: drives chance (slipping, payouts).")] = 0,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "train",
    turns: Annotated[int, typer.Option(min=1, help="Most turns.")] = 5,
    actions_per_turn: Annotated[int, typer.Option(min=1, help="Most actions a turn.")] = 2,
) -> None:
    """Play an environment. You see the texts the model sees; type actions (several separated by ||), or q to stop."""
    from ragen2.envs import make
    from ragen2.prompting.messages import notice_text, system_text, turn_text

    settings = parse_options(options)
    if "split" in settings:
        raise ConfigError(f"split={settings['split']} is no option of an environment; write --split {settings['split']}")
    env = make(name, split=split, **settings)
    per_turn = actions_per_turn if env.multi_action else 1
    typer.echo(system_text(env.instructions, multi_action=env.multi_action, actions_per_turn=per_turn))
    text, total, left = env.reset(seed, noise_seed).text, 0.0, turns * per_turn
    reward: float | None = None
    notice: str | None = None
    for turn in range(1, turns + 1):
        typer.echo("\n" + turn_text(turn, turns, left, text, last_reward=reward, last_notice=notice))
        answer = read_answer()
        if answer is None or answer.strip().lower() == "q":
            break
        results = play_turn(env, answer, min(per_turn, left))
        reward = math.fsum(result.reward for result in results)
        total, left = total + reward, left - len(results)
        notice = notice_text("ok", any(result.info["legal"] for result in results))
        text = results[-1].observation.text if results else text
        if results and results[-1].done:
            outcome = "success" if results[-1].info["success"] else "no success"
            typer.echo(f"\n{text}\n{outcome}, return {total:g}")
            return
        if left <= 0:
            break
    typer.echo(f"stopped, return {total:g}")


FENCE = "```"
"""A line that begins with it opens an answer of several lines (code, a proof), which the next such line closes."""


def read_answer() -> str | None:
    """What is typed after the prompt: a line, or a fenced block; None at the end of the input."""
    typer.echo("action> ", nl=False)
    line = sys.stdin.readline()
    if not line:
        typer.echo()
        return None
    lines = [line.rstrip("\r\n")]
    if lines[0].startswith(FENCE):
        for line in iter(sys.stdin.readline, ""):
            lines.append(line.rstrip("\r\n"))
            if lines[-1].startswith(FENCE):
                break
    return "\n".join(lines)


def play_turn(env: TextEnv, answer: str, most: int) -> list[StepResult]:
    """Do the actions of one answer, as the rollout does; an answer without any does nothing."""
    pieces = answer.split(SEPARATOR) if env.multi_action else [answer]
    actions = [stripped for piece in pieces if (stripped := piece.strip())][:most]
    results = []
    for action in actions:
        results.append(env.step(action))
        if results[-1].done:
            break
    return results
