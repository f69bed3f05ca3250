"""Our environments as tools of TRL's `GRPOTrainer(environment_factory=...)`.

TRL builds one environment a rollout, calls `reset` with the columns of the row, offers every other public method as a tool and
asks `get_reward` at the end. Nothing here imports TRL.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

from ragen2.envs.base import TextEnv
from ragen2.envs.registry import make
from ragen2.errors import ConfigError, EnvironmentFault


class EpisodeOver(Exception):
    """An action after the end. TRL shows the text to the model."""


class ToolEnv:
    """One environment as TRL wants it. Attributes with an underscore are no tools.

    The columns `level_seed` and `noise_seed` of the row are the seeds. Rows of a group share their columns, so leave
    `noise_seed` out for chance that differs within a group; `level_seed` is needed: without it a group would play different
    levels. `get_reward` is the sum of the task's rewards. Raises EnvironmentFault where the environment breaks.
    """

    def __init__(self, make_env: Callable[[], TextEnv], max_actions: int = 10) -> None:
        if max_actions < 1:
            raise ConfigError(f"max_actions is {max_actions}; give a whole number of at least 1")
        self._env, self._max_actions = make_env(), max_actions
        self._rewards: list[float] = []
        self._over: str | None = None
        self._success = False

    def reset(self, **columns: Any) -> str:
        """Start an episode: rules and first observation, which TRL appends to the prompt."""
        if columns.get("level_seed") is None:
            raise ConfigError("the row has no level_seed; give the data set a column level_seed of whole numbers")
        noise = columns.get("noise_seed")
        self._rewards, self._over, self._success = [], None, False
        shown = self._env.reset(columns["level_seed"], secrets.randbits(31) if noise is None else noise).text
        how = f"Call the tool act with one action at a time, at most {self._max_actions}."
        return f"{self._env.instructions.strip()}\n{how}\n{shown}"

    def act(self, action: str) -> str:
        """Do one action in the environment and see what comes of it.

        Args:
            action: The action, in the words that the rules name.

        Returns:
            What the environment shows after the action.
        """
        if self._over is not None:
            raise EpisodeOver(f"The episode is over ({self._over}). Answer without a tool now.")
        result = self._env.step(str(action))
        if not math.isfinite(result.reward):
            raise EnvironmentFault(f"the environment gave the reward {result.reward}; a reward must be finite")
        self._rewards.append(float(result.reward))
        if result.done:
            self._over = "terminated" if result.terminated else "truncated"
            self._success = bool(result.info["success"])
            return f"{result.observation.text}\nThe episode is over."
        if len(self._rewards) >= self._max_actions:
            self._over = "no actions left"
        return result.observation.text if result.info["legal"] else f"{result.observation.text}\nThat was no legal action."

    def get_reward(self) -> float:
        """Sum of the task's rewards of the episode."""
        return math.fsum(self._rewards)

    def _succeeded(self) -> bool:
        """Whether the episode ended in success; for reward functions, which get the environments."""
        return self._success


def trl_environment(id: str, split: str = "train", *, max_actions: int = 10, **options: Any) -> Callable[[], ToolEnv]:
    """An `environment_factory` for TRL's GRPOTrainer. Builds one environment first, so that wrong options are refused now.

    Use with a data set of the columns `prompt` (a chat) and `level_seed`, one row a level. Raises what `ragen2.make` raises.
    """
    make(id, split=split, **options).close()
    return lambda: ToolEnv(lambda: make(id, split=split, **options), max_actions)


def success_reward(environments: list[ToolEnv], **_: Any) -> list[float]:
    """A reward function for TRL that pays 1 for success, else 0, beside the environment's own; weight 0 only logs it."""
    return [float(environment._succeeded()) for environment in environments]
