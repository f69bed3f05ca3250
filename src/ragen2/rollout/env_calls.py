"""Calls into environments, each result checked against the contract of `TextEnv`, and the words for what went wrong."""

from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ragen2.envs.base import Observation, StepResult, TextEnv
from ragen2.errors import EnvironmentFault
from ragen2.rollout.env_worker import Outcome
from ragen2.trajectory import Trajectory

MAX_DETAIL_CHARS = 200

Beat = Callable[[str], None]


@dataclass(frozen=True)
class Started:
    """What a reset gives: the text of the first observation and the environment's instructions."""

    observation: str
    instructions: str


@dataclass(frozen=True)
class Played:
    """What the actions of one reply led to: last observation, sum of the rewards, number of legal actions, the end."""

    observation: str
    reward: float
    legal: int
    terminated: bool
    truncated: bool
    success: bool


class _Broken(EnvironmentFault):
    """A result that breaks the contract; `cause` is what faults are counted by."""

    def __init__(self, cause: str, detail: str) -> None:
        self.cause = cause
        super().__init__(detail)


def reset_env(env: TextEnv, level_seed: int, noise_seed: int, beat: Beat) -> Started:
    """Start an episode."""
    beat("reset")
    observation = _text_of(env.reset(level_seed, noise_seed))
    beat("instructions")
    return Started(observation, str(env.instructions))


def play_actions(env: TextEnv, actions: Sequence[str], beat: Beat) -> Played:
    """Do the actions in order until the episode ends; what is left of them then is not done."""
    rewards: list[float] = []
    legal = 0
    observation, terminated, truncated, success = "", False, False, False
    for action in actions:
        beat("step")
        result = env.step(action)
        rewards.append(_reward_of(result))
        legal += _flag(result, "legal")
        observation = _text_of(result.observation)
        if result.done:
            terminated, truncated, success = bool(result.terminated), bool(result.truncated), _flag(result, "success")
            break
    return Played(observation, math.fsum(rewards), legal, terminated, truncated, success)


def _text_of(observation: object) -> str:
    if not isinstance(observation, Observation) or not isinstance(observation.text, str):
        raise _Broken("observation without text", f"got {_short(observation)} where an Observation with text is due")
    try:
        observation.text.encode()
    except UnicodeEncodeError as error:
        raise _Broken("observation not Unicode", str(error)) from error
    return observation.text


def _reward_of(result: object) -> float:
    if not isinstance(result, StepResult):
        raise _Broken("no StepResult", f"step returned {_short(result)}")
    reward = result.reward
    if isinstance(reward, bool) or not isinstance(reward, numbers.Real):
        raise _Broken("reward not a number", f"got {_short(reward)}")
    if not math.isfinite(reward):
        raise _Broken(f"reward {float(reward)}", "a reward must be finite")
    return float(reward)


def _flag(result: StepResult, name: str) -> bool:
    if name not in result.info:
        raise _Broken(f"info without {name!r}", f"the info of a step holds {sorted(map(str, result.info))[:10]}")
    return bool(result.info[name])


def fault_text(outcome: Outcome, timeout_s: float, level_seed: int, noise_seed: int) -> str:
    """What broke: the cause, then in brackets the call and the seeds, then the detail."""
    where = f"(in {outcome.call or 'its first call'}, level seed {level_seed}, noise seed {noise_seed})"
    if outcome.hung:
        return f"hung for {timeout_s:g} s {where}"
    error = outcome.error
    cause = error.cause if isinstance(error, _Broken) else f"raised {type(error).__name__}"
    return f"{cause} {where}: {_short_text(str(error))}"


def fault_cause(fault: str) -> str:
    """The cause a fault is counted by: its text without seeds and detail."""
    return fault.partition(" (")[0]


def faults_by_cause(trajectories: Iterable[Trajectory]) -> dict[str, int]:
    """How many trajectories broke, by cause, in alphabetical order."""
    return dict(sorted(Counter(fault_cause(item.fault) for item in trajectories if item.fault is not None).items()))


def _short(value: object) -> str:
    # repr of a foreign object may raise or be endless: only plain values are shown
    plain = isinstance(value, (str, bytes, int, float, complex, bool, type(None)))
    return _short_text(repr(value)) if plain else f"a {type(value).__name__}"


def _short_text(text: str) -> str:
    return text if len(text) <= MAX_DETAIL_CHARS else f"{text[:MAX_DETAIL_CHARS]}…"
