"""Our environments behind OpenEnv's protocol: one server, many sessions, each with its own environment.

OpenEnv leaves the `metadata` of an observation out of what it sends, and knows one `done` only. So everything a trainer needs
(`terminated`, `truncated`, `stop_reason`, `success`, `legal`, the seeds) are fields of the observation; `metadata` repeats the
end for those who use the environment within their own process.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import Field

from ragen2.envs.base import StepResult, TextEnv
from ragen2.envs.registry import make
from ragen2.envs.splits import check_seed, check_split
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency, UnknownName
from ragen2.prompting.reply import MAX_ACTION_CHARS

try:
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
except ImportError as error:
    raise MissingDependency("openenv-core", "openenv", "serving an environment by OpenEnv") from error

BUSY_SECONDS = 60.0
"""Longest wait for another session's step, where environments of a kind work one at a time."""


class TextAction(Action):
    """One action as text. The model's answer, without tags; several actions are several steps."""

    text: str = Field(max_length=MAX_ACTION_CHARS, description="one action, in the words that the instructions name")


class TextObservation(Observation):
    """What the agent is shown (`text`), and what the trainer needs to know and the agent must not see."""

    text: str
    instructions: str = Field(default="", description="rules and legal actions; with the first observation only")
    multi_action: bool = Field(default=True, description="whether an answer may hold several actions")
    level: str = Field(default="", description="a digest of the level: equal exactly where two levels are the same")
    level_seed: int = 0
    noise_seed: int = 0
    split: str = "train"
    terminated: bool = False
    truncated: bool = False
    stop_reason: str | None = Field(default=None, description="terminated or truncated, at the end")
    legal: bool | None = Field(default=None, description="whether the action was understood and allowed; None after a reset")
    success: bool | None = Field(default=None, description="at the end")


class TextState(State):
    """Where the episode of a session stands."""

    environment: str = ""
    split: str = "train"
    level_seed: int | None = None
    noise_seed: int | None = None
    task_return: float = 0.0
    done: bool = False


class ServedEnv(Environment[TextAction, TextObservation, TextState]):
    """One session: an environment of `make_env(split)` for each split that is asked for.

    `turns_at_work` bounds how many sessions compute at once: environments with `concurrency` 1 may share state within a process.
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self, make_env: Callable[[str], TextEnv], split: str, turns_at_work: threading.Semaphore, name: str = "environment"
    ) -> None:
        super().__init__()
        self._make_env, self._default_split, self._at_work, self._name = make_env, check_split(split), turns_at_work, name
        self._envs: dict[str, TextEnv] = {}
        self._env: TextEnv | None = None
        self._state = TextState(environment=name, split=split)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        level_seed: int | None = None,
        noise_seed: int | None = None,
        split: str | None = None,
        **kwargs: Any,
    ) -> TextObservation:
        """Start an episode. `level_seed` and `noise_seed` are `seed` where they are not given, and drawn where that is not
        given either; the observation says what they are. Trajectories of a group share `level_seed` and differ in `noise_seed`.

        Raises ConfigError for a seed, split or option that cannot be used, EnvironmentFault where no level is found.
        """
        if kwargs:
            known = ("seed", "episode_id", "level_seed", "noise_seed", "split")
            raise UnknownName("argument of reset", next(iter(kwargs)), known)
        split = self._default_split if split is None else check_split(split)
        drawn = secrets.randbits(31) if seed is None else seed
        level = check_seed("level_seed", drawn if level_seed is None else level_seed)
        noise = check_seed("noise_seed", drawn if noise_seed is None else noise_seed)
        with self._working():
            env = self._env_of(split)
            shown = env.reset(level, noise)
            instructions, content = env.instructions, env.content()
        self._env = env
        self._state = TextState(
            environment=self._name, split=split, level_seed=level, noise_seed=noise, episode_id=episode_id, step_count=0
        )
        return TextObservation(
            text=shown.text,
            instructions=instructions,
            multi_action=env.multi_action,
            level=hashlib.sha256(content.encode()).hexdigest(),
            level_seed=level,
            noise_seed=noise,
            split=split,
        )

    def step(self, action: TextAction, timeout_s: float | None = None, **kwargs: Any) -> TextObservation:
        """Do one action. Raises EnvironmentFault before the first reset, and where the server is busy for too long."""
        if self._env is None:
            raise EnvironmentFault("no episode runs in this session: reset first, over the same WebSocket (/ws)")
        with self._working(BUSY_SECONDS if timeout_s is None else timeout_s):
            result = self._env.step(action.text)
        if not math.isfinite(result.reward):
            # On the wire it would become null.
            raise EnvironmentFault(f"{self._name} gave the reward {result.reward}; a reward must be finite")
        state = self._state
        self._state = state.model_copy(
            update={
                "step_count": state.step_count + 1,
                "task_return": state.task_return + float(result.reward),
                "done": result.done,
            }
        )
        return self._observed(result)

    @property
    def state(self) -> TextState:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name=self._name, description=f"ragen2 environment {self._name}, text in and text out")

    def close(self) -> None:
        for env in self._envs.values():
            env.close()
        self._envs.clear()
        self._env = None

    def _observed(self, result: StepResult) -> TextObservation:
        stop_reason = "terminated" if result.terminated else "truncated" if result.truncated else None
        ending = {"terminated": bool(result.terminated), "truncated": bool(result.truncated), "stop_reason": stop_reason}
        return TextObservation(
            text=result.observation.text,
            done=result.done,
            reward=float(result.reward),
            level_seed=self._state.level_seed or 0,
            noise_seed=self._state.noise_seed or 0,
            split=self._state.split,
            legal=bool(result.info["legal"]),
            success=bool(result.info["success"]) if result.done else None,
            metadata=ending,
            **ending,
        )

    def _env_of(self, split: str) -> TextEnv:
        if split not in self._envs:
            self._envs[split] = self._make_env(split)
        return self._envs[split]

    @contextmanager
    def _working(self, seconds: float = BUSY_SECONDS) -> Iterator[None]:
        if not self._at_work.acquire(timeout=max(seconds, 0.0)):
            raise EnvironmentFault(f"{self._name} was busy with other sessions for {seconds:g} s; serve it in more processes")
        try:
            yield
        finally:
            self._at_work.release()


def session_factory(id: str, split: str = "train", options: Mapping[str, Any] | None = None) -> Callable[[], ServedEnv]:
    """What makes a session's environment. Builds one environment first, so that wrong options are refused now.

    Raises what `ragen2.make` raises.
    """
    settings = dict(options or {})
    if "split" in settings:
        raise ConfigError(f"split={settings['split']!r} is no option of an environment; give the split on its own")
    probe = make(id, split=split, **settings)
    at_work = threading.Semaphore(max(1, probe.concurrency))
    probe.close()
    return lambda: ServedEnv(lambda wanted: make(id, split=wanted, **settings), split, at_work, id)
