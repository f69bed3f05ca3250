"""One iteration's groups: sampled, filtered, and where the settings ask for it sampled again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen2.filtering import FilterConfig, FilterDecision, select_groups, wants_refill
from ragen2.training.credit import returns_by_group
from ragen2.trajectory import RolloutBatch, Trajectory


@dataclass(frozen=True)
class Selection:
    """The batch of an iteration and what the filter made of it.

    `first` is the first sampling, whole: what the monitor measures. `dropped` holds the groups that were left behind when the
    iteration sampled again: they are not in `batch`.
    """

    batch: RolloutBatch
    kept_P: np.ndarray
    decision: FilterDecision
    first: RolloutBatch
    refills: int
    dropped: tuple[RolloutBatch, ...] = ()

    def metrics(self) -> dict[str, Any]:
        """Flat numbers under `filter/`."""
        kept, sampled = int(self.kept_P.sum()), len(self.kept_P) + sum(len(left.groups) for left in self.dropped)
        return {
            **self.decision.metrics(),
            "filter/groups": sampled,
            "filter/kept_groups": kept,
            "filter/kept_share": kept / sampled,
            "filter/refills": self.refills,
            "filter/reason": self.decision.reason,
        }


def collect_groups(sample: Callable[[], RolloutBatch], config: FilterConfig, groups: int, rng: np.random.Generator) -> Selection:
    """Sample and filter until enough is kept or the refills are used up. At most `groups` groups stay kept."""
    first = batch = sample()
    decision = filter_batch(batch, config, rng)
    dropped: list[RolloutBatch] = []
    while wants_refill(decision.kept_groups, groups, len(dropped), config):
        dropped.append(only_kept(batch, ~decision.kept_P))
        batch = join(only_kept(batch, decision.kept_P), sample())
        decision = filter_batch(batch, config, rng)
    kept_P = decision.kept_P.copy()
    kept_P[np.nonzero(kept_P)[0][groups:]] = False
    return Selection(batch, kept_P, decision, first, len(dropped), tuple(dropped))


def filter_batch(batch: RolloutBatch, config: FilterConfig, rng: np.random.Generator) -> FilterDecision:
    """Apply the filter to the task's returns (with the penalty where `include_penalty` says so), within each environment."""
    returns_PG, valid_PG = returns_by_group(batch, task=not config.include_penalty)
    environments = [group[0].environment for group in batch.groups]
    scores_P = measured_scores(batch, config.score)
    return select_groups(returns_PG, config, valid_PG=valid_PG, env_P=environments, scores_P=scores_P, rng=rng)


def measured_scores(batch: RolloutBatch, score: str) -> np.ndarray | None:
    """Scores that are not made from returns: mean reply length, and entropy estimated by the sampled tokens' negative
    log-probabilities (its group mean, or the variance over the group's trajectories). None for scores made from returns."""
    if score == "length":
        return np.array([_mean([_tokens(item) for item in group if item.valid]) for group in batch.groups])
    if score == "entropy":
        return np.array([_mean([_surprise(item) for item in group if item.valid]) for group in batch.groups])
    if score == "entropy_variance":
        found = [[_surprise(item) for item in group if item.valid] for group in batch.groups]
        return np.array([float(np.var(values, ddof=1)) if len(values) > 1 else 0.0 for values in found])
    return None


def only_kept(batch: RolloutBatch, kept_P: np.ndarray) -> RolloutBatch:
    """The kept groups of a batch, renumbered from 0."""
    numbers = {int(old): new for new, old in enumerate(np.nonzero(kept_P)[0])}
    pairs = [(t, numbers[g]) for t, g in zip(batch.trajectories, batch.group_index, strict=True) if g in numbers]
    return RolloutBatch(tuple(t for t, _ in pairs), tuple(g for _, g in pairs), batch.policy_version, batch.sampling)


def join(left: RolloutBatch, right: RolloutBatch) -> RolloutBatch:
    """Both batches as one; the right one's groups follow the left one's."""
    offset = max(left.group_index, default=-1) + 1
    groups = left.group_index + tuple(group + offset for group in right.group_index)
    return RolloutBatch(left.trajectories + right.trajectories, groups, right.policy_version, right.sampling)


def _tokens(trajectory: Trajectory) -> float:
    return float(sum(len(turn.sampled_ids) for turn in trajectory.turns))


def _surprise(trajectory: Trajectory) -> float:
    logprobs = np.concatenate([turn.logprobs for turn in trajectory.turns]) if trajectory.turns else np.zeros(0)
    return float(-logprobs.mean()) if len(logprobs) else 0.0


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0
