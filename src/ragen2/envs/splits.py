"""Which split a level belongs to, and how levels and chance are drawn from seeds.

A level's content decides its split, so train, validation and test can never share a level, whatever seeds are used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ragen2.errors import ConfigError, EnvironmentFault, UnknownName

if TYPE_CHECKING:
    from ragen2.envs.base import TextEnv

Level = TypeVar("Level")

SPLITS = ("train", "validation", "test")

_NOISE_STREAM = 0x6E6F6973
"""Keeps chance apart from level drawing when both seeds are the same number."""


def check_split(split: str) -> str:
    """`split` itself. Raises UnknownName when it is not "train", "validation" or "test"."""
    if split not in SPLITS:
        raise UnknownName("split", str(split), SPLITS)
    return split


def check_seed(name: str, seed: int) -> int:
    """`seed` as a plain int. Raises ConfigError when it is not a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigError(f"{name} is {seed!r}; a seed is a whole number of at least 0")
    return int(seed)


def split_of(content: str) -> str:
    """The split of a level with this canonical content: sha256 mod 10 is 0 for validation, 1 for test, else train."""
    bucket = int.from_bytes(hashlib.sha256(content.encode()).digest(), "big") % 10
    return {0: "validation", 1: "test"}.get(bucket, "train")


def level_rng(level_seed: int, attempt: int = 0) -> np.random.Generator:
    """The generator that draws a level: the same in any process. Raises ConfigError on a negative seed."""
    return np.random.Generator(np.random.PCG64([check_seed("level_seed", level_seed), attempt]))


def noise_rng(noise_seed: int) -> np.random.Generator:
    """The generator of an episode's chance (slips, payouts). Raises ConfigError on a negative seed."""
    return np.random.Generator(np.random.PCG64([check_seed("noise_seed", noise_seed), _NOISE_STREAM]))


def draw_level(
    level_seed: int,
    split: str,
    generate: Callable[[np.random.Generator], Level | None],
    content: Callable[[Level], str],
    attempts: int = 200,
) -> Level:
    """The first drawn level whose content falls in `split`.

    `generate` returns None for a draw that is no level (unsolvable, trivial). Attempt k draws from `level_rng(level_seed, k)`.
    Raises EnvironmentFault after `attempts` draws, saying how many were no level and how many fell in other splits.
    """
    check_split(split)
    unusable = 0
    for attempt in range(attempts):
        level = generate(level_rng(level_seed, attempt))
        if level is None:
            unusable += 1
        elif split_of(content(level)) == split:
            return level
    raise EnvironmentFault(
        f"level seed {level_seed} gave no {split} level in {attempts} draws: {unusable} were no usable level, "
        f"{attempts - unusable} belong to other splits. Use an easier configuration (a larger or emptier room) or another seed."
    )


def validation_seeds(
    env: TextEnv | Callable[[], TextEnv], count: int, *, repeats: bool = False, limit: int | None = None
) -> list[int]:
    """Level seeds, counting up from 0, of the first `count` distinct contents of the environment's own split.

    Tries `limit` seeds at most (default 16 x count + 256). When the split holds fewer distinct contents: with `repeats` the
    remaining places go to the lowest unused seeds (fresh noise on a known content, as for a bandit of few arms), else
    ConfigError says how many distinct contents were found. Raises EnvironmentFault where a seed gives no level of the split.
    """
    if count < 1:
        raise ConfigError(f"count is {count}; ask for at least 1 level")
    instance = env() if callable(env) else env
    seen: set[str] = set()
    seeds: list[int] = []
    spare: list[int] = []
    tried = 16 * count + 256 if limit is None else limit
    for seed in range(tried):
        instance.reset(seed, 0)
        key = instance.content()
        if key in seen:
            spare.append(seed)
            continue
        seen.add(key)
        seeds.append(seed)
        if len(seeds) == count:
            return seeds
    missing = count - len(seeds)
    if repeats and len(spare) >= missing:
        return sorted(seeds + spare[:missing])
    raise ConfigError(
        f"{count} distinct {instance.split} levels were asked for; {tried} level seeds hold only {len(seeds)} distinct ones. "
        f"Ask for at most {len(seeds)}, or allow repeats=True."
    )
