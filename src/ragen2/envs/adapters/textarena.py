"""The games of textarena for one player as environments."""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib
import importlib.util
import json
import math
import re
from dataclasses import dataclass
from numbers import Real
from types import ModuleType
from typing import Any

import numpy as np

from ragen2.envs.adapters.global_random import GlobalRandom
from ragen2.envs.adapters.textarena_names import EXCLUDED, FEW_LEVELS, NAMES, PAYS_REGRET
from ragen2.envs.base import Observation, StepResult, TextEnv
from ragen2.envs.options import one_of
from ragen2.envs.splits import draw_level, level_rng, noise_rng
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency

MAX_CHARS = 200
"""Longest action that reaches a game."""

_WIN = 1.0 - 1e-9
_GAME = -1
_DEPTH = 12


@dataclass(frozen=True)
class _Start:
    """A game as it starts: never played itself, only copies of it are."""

    game: Any
    text: str
    content: str


class TextArena(TextEnv):
    """A game of the package textarena for one player, by name: "textarena/FrozenLake-v0".

    The level seed makes the level, hidden parts included; the noise seed drives chance after it. An action is what the game
    asks for; square brackets around it are added where they are missing. The reward comes at the end and is the game's own,
    within -1 and 1. A second invalid action in a row ends most games and pays 0, whatever the game says. Success is a reward of
    1. An end by the game's limit on turns is a truncation.

    Raises MissingDependency without the package, ConfigError for a game that is left out, with the reason.
    """

    def __init__(self, split: str = "train", game: str = "FrozenLake-v0") -> None:
        super().__init__(split)
        if game in EXCLUDED:
            raise ConfigError(f"textarena/{game} is left out: {EXCLUDED[game]}")
        self.game = one_of("game of textarena", game, NAMES)
        self.split_by_content = self.game not in FEW_LEVELS
        if importlib.util.find_spec("textarena") is None:
            raise MissingDependency("textarena", "textarena", f"environment 'textarena/{game}'")
        self._start: _Start | None = None
        self._played: Any = None
        self._chance: GlobalRandom | None = None
        self._shown = ""
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        return "Play the game. Each action is one move of the game, in the form that its rules ask for."

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        self._chance = GlobalRandom(noise_rng(noise_seed))
        self._start = _start_of(self.game, self.split if self.split_by_content else None, level_seed)
        self._played, self._shown, self._last = copy.deepcopy(self._start.game), self._start.text, None
        return Observation(self._shown)

    def step(self, action: str) -> StepResult:
        self._current()
        if self._last is not None:
            return self._last.again()
        given = action.strip()
        if not _is_move(given):
            return self._illegal("That is no move.")
        before = copy.deepcopy(self._played)
        try:
            done, texts = self._do(given if "[" in given or "]" in given else f"[{given}]")
        except Exception:  # a game may raise anything on odd text; it is taken back to where it was, and the move is illegal
            self._played = before
            return self._illegal("That is no move.")
        state = self._played.state
        if done:
            return self._end(texts)
        if state.error_count:
            return self._illegal(texts)
        self._shown = texts or self._shown
        return StepResult(Observation(self._shown), 0.0, False, False, {"legal": True})

    def content(self) -> str:
        return self._current().content

    def _do(self, move: str) -> tuple[bool, str]:
        if self._chance is None:
            raise EnvironmentFault("textarena: step before reset")
        with self._chance.lent():
            done, _ = self._played.step(move)
            return bool(done), _texts(self._played)

    def _end(self, texts: str) -> StepResult:
        """The last result. After an invalid move some games give an error text as the reward, others pay for doing nothing."""
        state = self._played.state
        told = state.game_info[0]
        invalid = bool(told.get("invalid_move"))
        reward = _number((state.rewards or {}).get(0))
        if self.game in PAYS_REGRET:
            reward = float(reward == 0.0)
        success = not invalid and reward >= _WIN
        reward = 0.0 if invalid else reward
        late = not success and not invalid and state.max_turns is not None and state.turn == state.max_turns
        text = _clean("\n".join(part for part in (texts, str(told.get("reason") or "")) if part)) or "The game is over."
        info = {"legal": not invalid, "success": success}
        self._last = StepResult(Observation(text), reward, not late, late, info)
        return self._last

    def _illegal(self, texts: str) -> StepResult:
        return StepResult(Observation(f"{self._shown}\n{texts}"), 0.0, False, False, {"legal": False})

    def _current(self) -> _Start:
        if self._start is None:
            raise EnvironmentFault("textarena has no game yet; call reset(level_seed, noise_seed) first")
        return self._start


@functools.lru_cache(maxsize=256)
def _start_of(game: str, split: str | None, level_seed: int) -> _Start:
    """The game of a level seed: of the split, or of any where that is None."""

    def draw(rng: np.random.Generator) -> _Start:
        seed, chance = int(rng.integers(2**31)), GlobalRandom(rng)
        with chance.lent():
            arena = _textarena().make(f"{game}-raw")
            arena.reset(num_players=1, seed=seed)
            text = _texts(arena)
        return _Start(arena, text, f"textarena {game}\n{text}\n{_digest(arena)}")

    return draw(level_rng(level_seed)) if split is None else draw_level(level_seed, split, draw, lambda start: start.content)


@functools.cache
def _textarena() -> ModuleType:
    return importlib.import_module("textarena")


def _texts(arena: Any) -> str:
    """What the game said since it was last asked, without the player's own words."""
    _, messages = arena.get_observation()
    return _clean("\n".join(str(text) for sender, text, _ in messages if sender == _GAME))


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode().strip()


def _is_move(action: str) -> bool:
    return 0 < len(action) <= MAX_CHARS and all(character.isprintable() or character in "\n\t" for character in action)


def _number(reward: object) -> float:
    """A reward as a finite number from -1 to 1; a text or anything else is 0."""
    if isinstance(reward, bool) or not isinstance(reward, Real) or not math.isfinite(reward):
        return 0.0
    return min(1.0, max(-1.0, float(reward)))


def _digest(arena: Any) -> str:
    """A short name of everything the game holds, so that levels with different secrets are different levels."""
    held = {key: value for key, value in vars(arena).items() if key not in ("state", "env_id", "entry_point")}
    plain = _plain([held, arena.state.game_state], _DEPTH)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any, depth: int) -> Any:
    """The value as lists, texts and numbers, the same in every process."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if depth == 0:
        return type(value).__name__
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, re.Pattern):
        return value.pattern
    if isinstance(value, dict):
        pairs = [[_plain(key, depth - 1), _plain(held, depth - 1)] for key, held in value.items()]
        return sorted(pairs, key=lambda pair: json.dumps(pair, sort_keys=True))
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(part, depth - 1) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, (list, tuple)):
        return [_plain(part, depth - 1) for part in value]
    if callable(value) or not hasattr(value, "__dict__"):
        return type(value).__name__
    return [type(value).__name__, _plain(vars(value), depth - 1)]
