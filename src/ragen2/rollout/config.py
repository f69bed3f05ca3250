"""Settings of the rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from ragen2.errors import ConfigError, UnknownName

Context = Literal["full", "limited", "single-turn"]


@dataclass(frozen=True)
class RolloutConfig:
    """How episodes are played: how many, how long, what a reply may do and what the policy is shown.

    Sizes and budgets default to those of the RAGEN-2 paper (arXiv 2604.06268); replies are shorter.
    """

    groups: int = 8
    """Prompts an iteration (P)."""
    group_size: int = 16
    """Trajectories of each prompt (G)."""
    max_turns: int = 5
    """Most replies in an episode."""
    actions_per_turn: int = 2
    """Most actions of one reply where the environment takes several; the rest is dropped and counted."""
    max_actions: int = 10
    """Most actions in an episode, legal or not."""
    turn_tokens: int = 64
    """Most tokens of one reply."""
    context_tokens: int = 2048
    """Most tokens of a row, replies included; an episode whose next context would fill it stops as overflow."""
    temperature: float = 1.0
    """Sampling temperature; 0 is greedy."""
    context: Context = "full"
    """full: every turn so far · limited: the last `context_turns` · single-turn: the present observation only."""
    context_turns: int = 2
    """Turns a limited context shows, the present one included."""
    format_penalty: float = -0.1
    """Added to the return for each turn without a legal action in a well-formed reply; zero or negative."""
    think: bool = True
    """Whether replies begin with reasoning (an opening think tag is prefilled)."""
    word_limit: int | None = 30
    """Advised length of the reasoning, in words, named in the system text; None names none."""
    step_timeout_s: float = 10.0
    """Seconds one environment step may take before its trajectory is given up."""
    reset_timeout_s: float = 60.0
    """Seconds one environment reset may take."""

    def __post_init__(self) -> None:
        """Raises ConfigError (UnknownName for `context`) naming the setting, its value and what is allowed."""
        counts = ("groups", "group_size", "max_turns", "actions_per_turn", "max_actions", "turn_tokens", "context_turns")
        for name in counts:
            _require(_is_int(getattr(self, name)) and getattr(self, name) >= 1, name, getattr(self, name), "a whole number >= 1")
        _require(
            _is_int(self.context_tokens) and self.context_tokens > self.turn_tokens,
            "context_tokens",
            self.context_tokens,
            f"a whole number above turn_tokens ({self.turn_tokens})",
        )
        _require(_is_finite(self.temperature) and self.temperature >= 0, "temperature", self.temperature, "a number >= 0")
        _require(
            _is_finite(self.format_penalty) and self.format_penalty <= 0, "format_penalty", self.format_penalty, "a number <= 0"
        )
        for name in ("step_timeout_s", "reset_timeout_s"):
            _require(
                _is_finite(getattr(self, name)) and getattr(self, name) > 0, name, getattr(self, name), "a number of seconds > 0"
            )
        limit = self.word_limit
        _require(limit is None or (_is_int(limit) and limit >= 1), "word_limit", limit, "a whole number >= 1, or None")
        if self.context not in get_args(Context):
            raise UnknownName("rollout.context", self.context, get_args(Context))

    @property
    def window(self) -> int | None:
        """Turns a context shows, the present one included; None: all."""
        return {"full": None, "limited": self.context_turns, "single-turn": 1}[self.context]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"rollout.{name} is {value!r}; it must be {allowed}")
