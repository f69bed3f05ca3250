"""From a filtered batch to update rows: which trajectories are trained on, and the advantage of each of their tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ragen2.algorithms import ResolvedAlgorithm, bi_level_gae_advantages, gae_advantages, get_algorithm, kl_penalty
from ragen2.rollout.rows import rows_of
from ragen2.training.update_rows import UpdateRow
from ragen2.trajectory import RolloutBatch, Trajectory


def rows_for_update(batch: RolloutBatch, kept_P: np.ndarray) -> list[UpdateRow]:
    """Rows of the valid trajectories of kept groups, advantages still zero. `trajectory` indexes `batch.trajectories`."""
    rows = []
    for index, (group, trajectory) in enumerate(zip(batch.group_index, batch.trajectories, strict=True)):
        if not (kept_P[group] and trajectory.valid):
            continue
        for row in rows_of(trajectory):
            zeros = np.zeros(len(row.suffix_ids), dtype=np.float32)
            rows.append(
                UpdateRow(
                    trajectory=index,
                    prefix=row.prompt_ids,
                    suffix=row.suffix_ids,
                    mask_T=row.mask,
                    old_logprobs_T=row.logprobs.astype(np.float32),
                    advantages_T=zeros,
                    returns_T=zeros.copy(),
                    values_T=zeros.copy(),
                    reference_logprobs_T=zeros.copy(),
                )
            )
    return rows


def returns_by_group(batch: RolloutBatch, *, task: bool) -> tuple[np.ndarray, np.ndarray]:
    """(returns_PG, valid_PG) in float64; `task` leaves the format penalty out.

    Invalid places hold 0; smaller groups are filled up as invalid.
    """
    groups = batch.groups
    width = max(len(group) for group in groups)
    returns_PG = np.zeros((len(groups), width))
    valid_PG = np.zeros((len(groups), width), dtype=bool)
    for p, group in enumerate(groups):
        for g, trajectory in enumerate(group):
            if trajectory.valid:
                returns_PG[p, g] = trajectory.task_return if task else trajectory.return_
                valid_PG[p, g] = True
    return returns_PG, valid_PG


def assign_group_advantages(
    rows: Sequence[UpdateRow], batch: RolloutBatch, config: ResolvedAlgorithm, shaping: np.ndarray
) -> None:
    """Give every token of a trajectory the trajectory's group-relative advantage.

    `shaping` (one number a trajectory) is added to the returns before, for example the soft overlong penalty of DAPO; so is
    the divergence from the reference when it acts in the reward.
    """
    returns_PG, valid_PG = returns_by_group(batch, task=False)
    place: dict[int, tuple[int, int]] = {}
    seen: Counter[int] = Counter()
    for index, group in enumerate(batch.group_index):
        place[index] = (group, seen[group])
        seen[group] += 1
        if batch.trajectories[index].valid:
            returns_PG[place[index]] += shaping[index]
    if _kl_in_reward(config):
        for row in rows:
            returns_PG[place[row.trajectory]] -= config.kl_coef * float(_divergence(row, config)[row.mask_T].sum())
    advantages_PG = np.asarray(get_algorithm(config.name).advantages(returns_PG, valid_PG=valid_PG))
    for row in rows:
        row.advantages_T = np.where(row.mask_T, advantages_PG[place[row.trajectory]], 0.0).astype(np.float32)


def assign_critic_advantages(
    rows: Sequence[UpdateRow], batch: RolloutBatch, config: ResolvedAlgorithm, shaping: np.ndarray
) -> None:
    """Token advantages and returns by generalised advantage estimation over the model's tokens of each trajectory.

    Each turn's reward (with its penalty) stands at the turn's last sampled token, the divergence from the reference (when it
    acts in the reward) at every token; `values_T` must hold the critic's values.
    """
    by_trajectory: dict[int, list[UpdateRow]] = {}
    for row in rows:
        by_trajectory.setdefault(row.trajectory, []).append(row)
    for index, own in by_trajectory.items():
        turns_K, turn_rewards = _turns(batch.trajectories[index], float(shaping[index]))
        token_rewards_K = np.zeros(len(turns_K))
        if _kl_in_reward(config):
            token_rewards_K -= config.kl_coef * np.concatenate([_divergence(row, config)[row.mask_T] for row in own])
        values_K = np.concatenate([row.values_T[row.mask_T] for row in own]).astype(np.float64)
        advantages_K, returns_K = _estimate(turn_rewards, token_rewards_K, values_K, turns_K, config)
        start = 0
        for row in own:
            stop = start + row.tokens
            row.advantages_T = _spread(row, advantages_K[start:stop])
            row.returns_T = _spread(row, returns_K[start:stop])
            start = stop


def _estimate(
    turn_rewards: np.ndarray, token_rewards_K: np.ndarray, values_K: np.ndarray, turns_K: np.ndarray, config: ResolvedAlgorithm
) -> tuple[np.ndarray, np.ndarray]:
    if config.bi_level:
        summed = turn_rewards + np.bincount(turns_K, weights=token_rewards_K, minlength=len(turn_rewards))
        return bi_level_gae_advantages(summed, values_K, turns_K, config.turn_gamma, config.gamma, config.lam)
    rewards_K = token_rewards_K.copy()
    last_of_turn = np.append(np.nonzero(np.diff(turns_K))[0], len(turns_K) - 1)
    rewards_K[last_of_turn] += turn_rewards
    return gae_advantages(rewards_K, values_K, np.ones(len(values_K), dtype=bool), config.gamma, config.lam)


def _turns(trajectory: Trajectory, shaping: float) -> tuple[np.ndarray, np.ndarray]:
    """Turn number (0, 1, ... over turns with tokens) of every sampled token, and each such turn's reward.

    `shaping` is added to the last.
    """
    turns = [turn for turn in trajectory.turns if len(turn.sampled_ids)]
    rewards = np.array([turn.reward + turn.penalty for turn in turns])
    rewards[-1] += shaping
    return np.repeat(np.arange(len(turns)), [len(turn.sampled_ids) for turn in turns]), rewards


def _spread(row: UpdateRow, values_K: np.ndarray) -> np.ndarray:
    """Values of the row's trained tokens at their places, 0 elsewhere."""
    filled_T = np.zeros(len(row.suffix), dtype=np.float32)
    filled_T[row.mask_T] = values_K
    return filled_T


def _kl_in_reward(config: ResolvedAlgorithm) -> bool:
    return config.kl_coef > 0 and config.kl_in == "reward"


def _divergence(row: UpdateRow, config: ResolvedAlgorithm) -> np.ndarray:
    """Estimate at every token, from the sampling log-probabilities and `reference_logprobs_T`."""
    old, reference = row.old_logprobs_T.astype(np.float64), row.reference_logprobs_T.astype(np.float64)
    return np.asarray(kl_penalty(old, reference, row.mask_T, estimator=config.kl_estimator))
