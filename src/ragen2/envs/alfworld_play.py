"""Games of ALFWorld in play, in a child process that the training shares."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen2.envs.alfworld_games import Game, World
from ragen2.envs.json_child import JsonChild
from ragen2.errors import EnvironmentFault, MissingDependency

SECONDS = 60.0
"""Processor time of one request: starting a game translates its PDDL, which takes a second or two."""

_PACKAGES = {"alfworld": "alfworld", "textworld": "textworld", "fast_downward": "fast-downward-textworld"}
_PROGRAM = Path(__file__).with_name("alfworld_child.py")
_numbers = itertools.count()


@dataclass(frozen=True)
class Shown:
    """What a game shows: its text, the commands that do something now, and whether the goal is reached."""

    text: str
    commands: tuple[str, ...]
    won: bool


class Play:
    """One game in play. A game that the child no longer holds is opened again and its commands repeated."""

    def __init__(self, game: Game) -> None:
        self._game, self._done = game, []
        self._key = f"{os.getpid()} {next(_numbers)}"
        self.shown = self._open()

    def do(self, command: str) -> Shown:
        """Do one of the commands that `shown` lists. Raises EnvironmentFault when the child fails."""
        self.shown = _read(self._ask({"command": command}))
        self._done.append(command)
        return self.shown

    def plan(self) -> tuple[str, ...]:
        """Commands that reach the goal from here, by textworld's planner; empty where it finds none."""
        return tuple(str(step) for step in self._ask({"plan": True})["plan"])

    def close(self) -> None:
        """Let the child forget the game."""
        _child(os.getpid()).ask({"key": self._key, "close": True})

    def _open(self) -> Shown:
        return _read(_child(os.getpid()).ask({"key": self._key, "game": self._game.as_textworld()}))

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        asked = {"key": self._key, **request}
        reply = _child(os.getpid()).ask(asked)
        if not reply.get("unknown"):
            return _sound(reply)
        self._open()
        for command in self._done:
            _sound(_child(os.getpid()).ask({"key": self._key, "command": command}))
        return _sound(_child(os.getpid()).ask(asked))


@functools.cache
def world() -> World:
    """What the package knows of homes. Raises MissingDependency where it is not installed."""
    require_alfworld()
    return World(**_sound(_child(os.getpid()).ask({"world": True})))


def require_alfworld() -> None:
    """Raises MissingDependency where a package that ALFWorld needs is not installed."""
    for module, package in _PACKAGES.items():
        if importlib.util.find_spec(module) is None:
            raise MissingDependency(package, "alfworld", "environment 'alfworld'")


def _read(reply: Mapping[str, Any]) -> Shown:
    sound = _sound(reply)
    return Shown(str(sound["text"]), tuple(sound["commands"]), bool(sound["won"]))


def _sound(reply: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in reply or reply.get("unknown"):
        raise EnvironmentFault(f"the ALFWorld game failed: {reply.get('error', 'it is not open')}; the episode is invalid")
    return dict(reply)


@functools.lru_cache(maxsize=1)
def _child(process: int) -> JsonChild:
    """The child of this process: a forked one must not share its parent's pipes."""
    child = JsonChild(_PROGRAM, SECONDS, "the child process of ALFWorld")
    atexit.register(child.close)
    return child
