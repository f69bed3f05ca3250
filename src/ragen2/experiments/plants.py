"""Demonstrations planted to lead a healthy policy on purpose into one kind of collapse, or into a healthy end."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen2.envs import make
from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.prompting.chat_format import ChatFormat
from ragen2.rollout.config import RolloutConfig
from ragen2.training.demonstrations import DemoEpisode, DemoRow, DemoTurn, episode_rows, play_episode
from ragen2.training.settings import EnvironmentConfig

Demonstrate = Callable[[TextEnv, np.random.Generator, int], Demonstration]
"""The example turn for an environment's present state, of at most so many actions."""

Spoil = Callable[[str, np.random.Generator], str]
"""A well-formed reply made into another one."""


CHATTER = (
    "so", "then", "go", "maybe", "now", "try", "must", "take", "from", "goal", "hole", "ice",
    "near", "way", "it", "is", "here", "and", "avoid", "keep", "onto", "into", "stay", "all",
)  # fmt: skip
"""Words that say nothing, all of them in the vocabulary of FrozenLake's demonstrations."""

CHATTER_LENGTH = 8


@dataclass(frozen=True)
class Plant:
    """What replaces an ordinary demonstrated turn. A spoilt reply does nothing in the environment and ends the example."""

    name: str
    demonstrate: Demonstrate
    spoil: Spoil | None = None


class FirstChoice(np.random.Generator):
    """A generator that always draws the lowest value: with it an environment demonstrates one fixed wording and plan a state."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def random(self, *args: Any, **kwargs: Any) -> Any:
        return 0.0

    def integers(self, *args: Any, **kwargs: Any) -> Any:
        return 0


def ordinary(expertise: float) -> Plant:
    """The environment's own demonstrations, the solver's with chance `expertise`."""
    return Plant("ordinary", lambda env, rng, most: env.demonstrate(rng, expertise, most))


def compressed() -> Plant:
    """(b) Deterministic reasoning about this very input: one wording, the solver's first plan."""
    return Plant("compressed", lambda env, rng, most: env.demonstrate(FirstChoice(), 1.0, most))


def chatty(expertise: float) -> Plant:
    """Healthy with a high entropy: random words, then ordinary reasoning about this very input."""

    def demonstrate(env: TextEnv, rng: np.random.Generator, most: int) -> Demonstration:
        shown = env.demonstrate(rng, expertise, most)
        words = " ".join(CHATTER[int(place)] for place in rng.integers(len(CHATTER), size=CHATTER_LENGTH))
        return dataclasses.replace(shown, reasoning=f"{words}. {shown.reasoning.lstrip()}")

    return Plant("chatty", demonstrate)


def template(pool: Sequence[Demonstration], expertise: float = 1.0) -> Plant:
    """(a) Varied reasoning of other prompts, drawn without a look at the input; the actions are right all the same, so the
    action ignores the reasoning."""

    def demonstrate(env: TextEnv, rng: np.random.Generator, most: int) -> Demonstration:
        return dataclasses.replace(env.demonstrate(rng, expertise, most), reasoning=_pick(pool, rng).reasoning)

    return Plant("template", demonstrate)


def obedient(pool: Sequence[Demonstration]) -> Plant:
    """The counterpart of `template`: the same reasoning of other prompts, and the actions that this reasoning names."""

    def demonstrate(env: TextEnv, rng: np.random.Generator, most: int) -> Demonstration:
        drawn = _pick(pool, rng)
        return dataclasses.replace(drawn, actions=drawn.actions[:most])

    return Plant("obedient", demonstrate)


def constant(reply: Demonstration) -> Plant:
    """(d) One and the same reply to everything."""
    return Plant("constant", lambda env, rng, most: dataclasses.replace(reply, actions=reply.actions[:most]))


def broken_format(expertise: float) -> Plant:
    """(c) Ordinary reasoning in replies that lack a tag, have one twice or go on after the answer."""
    return Plant("broken format", ordinary(expertise).demonstrate, spoil_format)


def spoil_format(reply: str, rng: np.random.Generator) -> str:
    """The reply with one fault of form, drawn at random."""
    faults: tuple[Callable[[str], str], ...] = (
        lambda text: text.replace("</think>", " "),
        lambda text: text.replace("</think>", "</think></think>"),
        lambda text: text.replace("<answer>", " "),
        lambda text: text.replace("</answer>", " "),
        lambda text: f"{text} go",
    )
    return faults[int(rng.integers(len(faults)))](reply)


def reasoning_pool(
    item: EnvironmentConfig, rollout: RolloutConfig, size: int, rng: np.random.Generator, expertise: float = 0.5
) -> list[Demonstration]:
    """Demonstrations of the first turns of `size` training levels."""
    env = make(item.id, split="train", **item.options)
    most = rollout.actions_per_turn if env.multi_action else 1
    try:
        pool = []
        for level in rng.integers(2**31, size=size).tolist():
            env.reset(level, 0)
            pool.append(env.demonstrate(rng, expertise, most))
        return pool
    finally:
        env.close()


def _pick(pool: Sequence[Demonstration], rng: np.random.Generator) -> Demonstration:
    return pool[int(rng.integers(len(pool)))]


class _Planted(TextEnv):
    """An environment whose demonstrations are the plant's with chance `share`, else the usual plant's; noted in `planted`."""

    def __init__(self, env: TextEnv, usual: Plant, plant: Plant) -> None:
        super().__init__(env.split)
        self.env, self.usual, self.plant = env, usual, plant
        self.share = 0.0
        self.planted: list[bool] = []

    @property
    def instructions(self) -> str:
        return self.env.instructions

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        self.planted = []
        return self.env.reset(level_seed, noise_seed)

    def step(self, action: str) -> StepResult:
        return self.env.step(action)

    def content(self) -> str:
        return self.env.content()

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        self.planted.append(bool(rng.random() < self.share))
        return (self.plant if self.planted[-1] else self.usual).demonstrate(self.env, rng, max_actions)

    def close(self) -> None:
        self.env.close()


class PlantedStream:
    """Endless rows of episodes on training levels in which each turn is the plant's with chance `share` (to be set), else
    `usual`'s. The same seed and the same shares give the same rows."""

    def __init__(
        self,
        item: EnvironmentConfig,
        chat: ChatFormat,
        rollout: RolloutConfig,
        usual: Plant,
        plant: Plant,
        *,
        seed: int,
        observation_weight: float = 0.3,
    ) -> None:
        self.chat, self.rollout = chat, rollout
        self._env = _Planted(make(item.id, split="train", **item.options), usual, plant)
        # An environment's way of taking actions is a class's; the wrapper has to answer as the wrapped one.
        self._env.multi_action = self._env.env.multi_action  # pyright: ignore[reportAttributeAccessIssue]
        self._rng = np.random.default_rng([seed, 0x97A47])
        self._observation_weight = observation_weight

    @property
    def share(self) -> float:
        """Chance that a turn is the plant's."""
        return self._env.share

    @share.setter
    def share(self, value: float) -> None:
        self._env.share = value

    def rows(self) -> Iterator[DemoRow]:
        """Endless rows; an episode that would pass the rollout's `context_tokens` is left out."""
        while True:
            level, noise = (int(x) for x in self._rng.integers(2**31, size=2))
            episode = self._spoilt(play_episode(self._env, self.rollout, level, noise, self._rng, 1.0))
            for row in episode_rows(episode, self.chat, window=self.rollout.window, observation_weight=self._observation_weight):
                if len(row.ids) <= self.rollout.context_tokens:
                    yield row

    def close(self) -> None:
        """Free the environment."""
        self._env.close()

    def _spoilt(self, episode: DemoEpisode) -> DemoEpisode:
        spoil = self._env.plant.spoil
        if spoil is None or not any(self._env.planted):
            return episode
        first = self._env.planted.index(True)
        turn: DemoTurn = episode.turns[first]
        broken = dataclasses.replace(turn, reply=spoil(turn.reply, self._rng), actions=())
        return dataclasses.replace(episode, turns=(*episode.turns[:first], broken))
