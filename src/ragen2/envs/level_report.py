"""How the levels of an environment spread over its splits: distinct ones, repeats, overlaps, and how short the shortest are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ragen2.envs.base import TextEnv
from ragen2.envs.splits import SPLITS
from ragen2.errors import ConfigError

RANGES: Mapping[str, int] = {"train": 1600, "validation": 512, "test": 512}
"""Level seeds of each split that are looked at by default, counted from 0: a run of 200 iterations of 8 prompts, and two
validation sets."""

MOST_ACTIONS = 200
"""Actions after which the demonstrator is given up on a level."""

TRIVIAL = 1
"""Levels that the demonstrator ends within this many actions are trivially short."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class SplitReport:
    """One split: level seeds looked at, distinct contents among them (the rest are repeats), and actions of the demonstrator's
    solutions by how many distinct levels take that many; `unsolved` where it found none, None where there is no demonstrator."""

    split: str
    seeds: int
    distinct: int
    actions: Mapping[int, int]
    unsolved: int | None

    @property
    def repeats(self) -> int:
        return self.seeds - self.distinct

    @property
    def trivial(self) -> int:
        """Distinct levels solved within `TRIVIAL` actions."""
        return sum(count for actions, count in self.actions.items() if actions <= TRIVIAL)


@dataclass(frozen=True)
class LevelReport:
    """Splits in order, and contents that two splits share by the pair of their names (all 0 where splits are by content)."""

    splits: tuple[SplitReport, ...]
    shared: Mapping[tuple[str, str], int]


def level_report(
    make: Callable[[str], TextEnv], ranges: Mapping[str, int] | None = None, progress: Progress | None = None
) -> LevelReport:
    """Look at the first level seeds of each split; `make(split)` builds the environment.

    Raises ConfigError for an unknown split or a range below 1, and EnvironmentFault where a seed gives no level.
    """
    ranges = RANGES if ranges is None else ranges
    if set(ranges) - set(SPLITS) or min(ranges.values(), default=0) < 1:
        raise ConfigError(f"ranges are {dict(ranges)}; give numbers of level seeds of at least 1 for some of {', '.join(SPLITS)}")
    total, done = sum(ranges.values()), 0
    contents: dict[str, set[str]] = {}
    reports = []
    for split in (name for name in SPLITS if name in ranges):
        env = make(split)
        seen: set[str] = set()
        lengths: Counter[int] = Counter()
        unsolved: int | None = 0
        for seed in range(ranges[split]):
            env.reset(seed, 0)
            content = env.content()
            if content not in seen:
                seen.add(content)
                if unsolved is not None:
                    actions = _solution(env)
                    unsolved = None if actions < 0 else unsolved + (actions == 0)
                    lengths[actions] += actions > 0
            done += 1
            if progress is not None:
                progress(done, total)
        env.close()
        contents[split] = seen
        reports.append(SplitReport(split, ranges[split], len(seen), dict(sorted((+lengths).items())), unsolved))
    names = [report.split for report in reports]
    shared = {(a, b): len(contents[a] & contents[b]) for k, a in enumerate(names) for b in names[k + 1 :]}
    return LevelReport(tuple(reports), shared)


def _solution(env: TextEnv) -> int:
    """Actions the demonstrator takes to succeed on the level just reset; 0 where it does not, -1 where there is none."""
    rng, taken = np.random.default_rng(0), 0
    while taken < MOST_ACTIONS:
        try:
            shown = env.demonstrate(rng, 1.0, MOST_ACTIONS - taken)
        except NotImplementedError:
            return -1
        if not shown.actions:
            return 0
        for action in shown.actions:
            result = env.step(action)
            taken += 1
            if result.done:
                return taken if result.info["success"] else 0
    return 0
