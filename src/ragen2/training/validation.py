"""Validation on held-out levels: success, return and unbiased pass@k, with intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np

from ragen2.algorithms import pass_at_k
from ragen2.rollout.collector import Collector
from ragen2.training.levels import HeldOut
from ragen2.training.settings import ValidationConfig
from ragen2.trajectory import RolloutBatch, Trajectory


def validate(
    collector: Collector,
    held_out: Sequence[HeldOut],
    config: ValidationConfig,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, float], list[RolloutBatch]]:
    """Play every held-out level and return `validation/<env>/…` metrics with the rollouts behind them.

    Sampling seeds come from `seed` alone, so two policies are compared on the same draws.
    """
    metrics: dict[str, float] = {}
    batches = []
    rng = np.random.Generator(np.random.PCG64(seed))
    for item in held_out:
        seeds = rng.integers(2**62, size=len(item.levels) * config.samples).tolist()
        batch = collector.collect(item.levels, seeds, policy_version=0, temperature=config.temperature, progress=progress)
        batches.append(batch)
        metrics.update(summarise(batch, item, config))
    return metrics, batches


def summarise(batch: RolloutBatch, item: HeldOut, config: ValidationConfig) -> dict[str, float]:
    """Metrics of one environment's validation. Broken episodes are left out and counted."""
    where = f"validation/{item.environment}"
    valid = [trajectory for trajectory in batch.trajectories if trajectory.valid]
    metrics = {f"{where}/episodes": float(len(valid)), f"{where}/distinct_levels": float(item.distinct)}
    metrics[f"{where}/faults"] = float(len(batch.trajectories) - len(valid))
    if not valid:
        return metrics
    success = fmean(trajectory.success for trajectory in valid)
    low, high = wilson_interval(sum(trajectory.success for trajectory in valid), len(valid))
    metrics[f"{where}/success"] = success
    metrics[f"{where}/success_low"], metrics[f"{where}/success_high"] = low, high
    metrics[f"{where}/return"] = fmean(trajectory.task_return for trajectory in valid)
    turns = [turn for trajectory in valid for turn in trajectory.turns]
    metrics[f"{where}/valid_think_rate"] = fmean(turn.valid_think for turn in turns)
    for k in config.pass_at:
        metrics[f"{where}/pass_at_{k}"] = _mean_pass_at(valid, k)
    return metrics


def _mean_pass_at(trajectories: Sequence[Trajectory], k: int) -> float:
    by_prompt: dict[str, list[bool]] = defaultdict(list)
    for trajectory in trajectories:
        by_prompt[trajectory.prompt_id].append(trajectory.success)
    enough = [wins for wins in by_prompt.values() if len(wins) >= k]
    return fmean(pass_at_k(len(wins), sum(wins), k) for wins in enough) if enough else float("nan")


def wilson_interval(successes: int, trials: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Two-sided 95 % Wilson interval of a proportion."""
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)
