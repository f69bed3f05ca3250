"""The signals of one iteration: flat metrics from a batch of rollouts, for the log, the monitor and the early stops."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ragen2.trajectory import RolloutBatch, Trajectory, Turn

EQUAL_RETURNS = 1e-9
"""Returns of a group are equal when max - min <= this * max(1, |max|); then the variance is exactly 0."""


def iteration_metrics(batch: RolloutBatch) -> dict[str, float]:
    """Metrics of a batch before it is filtered. Only valid trajectories count; broken ones are counted by cause.

    What cannot be computed is missing, not 0: a batch without a valid trajectory has counts only.
    """
    valid = [trajectory for trajectory in batch.trajectories if trajectory.valid]
    metrics = {"train/trajectories": float(len(batch.trajectories)), "train/valid_trajectories": float(len(valid))}
    metrics["train/sampled_tokens"] = float(sum(len(turn.sampled_ids) for t in batch.trajectories for turn in t.turns))
    causes = Counter(_path_part(t.fault or "unknown") for t in batch.trajectories if not t.valid)
    metrics |= {f"failures/{cause}": float(count) for cause, count in sorted(causes.items())}
    if valid:
        metrics |= _trajectory_metrics(valid)
    turns = [turn for trajectory in valid for turn in trajectory.turns]
    if turns:
        metrics |= _turn_metrics(turns)
    return metrics | reward_spread(batch)


def reward_spread(batch: RolloutBatch) -> dict[str, float]:
    """`collapse/reward_variance` and `collapse/reward_spread`: means over groups of the sample variance and the sample deviation
    (ddof 1) of task returns, over groups with at least two valid trajectories; empty when there is none."""
    variances = []
    for group in batch.groups:
        returns = np.array([trajectory.task_return for trajectory in group if trajectory.valid])
        if len(returns) < 2:
            continue
        equal = np.ptp(returns) <= EQUAL_RETURNS * max(1.0, abs(float(returns.max())))
        variances.append(0.0 if equal else float(returns.var(ddof=1)))
    return spread_figures(variances)


def spread_figures(variances: Sequence[float]) -> dict[str, float]:
    """The figures of `reward_spread` from the groups' variances; empty without a group."""
    if not variances:
        return {}
    return {
        "collapse/reward_variance": fmean(variances),
        "collapse/reward_spread": fmean(math.sqrt(value) for value in variances),
        "collapse/zero_variance_groups": fmean(value == 0.0 for value in variances),
    }


def _trajectory_metrics(valid: list[Trajectory]) -> dict[str, float]:
    stops = Counter(_path_part(trajectory.stop_reason) for trajectory in valid)
    return {
        "train/success": fmean(trajectory.success for trajectory in valid),
        "train/return": fmean(trajectory.return_ for trajectory in valid),
        "train/task_return": fmean(trajectory.task_return for trajectory in valid),
        "train/turns": fmean(len(trajectory.turns) for trajectory in valid),
        "train/response_length": fmean(sum(len(turn.sampled_ids) for turn in trajectory.turns) for trajectory in valid),
        **{f"stop/{reason}": count / len(valid) for reason, count in sorted(stops.items())},
    }


def _turn_metrics(turns: list[Turn]) -> dict[str, float]:
    statuses = Counter(_path_part(turn.parse_status) for turn in turns)
    spoken = [len(turn.reasoning_ids) for turn in turns if turn.reasoning_ids is not None]
    metrics = {
        "train/reply_length": fmean(len(turn.sampled_ids) for turn in turns),
        "train/truncated_rate": fmean(turn.truncated for turn in turns),
        "train/actions": fmean(len(turn.actions) for turn in turns),
        "collapse/valid_think_rate": fmean(turn.valid_think for turn in turns),
        "collapse/valid_action_rate": fmean(turn.valid_action for turn in turns),
        **{f"parse/{status}": count / len(turns) for status, count in sorted(statuses.items())},
    }
    if spoken:
        metrics["train/reasoning_length"] = fmean(spoken)
        metrics["collapse/empty_reasoning_rate"] = fmean(length == 0 for length in spoken)
    return metrics


def _path_part(text: str) -> str:
    """A cause or reason as one part of a metric name: the words before the first colon or bracket (where seeds and details
    stand, which differ in each trajectory), bounded."""
    cause = re.split(r":| \(", text[:200], maxsplit=1)[0]
    return re.sub(r"[^a-z0-9]+", "_", cause.lower()).strip("_")[:40] or "unknown"
