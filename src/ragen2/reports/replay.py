"""Plays the actions of a recorded trajectory again in a fresh environment, and compares what comes with what was recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragen2.envs import SPLITS, make
from ragen2.envs.base import Observation, TextEnv
from ragen2.errors import ConfigError, StorageError, UnknownName
from ragen2.trajectory import Trajectory, Turn
from ragen2.yaml_text import parse_yaml


@dataclass(frozen=True)
class Frame:
    """One moment: before the actions of a turn (`action` None), or after one of them. `turn` counts from 0; `reward` and `legal`
    are of the action."""

    turn: int
    action: str | None
    text: str
    image: np.ndarray | None
    reward: float
    legal: bool
    done: bool


@dataclass(frozen=True)
class Replay:
    """The frames of a trajectory in order, and how the replay differs from the record (empty: it does not)."""

    trajectory: Trajectory
    frames: tuple[Frame, ...]
    differences: tuple[str, ...]

    @property
    def pictures(self) -> list[np.ndarray]:
        """Images of the frames, where the environment draws any."""
        return [frame.image for frame in self.frames if frame.image is not None]


def replay(trajectory: Trajectory, env: TextEnv) -> Replay:
    """Play the recorded actions in `env` by the trajectory's two seeds.

    A turn whose episode broke in it (a fault) is not compared. Raises what the environment raises on reset and step.
    """
    shown = env.reset(trajectory.level_seed, trajectory.noise_seed)
    frames: list[Frame] = []
    differences: list[str] = []
    success, done = False, False
    for place, turn in enumerate(trajectory.turns):
        if shown.text != turn.observation:
            differences.append(f"turn {place + 1}: another observation")
        if done:
            differences.append(f"turn {place + 1}: the replayed episode had ended before")
            break
        broken = trajectory.fault is not None and place == len(trajectory.turns) - 1
        frames.append(_before(place, shown))
        if broken:
            break
        rewards: list[float] = []
        for action in turn.actions:
            result = env.step(action)
            shown, done = result.observation, result.done
            rewards.append(result.reward)
            frames.append(
                Frame(place, action, shown.text, shown.image, result.reward, bool(result.info.get("legal")), result.done)
            )
            if done:
                success = bool(result.info.get("success"))
                break
        differences += _reward_difference(place, turn, math.fsum(rewards))
    if trajectory.fault is None:
        if trajectory.final_observation and shown.text != trajectory.final_observation:
            differences.append("the last observation is another")
        if success != trajectory.success:
            differences.append(f"success is {success} here, {trajectory.success} in the record")
    return Replay(trajectory, tuple(frames), tuple(differences))


def recorded_environment(trajectory: Trajectory, options: Mapping[str, Any], split: str | None = None) -> TextEnv:
    """A fresh environment for a trajectory, drawing pictures where it can.

    `split` None takes the one its prompt id names ("sokoban/validation/7"), else "train". Raises what `make` raises.
    """
    split = _split_of(trajectory) if split is None else split
    drawing = _drawing_environment(trajectory, options, split)
    return make(trajectory.environment, split, **options) if drawing is None else drawing


def _drawing_environment(trajectory: Trajectory, options: Mapping[str, Any], split: str) -> TextEnv | None:
    """None where the environment has no `render` option."""
    try:
        return make(trajectory.environment, split, **{"render": "rgb_array", **options})
    except UnknownName as error:
        if error.name != "render":
            raise
        return None


def last_picture(trajectory: Trajectory, options: Mapping[str, Any]) -> np.ndarray | None:
    """The picture at the end of a trajectory; None where the environment draws none, is not to be had here with these options,
    or does not replay as recorded. Environments without pictures are not played."""
    try:
        env = _drawing_environment(trajectory, options, _split_of(trajectory))
        if env is None:
            return None
        with closing(env):
            replayed = replay(trajectory, env)
    except Exception:  # environments are foreign code that may raise anything; a missing picture must not cost the report
        return None
    return replayed.pictures[-1] if replayed.pictures and not replayed.differences else None


def _split_of(trajectory: Trajectory) -> str:
    """The split that the prompt id names ("sokoban/validation/7"), else "train"."""
    named = trajectory.prompt_id.removeprefix(f"{trajectory.environment}/").split("/")[0]
    return named if named in SPLITS else "train"


def options_of_run(rollout_file: Path, environment: str) -> dict[str, Any]:
    """The environment's options from the config.yaml of the run that a rollout file lies in (RUN/rollouts/FILE or RUN/FILE); none
    where there is no such file. Raises ConfigError for one that cannot be read."""
    for folder in (rollout_file.parent, rollout_file.parent.parent):
        if not (folder / "config.yaml").is_file():
            continue
        for item in _environments(folder / "config.yaml"):
            if item.get("id") == environment:
                options = {key: value for key, value in item.items() if key not in ("id", "groups", "options")}
                given = item.get("options")
                return {**options, **(given if isinstance(given, dict) else {})}
    return {}


def pick(trajectories: tuple[Trajectory, ...], index: int) -> Trajectory:
    """The trajectory with this number, counted from 0. Raises ConfigError when there is none."""
    if not 0 <= index < len(trajectories):
        raise ConfigError(f"index is {index}; the file holds {len(trajectories)} trajectories, give 0 to {len(trajectories) - 1}")
    return trajectories[index]


def _environments(config: Path) -> list[dict[str, Any]]:
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"cannot read {config}: {error}") from error
    data = parse_yaml(text, str(config))
    found = data.get("environments", data.get("env")) if isinstance(data, dict) else None
    listed = found if isinstance(found, list) else [found]
    return [{"id": item} if isinstance(item, str) else item for item in listed if isinstance(item, str | dict)]


def _before(place: int, shown: Observation) -> Frame:
    return Frame(place, None, shown.text, shown.image, 0.0, True, False)


def _reward_difference(place: int, turn: Turn, reward: float) -> list[str]:
    if math.isclose(reward, turn.reward, rel_tol=1e-9, abs_tol=1e-9):
        return []
    return [f"turn {place + 1}: reward {reward:g} here, {turn.reward:g} in the record"]
