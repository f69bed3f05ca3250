"""One iteration's learning: kept rows in, optimiser steps on policy and critic out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragen2.algorithms import overlong_penalty, whiten
from ragen2.diagnostics.mismatch import logprob_mismatch
from ragen2.training.batches import spread_over_steps
from ragen2.training.config import RunConfig
from ragen2.training.credit import assign_critic_advantages, assign_group_advantages, rows_for_update
from ragen2.training.critic import explained_variance
from ragen2.training.policy import score_rows
from ragen2.training.setup import Parts
from ragen2.training.update_rows import UpdateRow
from ragen2.trajectory import RolloutBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Progress = Callable[[int, int], None]


def update(
    parts: Parts,
    batch: RolloutBatch,
    kept_P: np.ndarray,
    config: RunConfig,
    rng: np.random.Generator,
    *,
    scale: float,
    iteration: int,
    reference: PreTrainedModel | None,
    progress: Progress,
    measure_mismatch: bool = False,
) -> dict[str, float]:
    """Train on the kept groups of a batch. `scale` multiplies the advantages (see `filter.loss_scaling`). `measure_mismatch` logs
    how far the trainer's log-probabilities are from the sampler's also where the update itself does not need them.

    Raises NonFiniteLoss (the weights are those before the failing step).
    """
    rows = rows_for_update(batch, kept_P)
    metrics = _old_logprobs(parts, rows, config, measure_mismatch)
    metrics.update(prepare_rows(parts, rows, batch, config, scale, reference))
    learning = iteration > config.optimizer.critic_warmup_iterations or parts.critic is None
    steps = config.optimizer.steps_per_iteration
    if config.filter.updates == "shrink":
        # Against the groups of one iteration: refilling adds groups to the batch, not work to the iteration.
        steps = max(1, round(steps * min(1.0, float(kept_P.sum()) / config.rollout.groups)))
    total = config.optimizer.epochs * steps
    policy_stats: list[dict[str, float]] = []
    critic_stats: list[dict[str, float]] = []
    for epoch in range(config.optimizer.epochs):
        for number, step_rows in enumerate(_steps(rows, batch, steps, rng)):
            progress(epoch * steps + number, total)
            if not step_rows:
                continue
            if parts.critic is not None:
                critic_stats.append(parts.critic.step(step_rows))
            if learning:
                policy_stats.append(parts.policy.step(step_rows))
    metrics.update(_summarise(policy_stats, "policy"))
    metrics.update({f"critic/{key}": _mean(critic_stats, key) for key in ("loss", "gradient_norm") if critic_stats})
    metrics["policy/learning_rate"] = float(parts.policy.optimizer.param_groups[0]["lr"])
    metrics["policy/optimizer_steps"] = float(len(policy_stats))
    return metrics


def _old_logprobs(parts: Parts, rows: list[UpdateRow], config: RunConfig, measure: bool) -> dict[str, float]:
    """The trainer's own log-probabilities in place of the sampler's where the settings ask for it, and how far apart they are."""
    choice = config.optimizer.old_logprobs
    recompute = choice == "recompute" or (choice == "auto" and parts.arithmetic.autocast)
    if not (recompute or measure):
        return {}
    sampled = [row.old_logprobs_T for row in rows]
    score_rows(parts.model, rows, "old_logprobs_T", config.rollout.temperature, config.optimizer.token_budget, parts.arithmetic)
    flat = [np.concatenate(arrays) for arrays in (sampled, [r.old_logprobs_T for r in rows], [r.mask_T for r in rows])]
    if not recompute:
        for row, values in zip(rows, sampled, strict=True):
            row.old_logprobs_T = values
    return {f"policy/mismatch_{key}": value for key, value in logprob_mismatch(*flat).items()}


def prepare_rows(
    parts: Parts,
    rows: list[UpdateRow],
    batch: RolloutBatch,
    config: RunConfig,
    scale: float,
    reference: PreTrainedModel | None,
) -> dict[str, float]:
    """Fill in reference, values and advantages."""
    algorithm = parts.policy.algorithm
    metrics: dict[str, float] = {}
    if reference is not None:
        metrics["policy/kl_from_start"] = measure_reference(parts, rows, config, reference)
    shaping = _shaping(batch, config, parts)
    if parts.critic is None:
        assign_group_advantages(rows, batch, algorithm, shaping)
    else:
        parts.critic.values(rows)
        assign_critic_advantages(rows, batch, algorithm, shaping)
        metrics["critic/explained_variance"] = explained_variance(rows)
        if algorithm.whiten:
            _whiten(rows)
    for row in rows:
        row.advantages_T *= np.float32(scale)
    return metrics


def measure_reference(parts: Parts, rows: Sequence[UpdateRow], config: RunConfig, reference: PreTrainedModel) -> float:
    """Fill `reference_logprobs_T` and return the k3 estimate of KL(policy || start), in nats a token."""
    adapters_off = getattr(reference, "disable_adapter", contextlib.nullcontext)
    with adapters_off():
        score_rows(
            reference, rows, "reference_logprobs_T", config.rollout.temperature, config.optimizer.token_budget, parts.arithmetic
        )
    log_ratio = np.concatenate([(row.reference_logprobs_T - row.old_logprobs_T)[row.mask_T] for row in rows]).astype(np.float64)
    return float(np.mean(np.expm1(log_ratio) - log_ratio))


def _shaping(batch: RolloutBatch, config: RunConfig, parts: Parts) -> np.ndarray:
    """Penalty of each trajectory for overlong replies (of its longest), zero unless the algorithm has one."""
    algorithm, most = parts.policy.algorithm, config.rollout.turn_tokens
    if not algorithm.overlong_factor:
        return np.zeros(len(batch.trajectories))
    longest = [max((len(turn.sampled_ids) for turn in trajectory.turns), default=0) for trajectory in batch.trajectories]
    buffer = max(1, round(algorithm.overlong_share * most))
    return np.asarray(overlong_penalty(np.array(longest, dtype=np.float64), most, buffer, algorithm.overlong_factor))


def _whiten(rows: Sequence[UpdateRow]) -> None:
    flat = whiten(np.concatenate([row.advantages_T for row in rows]), np.concatenate([row.mask_T for row in rows]))
    start = 0
    for row in rows:
        row.advantages_T = np.asarray(flat[start : start + len(row.suffix)], dtype=np.float32)
        start += len(row.suffix)


def _steps(rows: list[UpdateRow], batch: RolloutBatch, steps: int, rng: np.random.Generator) -> list[list[UpdateRow]]:
    """Deal trajectories over optimiser steps; a trajectory's rows stay together."""
    by_trajectory: dict[int, list[UpdateRow]] = {}
    by_group: dict[int, list[int]] = {}
    for row in rows:
        if row.trajectory not in by_trajectory:
            by_group.setdefault(batch.group_index[row.trajectory], []).append(row.trajectory)
        by_trajectory.setdefault(row.trajectory, []).append(row)
    dealt = spread_over_steps([by_group[group] for group in sorted(by_group)], steps, rng)
    return [[row for index in members for row in by_trajectory[index]] for members in dealt]


def _summarise(stats: list[dict[str, float]], where: str) -> dict[str, float]:
    if not stats:
        return {}
    tokens = sum(item["tokens"] for item in stats)
    return {
        f"{where}/loss": _mean(stats, "loss"),
        f"{where}/gradient_norm": _mean(stats, "gradient_norm"),
        f"{where}/entropy": sum(item["entropy"] for item in stats) / tokens,
        f"{where}/clip_fraction": sum(item["clipped"] for item in stats) / tokens,
        f"{where}/kl_penalty": sum(item["kl"] for item in stats) / tokens,
        f"{where}/trained_tokens": tokens,
    }


def _mean(stats: list[dict[str, float]], key: str) -> float:
    return sum(item[key] for item in stats) / len(stats)
