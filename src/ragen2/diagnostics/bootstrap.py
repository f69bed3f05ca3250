"""Bootstrap interval of mutual information: per-prompt mean gaps resampled, the mixture fixed.

Two faults of the plain percentile bootstrap are mended, both of which make it too narrow. With few prompts it underestimates the
spread: the draws carry the factor P / (P - 1) and Student's tails. And where every sampled reasoning happened to be typical it
sees no spread at all: the spread never counts as less than the mixture itself implies (see `PromptGaps.variance_floor`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragen2.diagnostics.score_matrix import ScoreMatrix, matched_and_marginal, means_by_source, score_matrix
from ragen2.errors import NotMeasurable

ROUNDING_NATS = 1e-10
"""Bounds reach this much further, so that equal gaps do not give an interval that rounding alone puts beside the truth."""


@dataclass(frozen=True)
class PromptGaps:
    """Mean of matched minus marginal (nats) of each context that has reasonings, and what their mean's interval needs.

    `prompts` says which prompt each context belongs to: contexts of one prompt are resampled together, in one matrix and across
    matrices. `weight` is the number of reasonings. `variance_floor` is a lower bound on the variance of the mean gap: given a
    reasoning z, its true context is x_j with probability p(z | x_j) / sum_i p(z | x_i), and the gap varies with j. It covers
    the rare reasonings that fit another prompt better, which a small sample may not hold.
    """

    gaps_P: np.ndarray
    prompts: tuple[Hashable, ...]
    weight: float
    variance_floor: float
    ceiling: float


def prompt_gaps(
    sum_logprob_SN: ArrayLike,
    source_S: ArrayLike,
    prompt_class_N: ArrayLike | None = None,
    *,
    prompts_N: Sequence[Hashable] | None = None,
) -> PromptGaps:
    """Gaps by context. `prompts_N` names the prompt of each column; default: each distinct context is its own.

    Raises NotMeasurable like `mutual_information`, and where `prompts_N` has another length than the contexts.
    """
    scores = score_matrix(sum_logprob_SN, source_S, prompt_class_N)
    columns = np.asarray(sum_logprob_SN).shape[1]
    if prompts_N is not None and len(prompts_N) != columns:
        raise NotMeasurable(f"prompts_N names {len(prompts_N)} prompts, but there are {columns} contexts")
    matched_S, marginal_S = matched_and_marginal(scores.sum_SN, scores.source_S)
    used = scores.first_N[np.unique(scores.source_S)].tolist()
    return PromptGaps(
        gaps_P=means_by_source(matched_S - marginal_S, scores.source_S),
        prompts=tuple(used if prompts_N is None else (prompts_N[column] for column in used)),
        weight=float(len(scores.source_S)),
        variance_floor=_variance_floor(scores),
        ceiling=float(np.log(scores.sum_SN.shape[1])),
    )


def sequence_gaps(sum_logprob_SN: ArrayLike, source_S: ArrayLike, prompt_class_N: ArrayLike | None = None) -> np.ndarray:
    """Mean of matched minus marginal (nats) of each distinct context that has reasonings, by its first column: [contexts].

    Their mean is `mi_sequence`. Raises NotMeasurable like `mutual_information`.
    """
    return prompt_gaps(sum_logprob_SN, source_S, prompt_class_N).gaps_P


def resampled_mean(parts: Sequence[PromptGaps], rng: np.random.Generator, resamples: int = 1000) -> np.ndarray:
    """Bootstrap draws of the mean gap of several matrices, weighted by their reasonings: [resamples].

    Prompts are resampled whole. Raises NotMeasurable where a matrix has reasonings of one prompt only: they show no spread.
    """
    if not parts:
        raise NotMeasurable("no gaps to resample")
    number = {label: place for place, label in enumerate(dict.fromkeys(label for part in parts for label in part.prompts))}
    share_U = np.zeros(len(number))
    total = sum(part.weight for part in parts)
    centre = floor = freedom = 0.0
    for part in parts:
        weight, prompts = part.weight / total, len(set(part.prompts))
        if prompts < 2:
            raise NotMeasurable("reasonings of one prompt only: an interval needs at least two prompts with reasonings")
        gaps_P = part.gaps_P
        share_P = (gaps_P - gaps_P.mean()) * weight / len(gaps_P) * np.sqrt(prompts / (prompts - 1))
        np.add.at(share_U, [number[label] for label in part.prompts], share_P)
        centre += weight * float(gaps_P.mean())
        floor += weight**2 * part.variance_floor
        freedom += weight * (prompts - 1)
    drawn_BU = rng.integers(len(share_U), size=(resamples, len(share_U)))
    deviation_B = share_U[drawn_BU].sum(axis=1)
    unseen = max(floor - float(share_U @ share_U), 0.0)
    deviation_B += np.sqrt(unseen) * rng.standard_normal(resamples)
    # Student's t is a normal over an independent root of chi-square by its degrees of freedom.
    return centre + deviation_B * np.sqrt(freedom / rng.chisquare(freedom, size=resamples))


def interval_from(draws_B: np.ndarray, ceiling: float, level: float = 0.95) -> tuple[float, float]:
    """Bounds (nats) between which the middle `level` of the draws lies; the upper one no higher than the ceiling."""
    low, high = np.quantile(draws_B, [(1 - level) / 2, (1 + level) / 2])
    return float(min(low, ceiling)) - ROUNDING_NATS, float(min(high, ceiling)) + ROUNDING_NATS


def mi_resamples(
    sum_logprob_SN: ArrayLike,
    source_S: ArrayLike,
    prompt_class_N: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    resamples: int = 1000,
) -> np.ndarray:
    """Bootstrap draws of `mi_sequence`: the per-context mean gaps resampled with the mixture fixed: [resamples].

    Resampling the columns would shrink the number of distinct contexts and with it the ceiling. Raises NotMeasurable like
    `mutual_information`, and where only one context has reasonings.
    """
    return resampled_mean([prompt_gaps(sum_logprob_SN, source_S, prompt_class_N)], rng, resamples)


def mi_interval(
    sum_logprob_SN: ArrayLike,
    source_S: ArrayLike,
    prompt_class_N: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 1000,
) -> tuple[float, float]:
    """Bootstrap interval of `mi_sequence` in nats. Raises NotMeasurable like `mi_resamples`."""
    gaps = prompt_gaps(sum_logprob_SN, source_S, prompt_class_N)
    return interval_from(resampled_mean([gaps], rng, resamples), gaps.ceiling, level)


def _variance_floor(scores: ScoreMatrix) -> float:
    weight_SN = np.exp(scores.sum_SN - scores.sum_SN.max(axis=1, keepdims=True))
    weight_SN /= weight_SN.sum(axis=1, keepdims=True)
    # The gap to context j is log N + log weight_j: its variance over j needs the weights alone.
    log_SN = np.log(np.where(weight_SN > 0, weight_SN, 1.0))
    mean_S1 = (weight_SN * log_SN).sum(axis=1, keepdims=True)
    variance_S = (weight_SN * (log_SN - mean_S1) ** 2).sum(axis=1)
    _, counts_P = np.unique(scores.source_S, return_counts=True)
    return float((means_by_source(variance_S, scores.source_S) / counts_P).sum()) / len(counts_P) ** 2
