"""Our environments as gymnasium environments, for trainers that speak that interface."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from ragen2.envs.base import TextEnv
from ragen2.errors import MissingDependency

try:
    import gymnasium
    from gymnasium import spaces
except ImportError as error:
    raise MissingDependency("gymnasium", "envs", "to_gymnasium") from error

MAX_OBSERVATION, MAX_ACTION = 1 << 16, 1 << 12
"""Longest observation and action in characters."""


class AnyText(spaces.Text):
    """Texts of any characters; samples are drawn from the printable ones of ASCII."""

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length=max_length, min_length=0, charset=string.printable, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether it is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length


class GymnasiumEnv(gymnasium.Env[str, str]):
    """A `TextEnv` behind gymnasium's interface: texts in, texts out.

    `reset(seed=...)` draws both seeds from that one; `options={"level_seed": 3, "noise_seed": 5}` sets either. The info of a
    reset holds both and the instructions, that of a step is the environment's own. One action a step.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 - gymnasium declares it so

    def __init__(self, env: TextEnv, render_mode: str | None = None) -> None:
        self.text_env, self.render_mode = env, render_mode
        self.observation_space, self.action_space = AnyText(MAX_OBSERVATION), AnyText(MAX_ACTION)
        self._shown = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        level, noise = (int(drawn) for drawn in self.np_random.integers(2**31, size=2))
        seeds = {"level_seed": level, "noise_seed": noise} | {
            key: value for key, value in (options or {}).items() if key in ("level_seed", "noise_seed")
        }
        self._shown = self.text_env.reset(**seeds).text[:MAX_OBSERVATION]
        return self._shown, {**seeds, "instructions": self.text_env.instructions}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        result = self.text_env.step(action)
        self._shown = result.observation.text[:MAX_OBSERVATION]
        return self._shown, result.reward, result.terminated, result.truncated, dict(result.info)

    def render(self) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What was shown last, in the mode "ansi"."""
        return self._shown if self.render_mode == "ansi" else None

    def close(self) -> None:
        self.text_env.close()


def to_gymnasium(env: TextEnv, render_mode: str | None = None) -> GymnasiumEnv:
    """`env` as a gymnasium environment, which then owns it. Raises MissingDependency without gymnasium (extra "envs")."""
    return GymnasiumEnv(env, render_mode)
