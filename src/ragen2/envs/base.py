"""The environment interface: text in, text out, two seeds, rewards as they come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ragen2.envs.splits import check_split


@dataclass(frozen=True)
class Observation:
    """What the agent is shown: `text`, and for vision models an `image` (H x W x 3 uint8)."""

    text: str
    image: np.ndarray | None = None


@dataclass(frozen=True)
class StepResult:
    """Outcome of one action.

    `info["legal"]` (bool) is always present: False means the action was not understood or not allowed and changed nothing.
    `info["success"]` (bool) is present once `terminated` or `truncated` is True.
    """

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    def again(self) -> StepResult:
        """What a step after the end gives: this last result once more, paying nothing."""
        return replace(self, reward=0.0, info={**self.info, "legal": False})


@dataclass(frozen=True)
class Demonstration:
    """One imperfect example turn for warm-up: reasoning about the present state, then actions (in the order they are done)."""

    reasoning: str
    actions: tuple[str, ...]


class TextEnv(ABC):
    """A single-agent text environment.

    A *level seed* fixes everything the first observation shows and is shared by a group; a *noise seed* drives chance after it
    (slipping, payouts) and differs in each trajectory. The same two seeds and the same actions give the same trajectory in any
    process. `split` is "train", "validation" or "test": splits are disjoint by content (see `ragen2.envs.splits`).
    """

    multi_action: ClassVar[bool] = True
    """Whether an answer is split at `||` into several actions."""

    concurrency: int = 1
    """How many environments of this kind may work at the same time, each in its own thread. 1 is right for what computes in
    Python in microseconds. Above 1, for environments that wait for a server, a prover or a child process, episodes go on as
    their results come, while others are sampled."""

    moves: tuple[str, ...] = ()
    """The actions, where every state has the same ones; () where they depend on the state or are free text."""

    split_by_content: bool = True
    """Whether `split_of(content())` is the split. False where pairs are assigned by hand or all splits show the same levels."""

    made_as: tuple[str, Mapping[str, Any]] | None = None
    """Id and options that `ragen2.make` was called with; None for an environment built directly."""

    def __init__(self, split: str = "train") -> None:
        self.split = check_split(split)

    @property
    @abstractmethod
    def instructions(self) -> str:
        """Rules, symbols and legal actions, shown once in the system message. Depends on the configuration, not on the level."""

    @abstractmethod
    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        """Start an episode. Raises EnvironmentFault when no level of this split is found within the bounded number of redraws."""

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Do one action (model text, hostile). Never raises on any string. After the end it returns the last result `again()`.

        Raises EnvironmentFault before the first `reset`.
        """

    @abstractmethod
    def content(self) -> str:
        """Canonical text of the current level: equal exactly when two levels are the same level. Decides the split."""

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """An example turn for the present state: the solver's actions with probability `expertise`, else a random legal choice.

        The reasoning talks about this level in varied words. Raises NotImplementedError where an environment has no solver.
        """
        raise NotImplementedError(f"{type(self).__name__} has no demonstrations; warm up on another environment or supply text")

    def close(self) -> None:
        """Free what the environment holds. Safe to call twice."""
        return None
