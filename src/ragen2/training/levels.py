"""Which levels a run plays: a cursor over training seeds, and the fixed held-out sets for validation and the probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ragen2.envs import make
from ragen2.envs.base import TextEnv
from ragen2.errors import ConfigError, EnvironmentFault
from ragen2.rollout.collector import Level
from ragen2.training.settings import EnvironmentConfig

SEARCH_FACTOR = 200
"""Level seeds looked at for each distinct validation level before giving up."""

FAILURES_ALLOWED = 20
"""Level seeds that may raise before the first level is found."""


def environment_factory(config: EnvironmentConfig, split: str) -> Callable[[], TextEnv]:
    """A function that makes the environment for one split."""
    return lambda: make(config.id, split=split, **config.options)


def groups_per_environment(environments: Sequence[EnvironmentConfig], groups: int) -> list[int]:
    """How many groups each environment gets. Raises ConfigError when the stated numbers do not fit `groups`."""
    fixed = sum(item.groups or 0 for item in environments)
    open_ = [index for index, item in enumerate(environments) if item.groups is None]
    left = groups - fixed
    if left < len(open_) or (not open_ and left != 0):
        raise ConfigError(
            f"rollout.groups is {groups}, but the environments ask for {fixed} groups and {len(open_)} share the rest; "
            "each environment needs at least one group"
        )
    counts = [item.groups or 0 for item in environments]
    for place, index in enumerate(open_):
        counts[index] = left // len(open_) + (place < left % len(open_))
    return counts


@dataclass
class LevelCursor:
    """Hands out training levels: every level seed once, noise seeds from the run's generator. State is saved in checkpoints."""

    environments: Sequence[EnvironmentConfig]
    rng: np.random.Generator
    next_seed: int = 0
    factories: list[Callable[[], TextEnv]] = field(init=False)

    def __post_init__(self) -> None:
        self.factories = [environment_factory(item, "train") for item in self.environments]

    def take(self, groups: int, group_size: int) -> list[Level]:
        """The next `groups` levels, `group_size` trajectories each."""
        levels = []
        for index, count in enumerate(groups_per_environment(self.environments, groups)):
            for _ in range(count):
                levels.append(self._level(index, group_size))
        return levels

    def _level(self, index: int, group_size: int) -> Level:
        seed, self.next_seed = self.next_seed, self.next_seed + 1
        noise = tuple(int(x) for x in self.rng.integers(2**62, size=group_size))
        name = self.environments[index].id
        return Level(name, self.factories[index], seed, noise, f"{name}/train/{seed}")

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state."""
        return {"next_seed": self.next_seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.next_seed = int(state["next_seed"])


@dataclass(frozen=True)
class HeldOut:
    """Held-out levels of one environment; `distinct` is the number of different contents among them."""

    environment: str
    levels: tuple[Level, ...]
    distinct: int


def held_out_levels(config: EnvironmentConfig, count: int, samples: int, seed: int) -> HeldOut:
    """The first `count` distinct contents of the validation split, `samples` noise seeds each (fixed by `seed`).

    An environment with fewer distinct contents repeats them with other noise; `distinct` tells. Seeds that give no level are
    passed over. Raises EnvironmentFault when none gives one.
    """
    factory = environment_factory(config, "validation")
    env = factory()
    try:
        seeds = _distinct_seeds(env, config.id, count)
    finally:
        env.close()
    rng = np.random.Generator(np.random.PCG64(seed))
    levels = []
    for number in range(count):
        level_seed = seeds[number % len(seeds)]
        noise = tuple(int(x) for x in rng.integers(2**62, size=samples))
        levels.append(Level(config.id, factory, level_seed, noise, f"{config.id}/validation/{level_seed}/{number}"))
    return HeldOut(config.id, tuple(levels), len(seeds))


def _distinct_seeds(env: TextEnv, name: str, count: int) -> list[int]:
    found: dict[str, int] = {}
    last: Exception | None = None
    failed = 0
    for seed in range(count * SEARCH_FACTOR):
        try:
            env.reset(seed, 0)
            found.setdefault(env.content(), seed)
        except Exception as error:  # foreign code: whatever it raises costs this seed only
            last, failed = error, failed + 1
            if not found and failed >= FAILURES_ALLOWED:
                break
        if len(found) == count or (seed > SEARCH_FACTOR * 4 and seed > SEARCH_FACTOR * len(found)):
            break
    if not found:
        raise EnvironmentFault(f"environment {name!r} gave no validation level in {failed} tries; the last raised {last!r}")
    return list(found.values())
