"""Our environments as tasks of verifiers (0.4, `verifiers.v1`): the environment plays the user, one episode a rollout."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Iterator
from typing import Any, ClassVar

from ragen2.envs.base import TextEnv
from ragen2.envs.registry import make
from ragen2.errors import MissingDependency
from ragen2.integrations.dialogue import Dialogue
from ragen2.rollout.config import RolloutConfig

try:
    import verifiers.v1 as vf
except ImportError as error:
    raise MissingDependency("verifiers", "verifiers", "an environment for verifiers") from error


class Ragen2Config(vf.TasksetConfig):
    """Settings of the taskset, under `--env.taskset`."""

    split: str = "train"
    """Split of levels: train, validation or test."""
    max_turns: int = 5
    """Most replies in an episode."""
    actions_per_turn: int = 2
    """Most actions of one reply, where the environment takes several."""
    max_actions: int = 10
    """Most actions in an episode."""
    think: bool = True
    """Whether replies begin with reasoning between think tags (or apart, where the model's server takes it out)."""

    def rollout(self) -> RolloutConfig:
        """The same as settings of a rollout. Raises ConfigError for a number that makes no sense."""
        return RolloutConfig(
            max_turns=self.max_turns,
            actions_per_turn=self.actions_per_turn,
            max_actions=self.max_actions,
            think=self.think,
        )


class Ragen2Data(vf.TaskData):
    """What a task carries; the noise seed is drawn for each rollout and stands in the trace's info."""

    level_seed: int


class Ragen2Task(vf.Task[Ragen2Data, vf.State, vf.TaskConfig]):
    """One level."""


class Ragen2Taskset(vf.Taskset[Ragen2Task, Ragen2Config]):
    """Level seeds 0, 1, 2 … of a split, without end. Subclasses name the environment."""

    INFINITE = True
    ENVIRONMENT: ClassVar[str]
    OPTIONS: ClassVar[dict[str, Any]] = {}

    def make_env(self) -> TextEnv:
        """An environment of this taskset's split. Raises what `ragen2.make` raises."""
        return make(self.ENVIRONMENT, split=self.config.split, **self.OPTIONS)

    def load(self) -> Iterator[Ragen2Task]:
        """The tasks, in order of the level seed."""
        env, rollout = self.make_env(), self.config.rollout()
        for seed in itertools.count():
            system, prompt = Dialogue(env, rollout).start(seed, 0)
            name = f"{self.ENVIRONMENT}#{seed}"
            data = Ragen2Data(name=name, prompt=prompt, system_prompt=system, level_seed=seed)
            yield Ragen2Task(data, self.config.task)


def _chat_agent() -> vf.AgentConfig:
    """A bare chat loop on this machine: the agent runs no code, so it needs neither tools nor a container."""
    return vf.AgentConfig.model_validate({"harness": {"id": "null"}, "runtime": {"type": "subprocess"}})


class Ragen2EnvConfig(vf.EnvConfig):
    """One agent plays."""

    player: vf.AgentConfig = _chat_agent()


class Ragen2Env(vf.Env[Ragen2EnvConfig]):
    """Plays a level with the agent `player`. An environment that breaks makes the episode fail; it is never scored 0."""

    async def run(self, task: Any, agents: Any) -> None:
        """One episode: reward `task_return`, metrics, and how it ended in the trace's info."""
        taskset: Any = self.taskset
        env = taskset.make_env()
        try:
            dialogue = Dialogue(env, taskset.config.rollout())
            noise_seed = secrets.randbits(31)
            await _call(env, dialogue.start, task.data.level_seed, noise_seed)
            async with agents.player.interaction(task) as interaction:
                segment = await interaction.turn()
                while not segment.terminated:
                    reply, apart = _reply_of(segment)
                    shown = await _call(env, lambda reply=reply, apart=apart: dialogue.answer(reply, reasoning_apart=apart))
                    if shown is None:
                        break
                    segment = await interaction.turn(shown)
        finally:
            env.close()
        if not interaction.trace.errors:
            _record(interaction.trace, dialogue, noise_seed)


def _record(trace: Any, dialogue: Dialogue, noise_seed: int) -> None:
    turns = max(dialogue.turns, 1)
    trace.record_reward("task_return", dialogue.task_return)
    trace.record_metrics(
        {
            "success": float(dialogue.success),
            "turns": float(dialogue.turns),
            "valid_think_rate": dialogue.valid_thinks / turns,
            "valid_action_rate": dialogue.valid_actions / turns,
        }
    )
    trace.info |= {"noise_seed": noise_seed, "stop_reason": dialogue.stop_reason or "unfinished"}


def _reply_of(segment: Any) -> tuple[str, bool]:
    """The last reply, and whether its reasoning came apart from it."""
    reply = segment.last_reply
    messages = [message for message in segment.messages if getattr(message, "role", None) == "assistant"]
    apart = bool(messages) and bool(getattr(messages[-1], "reasoning_content", None)) and "</think>" not in reply.lower()
    return reply, apart


async def _call(env: TextEnv, function: Any, *arguments: Any) -> Any:
    """In a thread where the environment waits for others; else here, because environments may share state in a process."""
    if env.concurrency > 1:
        return await asyncio.to_thread(function, *arguments)
    return function(*arguments)
