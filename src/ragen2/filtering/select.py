"""SNR-aware filtering: which groups of a batch carry a signal worth an update (arXiv 2604.06268 section 3)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ragen2.algorithms.arrays import to_numpy
from ragen2.errors import ConfigError, NonFiniteReturn
from ragen2.filtering.config import FilterConfig
from ragen2.filtering.decision import FilterDecision
from ragen2.filtering.scores import are_equal, checked_returns, group_scores, valid_returns, variance
from ragen2.filtering.selection import choose


def select_groups(
    task_returns_PG: Any,
    config: FilterConfig,
    *,
    valid_PG: Any = None,
    env_P: Sequence[Any] | np.ndarray | None = None,
    scores_P: Any = None,
    rng: np.random.Generator | None = None,
) -> FilterDecision:
    """Choose the groups to train on, whole groups only, from their returns (P prompts, G trajectories a prompt).

    `valid_PG` masks trajectories whose environment failed: they enter no statistic, and a group without a valid trajectory is
    never kept. `env_P` names each group's environment; selection runs within each unless `config.within_environment` is off.
    `scores_P` replaces the score computed from returns. `rng` draws the random control and is needed for it only. numpy or
    torch in, numpy out.

    Raises ConfigError for shapes or settings that do not fit, NonFiniteReturn for a valid return or score that is NaN or
    infinite.
    """
    returns_PG, valid = checked_returns(task_returns_PG, valid_PG)
    variance_P = group_scores(returns_PG, "variance", valid)
    deviation_P = np.sqrt(variance_P)
    scores = _scores(returns_PG, valid, config, scores_P, variance_P)
    if config.control == "random" and rng is None:
        raise ConfigError("filter.control is 'random': pass rng, a numpy Generator, so that the draw can be repeated.")
    groups = valid_returns(returns_PG, valid)
    alive_P = np.logical_or.reduce(valid, axis=1)
    kept_P = np.zeros(len(scores), dtype=bool)
    reasons: list[str] = []
    gated = False
    for name, members in _by_environment(env_P, len(scores), config):
        members = members[alive_P[members]]
        shut = config.mode != "none" and _are_alike(deviation_P[members], config.gate)
        gated |= shut
        chosen = members if shut else members[choose(scores[members].tolist(), config)]
        if config.control == "random" and rng is not None and not shut:
            chosen = rng.choice(members, size=len(chosen), replace=False)
        kept_P[chosen] = True
        reasons.append(f"{name}: {_reason(groups, scores, members, len(chosen), config, shut)}" if name else "")
    share = float(kept_P.mean())
    whole = _reason(groups, scores, np.nonzero(alive_P)[0], int(kept_P.sum()), config, gated)
    return FilterDecision(
        kept_P=kept_P,
        scores_P=scores,
        reason="; ".join(reasons) if len(reasons) > 1 else whole,
        zero_P=scores == 0.0,
        gated=gated,
        spread_ratio=spread_ratio(deviation_P[alive_P]),
        loss_scale={"none": 1.0, "kept": share, "sqrt": math.sqrt(share)}[config.loss_scaling],
    )


def spread_ratio(deviation_P: Sequence[float] | np.ndarray) -> float:
    """std (ddof 1) / mean over groups of the deviation of their returns: about 1.2 where filtering helped in the paper's table
    8, .33 where it hurt.

    0 when there is nothing to compare: fewer than two groups, or no spread in any.
    """
    deviations = [float(value) for value in deviation_P]
    total = math.fsum(deviations)
    if len(deviations) < 2 or total == 0.0:
        return 0.0
    return math.sqrt(variance(deviations)) / (total / len(deviations))


def _are_alike(deviation_P: np.ndarray, gate: float) -> bool:
    return len(deviation_P) > 1 and bool(deviation_P.any()) and spread_ratio(deviation_P) < gate


def wants_refill(kept_groups: int, total_groups: int, refills: int, config: FilterConfig) -> bool:
    """Whether to sample other prompts: too few groups kept so far, and fewer than `max_refills` samplings again in this
    iteration.

    `kept_groups` counts those kept over all samplings of the iteration, `total_groups` is the iteration's number of groups.
    """
    if config.on_empty != "refill" or refills >= config.max_refills:
        return False
    return kept_groups < max(1, math.ceil(config.refill_share * total_groups - 1e-9))


def _scores(
    returns_PG: np.ndarray, valid_PG: np.ndarray, config: FilterConfig, scores_P: Any, variance_P: np.ndarray
) -> np.ndarray:
    if scores_P is None:
        return variance_P if config.score == "variance" else group_scores(returns_PG, config.score, valid_PG)
    scores = to_numpy(scores_P).astype(np.float64)
    if scores.shape != (len(returns_PG),):
        raise ConfigError(f"scores_P has shape {scores.shape}; it must hold one number for each of the {len(returns_PG)} groups.")
    alive_P = valid_PG.any(axis=1)
    broken = np.nonzero(alive_P & ~np.isfinite(scores))[0]
    if len(broken):
        raise NonFiniteReturn(f"scores_P: group {broken[0]} has the score {scores[broken[0]]}; scores must be finite.")
    return np.where(alive_P, scores, 0.0)


def _by_environment(env_P: Any, count: int, config: FilterConfig) -> list[tuple[str, np.ndarray]]:
    """Groups of each environment in order of first appearance; one nameless list when all compete."""
    if env_P is not None and len(env_P) != count:
        raise ConfigError(f"env_P has {len(env_P)} entries; it must name the environment of each of the {count} groups.")
    if env_P is None or not config.within_environment:
        return [("", np.arange(count))]
    members: dict[Any, list[int]] = {}
    for index, name in enumerate(env_P):
        members.setdefault(name, []).append(index)
    return [(str(name), np.array(indices)) for name, indices in members.items()]


def _reason(
    groups: Sequence[Sequence[float]], scores: np.ndarray, members: np.ndarray, kept: int, config: FilterConfig, gated: bool
) -> str:
    if gated:
        return f"kept {kept} of {len(members)} groups: their spreads are alike (std / mean under the gate {config.gate:g})"
    if kept:
        return f"kept {kept} of {len(members)} groups by {_rule(config)}"
    if not len(members):
        return "no group has a valid trajectory"
    lone = sum(len(groups[index]) < 2 for index in members)
    equal = [groups[index] for index in members if len(groups[index]) >= 2 and are_equal(list(groups[index]))]
    if lone + len(equal) < len(members):
        return f"none of {len(members)} groups has a score above 0 to keep by {_rule(config)}"
    parts = []
    if equal:
        levels = Counter(round(values[0], 9) + 0.0 for values in equal).most_common()
        shown = ", ".join(f"{times} at {level:g}" for level, times in levels[:3])
        more = f", {len(levels) - 3} more levels" if len(levels) > 3 else ""
        parts.append(f"{_counted(len(equal), not lone)} equal returns ({shown}{more})")
    if lone:
        parts.append(f"{_counted(lone, not equal)} fewer than two valid trajectories")
    return " and ".join(parts)


def _counted(count: int, everyone: bool) -> str:
    return f"{'all ' if everyone and count > 1 else ''}{count} {'group has' if count == 1 else 'groups have'}"


def _rule(config: FilterConfig) -> str:
    if config.mode == "none":
        return "no filter"
    amount = {
        "top_p": f"{config.top_p:g} of the total",
        "softmax_top_p": f"{config.top_p:g} of the softmax of the",
        "top_k": f"{config.top_k:g} of the groups,",
        "top_k_count": f"{config.top_k_count} groups,",
        "min_p": f"{config.min_p:g} of the best",
    }[config.mode]
    rule = f"{config.mode}: {amount} {config.score}, {config.direction} first"
    return f"{rule}, then as many drawn at random" if config.control == "random" else rule
