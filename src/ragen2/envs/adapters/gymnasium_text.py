"""Environments of gymnasium with named actions, shown as text."""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ragen2.envs.base import Observation, StepResult, TextEnv
from ragen2.envs.options import number, one_of
from ragen2.envs.splits import check_seed, draw_level, level_rng, noise_rng
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency

RENDERERS = ("auto", "ansi", "observation")

VOCABULARIES: Mapping[str, tuple[str, ...]] = {
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "MountainCar": ("left", "none", "right"),
    "Acrobot": ("left", "none", "right"),
}
"""Names of the numbered actions of gymnasium's own environments; elsewhere the numbers themselves are the names."""

_COLOUR = re.compile(r"\x1b\[([0-9;]{0,12})m")
_MAX_CHARS = 4096


class GymnasiumText(TextEnv):
    """An environment registered with gymnasium, by id: "gymnasium/FrozenLake-v1".

    Its action space must be Discrete (`actions` names them in order) or Text (passed on where the space holds it). What is shown
    is the observation where that is a text, else the environment's own "ansi" picture, else the numbers of the observation;
    `render` is "auto", "ansi", "observation" or a function from an observation to a text. `options` go to `gymnasium.make`.

    The level seed seeds the reset; chance after it comes from the noise seed. All splits show the same levels, unless
    `split_by_content` sorts them by their first observation. Success is `info["is_success"]` or `info["success"]` where the
    environment gives one, else a sum of rewards of at least `success_return`. Where that is not given, it is a termination with a
    positive last reward and a sum that reaches the threshold which the environment is registered with, if any; an end by the
    limit on time is then none.

    Raises MissingDependency without gymnasium, ConfigError for an environment that cannot be made or has other actions.
    """

    multi_action: ClassVar[bool] = True

    def __init__(
        self,
        split: str = "train",
        env_id: str = "FrozenLake-v1",
        actions: Sequence[str] | None = None,
        render: str | Callable[[Any], str] = "auto",
        split_by_content: bool = False,
        instructions: str | None = None,
        success_return: float | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(split)
        self.env_id, self.split_by_content = env_id, bool(split_by_content)
        self._render = render if callable(render) else one_of("gymnasium render", render, RENDERERS)
        self._env = _make(env_id, dict(options or {}), ansi=self._render in ("auto", "ansi"))
        self._actions = _vocabulary(self._env, env_id, actions)
        self._instructions = instructions
        self._success_return = None if success_return is None else number("success_return", success_return, -1e9, 1e9)
        self._rewards: list[float] = []
        self._text = ""
        self._first: str | None = None
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        told = self._instructions or f"Act in the environment {self.env_id}."
        return f"{told}\nActions: {', '.join(self._actions)}." if self._actions else told

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        chance = noise_rng(check_seed("noise_seed", noise_seed))
        if self.split_by_content:
            draw_level(level_seed, self.split, self._start, self._content_of)
        else:
            self._start(level_rng(level_seed))
        self._env.unwrapped.np_random = chance
        self._first, self._last, self._rewards = self._text, None, []
        return Observation(self._text)

    def step(self, action: str) -> StepResult:
        if self._first is None:
            raise EnvironmentFault("gymnasium environment has no level yet; call reset(level_seed, noise_seed) first")
        if self._last is not None:
            return self._last.again()
        chosen = self._read(action)
        if chosen is None:
            return StepResult(Observation(self._text), 0.0, False, False, {"legal": False})
        observation, reward, terminated, truncated, told = self._env.step(chosen)
        self._text = self._shown(observation)
        pays = float(reward)
        if not math.isfinite(pays):
            raise EnvironmentFault(f"gymnasium environment {self.env_id!r} gave the reward {pays}; a reward must be finite")
        self._rewards.append(pays)
        info: dict[str, Any] = {"legal": True}
        if terminated or truncated:
            claimed = told.get("is_success", told.get("success"))
            info["success"] = self._succeeded(bool(terminated)) if claimed is None else bool(claimed)
        result = StepResult(Observation(self._text), pays, bool(terminated), bool(truncated and not terminated), info)
        self._last = result if result.done else None
        return result

    def _succeeded(self, terminated: bool) -> bool:
        gathered = math.fsum(self._rewards)
        if self._success_return is not None:
            return gathered >= self._success_return
        threshold = self._env.spec.reward_threshold if self._env.spec is not None else None
        return terminated and self._rewards[-1] > 0 and (threshold is None or gathered >= threshold)

    def content(self) -> str:
        if self._first is None:
            raise EnvironmentFault("gymnasium environment has no level yet; call reset(level_seed, noise_seed) first")
        return self._content_of(self._first)

    def close(self) -> None:
        self._env.close()

    def _start(self, rng: np.random.Generator) -> str:
        observation, _ = self._env.reset(seed=int(rng.integers(2**31)))
        self._text = self._shown(observation)
        return self._text

    def _content_of(self, shown: str) -> str:
        return f"gymnasium {self.env_id}\n{shown}"

    def _read(self, action: str) -> Any | None:
        """The action as the environment takes it; None where it has no such action."""
        given = action.strip()
        if not given or len(given) > _MAX_CHARS:
            return None
        if not self._actions:
            return given if self._env.action_space.contains(given) else None
        wanted = given.casefold()
        place = next((place for place, name in enumerate(self._actions) if name.casefold() == wanted), None)
        return None if place is None else int(self._env.action_space.start) + place

    def _shown(self, observation: Any) -> str:
        if callable(self._render):
            return self._render(observation)
        if isinstance(observation, str):
            return observation
        if self._render != "observation" and self._env.render_mode == "ansi":
            # colours mark what matters, such as where the agent stands: brackets say the same in plain text
            return _COLOUR.sub(lambda found: "]" if found.group(1) in ("", "0") else "[", str(self._env.render())).strip("\n")
        return _numbers(observation)


def _make(env_id: str, options: dict[str, Any], *, ansi: bool) -> Any:
    if importlib.util.find_spec("gymnasium") is None:
        raise MissingDependency("gymnasium", "envs", f"environment 'gymnasium/{env_id}'")
    gymnasium = importlib.import_module("gymnasium")
    try:
        entry = gymnasium.spec(env_id).entry_point
        creator = entry if callable(entry) else gymnasium.envs.registration.load_env_creator(entry)
        known = getattr(creator, "metadata", {})
        if ansi and "render_mode" not in options and "ansi" in known.get("render_modes", ()):
            options["render_mode"] = "ansi"
        return gymnasium.make(env_id, **options)
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"gymnasium environment {env_id!r} cannot be made with the options {options!r}: {error}") from error


def _vocabulary(env: Any, env_id: str, actions: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the actions in order; empty where the action space is Text."""
    spaces = importlib.import_module("gymnasium.spaces")
    if isinstance(env.action_space, spaces.Text):
        return ()
    if not isinstance(env.action_space, spaces.Discrete):
        raise ConfigError(f"gymnasium environment {env_id!r} has actions of {env.action_space}; Discrete or Text is needed")
    count, start = int(env.action_space.n), int(env.action_space.start)
    own = VOCABULARIES.get(env_id.rpartition("/")[2].partition("-v")[0])
    plain = tuple(str(start + place) for place in range(count))
    names = tuple(actions) if actions is not None else own if own is not None and len(own) == count else plain
    if len(names) != count or len({name.strip().casefold() for name in names} - {""}) != count:
        raise ConfigError(f"actions {list(names)!r} do not name the {count} actions of {env_id!r}: give {count} different names")
    return tuple(name.strip() for name in names)


def _numbers(observation: Any) -> str:
    """Numbers of an observation, rounded to 4 digits."""
    if isinstance(observation, Mapping):
        return "\n".join(f"{key}: {_numbers(value)}" for key, value in observation.items())
    if isinstance(observation, tuple):
        return ", ".join(_numbers(value) for value in observation)
    array = np.asarray(observation)
    if array.ndim == 0:
        return f"{array.item():.4g}" if array.dtype.kind == "f" else str(array.item())
    return "[" + ", ".join(_numbers(part) for part in array) + "]"
