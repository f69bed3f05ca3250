"""Bandit: one choice between two arms whose names say which is steady and which is risky (RAGEN-2, arXiv 2604.06268)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.grid import clean_answer
from ragen2.envs.options import number, one_of
from ragen2.envs.splits import level_rng, noise_rng
from ragen2.errors import ConfigError, EnvironmentFault


@dataclass(frozen=True)
class ArmPair:
    """Two arms: `steady` always pays the low reward, `risky` sometimes pays the high one."""

    steady: str
    risky: str


def _pairs(*names: str) -> tuple[ArmPair, ...]:
    return tuple(ArmPair(*name.split()) for name in names)


PAIRS = {
    "train": _pairs(
        "Anchor Comet",
        "Granite Lightning",
        "Harbor Tempest",
        "Farmer Gambler",
        "Ledger Lottery",
        "Tortoise Falcon",
        "Savings Jackpot",
        "Hearth Wildfire",
        "Canal Rapids",
        "Clerk Pirate",
        "Bicycle Rocket",
        "Cellar Volcano",
    ),
    "validation": _pairs("Pension Casino", "Oxcart Racecar", "Orchard Goldrush", "Meadow Avalanche"),
    "test": _pairs(
        "Lighthouse Meteor",
        "Caretaker Daredevil",
        "Bedrock Geyser",
        "Pantry Treasure",
        "Ferry Speedboat",
        "Routine Wager",
        "Compass Dice",
        "Blanket Fireworks",
    ),
}
"""The pairs of each split. No arm name appears twice, so a model meets held-out names for the first time."""

_FACTS = (
    "{steady} sounds steady and {risky} sounds risky.",
    "{risky} is a risk, {steady} is safe.",
    "the arms are {first} and {second}. {risky} is the wild one.",
    "between {first} and {second}, {steady} is the calm one.",
)
_WHY_RISKY = ("a big reward is worth the risk", "on average the risk pays more", "a large win now and then beats a small one")
_WHY_STEADY = ("a sure reward is good enough", "a small win each time is safe", "the risk may pay nothing")
_CHOICE = ("so choose {arm}.", "I take {arm}.", "the choice is {arm}.")


class Bandit(TextEnv):
    """Choose one of two arms by its name; the choice ends the episode.

    The steady arm pays `low_reward` always; the risky arm pays `high_reward` with probability `high_probability` (drawn from the
    noise seed), else 0.0. Success means that the arm with the higher mean was chosen. The level seed draws the pair and the order
    in which it is shown, so a group sees one prompt. A level's content is the unordered pair.

    `arms="split"`: train, validation and test have their own 12, 4 and 8 pairs. `arms="train"`: every split draws from the 12
    training pairs, for models from scratch that cannot know what other names mean; success then says nothing about new names.
    Raises ConfigError for rewards that do not make the risky arm the better one.
    """

    multi_action: ClassVar[bool] = False
    split_by_content = False

    def __init__(
        self,
        split: str = "train",
        arms: str = "split",
        low_reward: float = 0.1,
        high_reward: float = 1.0,
        high_probability: float = 0.25,
    ) -> None:
        super().__init__(split)
        self.arms = one_of("bandit arms", arms, ("split", "train"))
        self.low_reward = number("low_reward", low_reward, -1e6, 1e6)
        self.high_reward = number("high_reward", high_reward, -1e6, 1e6)
        self.high_probability = number("high_probability", high_probability, 0.0, 1.0)
        if self.high_reward * self.high_probability <= self.low_reward:
            raise ConfigError(
                f"the risky arm's mean {self.high_reward * self.high_probability:g} is not above the steady arm's "
                f"{self.low_reward:g}; raise high_reward or high_probability, or lower low_reward"
            )
        self._choices = PAIRS["train" if self.arms == "train" else split]
        self._pair: ArmPair | None = None
        self._shown: tuple[str, str] = ("", "")
        self._noise: np.random.Generator | None = None
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        return (
            "Two arms of a slot machine have names. One pays a small reward each time, the other now and then a large one. "
            "Their names tell which is which. Choose the arm with the higher average reward.\n"
            "Action: the name of one arm. You choose once."
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        draw, noise = level_rng(level_seed), noise_rng(noise_seed)
        pair = self._choices[int(draw.integers(len(self._choices)))]
        self._pair, self._noise, self._last = pair, noise, None
        self._shown = (pair.steady, pair.risky) if draw.random() < 0.5 else (pair.risky, pair.steady)
        return Observation(self._prompt())

    def step(self, action: str) -> StepResult:
        pair, noise = self._pair, self._noise
        if pair is None or noise is None:
            raise EnvironmentFault("bandit: step before reset; call reset(level_seed, noise_seed) first")
        if self._last is not None:
            return self._last.again()
        answer = clean_answer(action)
        arm = next((name for name in self._shown if name.casefold() == answer), None)
        if arm is None:
            return StepResult(Observation(self._prompt()), 0.0, False, False, {"legal": False})
        reward = self.low_reward
        if arm == pair.risky:
            reward = self.high_reward if noise.random() < self.high_probability else 0.0
        info = {"legal": True, "success": arm == pair.risky, "arm": arm}
        self._last = StepResult(Observation(f"{arm} paid {reward:g}"), reward, True, False, info)
        return self._last

    def content(self) -> str:
        return "bandit " + " ".join(sorted(self._shown))

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The risky arm with probability `expertise`, else the steady one, and why, in varied words that name both.

        Raises EnvironmentFault before a reset and after the end.
        """
        pair = self._pair
        if pair is None or self._last is not None:
            raise EnvironmentFault("bandit: no demonstration without an open choice; reset first")
        risky = bool(rng.random() < expertise)
        facts = _pick(_FACTS, rng).format(steady=pair.steady, risky=pair.risky, first=self._shown[0], second=self._shown[1])
        why = _pick(_WHY_RISKY if risky else _WHY_STEADY, rng)
        arm = pair.risky if risky else pair.steady
        return Demonstration(f"{facts} {why}, {_pick(_CHOICE, rng).format(arm=arm)}", (arm,))

    def _prompt(self) -> str:
        return f"arms {self._shown[0]} and {self._shown[1]}"


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
