"""Mutual information between what the policy is shown and what it reasons, from a matrix of cross-scores.

Source: the RAGEN-2 paper (arXiv 2604.06268), Eq. 1, in its sequence form: nats, mixture over the DISTINCT contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragen2.errors import NotMeasurable

ZSCORE_EPSILON = 1e-3
"""Added to the deviation of the marginals before a z-score divides by it (the paper's value)."""

RETRIEVAL_KS = (2, 4, 8)


@dataclass(frozen=True)
class _Scores:
    """Checked input, duplicate contexts merged: `sum_SN` over distinct contexts, `source_S` into them."""

    sum_SN: np.ndarray
    lengths_S: np.ndarray
    source_S: np.ndarray


def mutual_information(
    sum_logprob_SN: ArrayLike, lengths_S: ArrayLike, source_S: ArrayLike, prompt_class_N: ArrayLike | None = None
) -> dict[str, float]:
    """Mutual information, entropies and retrieval from cross-scores.

    Args:
        sum_logprob_SN: log p(reasoning s | context n) in nats, summed over the tokens of the reasoning. -inf is allowed in
            contexts other than the reasoning's own.
        lengths_S: tokens of each reasoning. 0 is an empty reasoning: it counts in the sequence form (gap 0, retrieval a tie)
            and is left out of the token form and of nothing else.
        source_S: column of the context each reasoning was sampled in.
        prompt_class_N: equal numbers for identical contexts; default all distinct. Duplicates are merged first.

    Returns:
        Flat figures. `*_sequence` come from the sums: `mi_sequence` in nats, at most `mi_upper_bound` = log N distinct contexts.
        `*_token` come from sums divided by length: the public code's form, no information in nats. Each average runs within a
        source context first, then over the contexts that have reasonings. `mi_rate` is nats a token. A tie in retrieval is
        credited by chance. Token figures and `mi_rate` are NaN when every reasoning is empty.

    Raises:
        NotMeasurable: no reasonings, fewer than two distinct contexts, shapes that do not match, or a score that is NaN.
    """
    scores = _checked(sum_logprob_SN, lengths_S, source_S, prompt_class_N)
    num_samples, num_prompts = scores.sum_SN.shape
    figures: dict[str, float] = {
        "num_samples": num_samples,
        "num_prompts": num_prompts,
        "mi_upper_bound": float(np.log(num_prompts)),
        **_figures("sequence", scores.sum_SN, scores.source_S),
    }
    spoken_S = scores.lengths_S > 0
    if spoken_S.any():
        mean_SN = scores.sum_SN[spoken_S] / scores.lengths_S[spoken_S, None]
        figures |= _figures("token", mean_SN, scores.source_S[spoken_S])
        figures["mi_rate"] = figures["mi_sequence"] / _mean_by_source(scores.lengths_S, scores.source_S)
    else:
        names = ("mi", "conditional_entropy", "reasoning_entropy", "marginal_std", "mi_zscore")
        figures |= {f"{name}_token": float("nan") for name in names} | {"mi_rate": float("nan")}
    figures |= _retrieval(scores)
    return figures


def sequence_gaps(sum_logprob_SN: ArrayLike, source_S: ArrayLike, prompt_class_N: ArrayLike | None = None) -> np.ndarray:
    """Mean of matched minus marginal (nats) of each distinct context that has reasonings, by its first column: [contexts].

    Their mean is `mi_sequence`. Raises NotMeasurable like `mutual_information`.
    """
    sums = np.asarray(sum_logprob_SN, dtype=np.float64)
    lengths_S = np.ones(sums.shape[0] if sums.ndim else 0)
    scores = _checked(sums, lengths_S, source_S, prompt_class_N)
    matched_S, marginal_S = _matched_and_marginal(scores.sum_SN, scores.source_S)
    return _means_by_source(matched_S - marginal_S, scores.source_S)


def mi_resamples(
    sum_logprob_SN: ArrayLike,
    source_S: ArrayLike,
    prompt_class_N: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    resamples: int = 1000,
) -> np.ndarray:
    """Bootstrap draws of `mi_sequence`: the per-context mean gaps resampled with the mixture fixed: [resamples].

    Resampling the columns would shrink the number of distinct contexts and with it the ceiling.
    """
    gaps_P = sequence_gaps(sum_logprob_SN, source_S, prompt_class_N)
    drawn_BP = rng.integers(len(gaps_P), size=(resamples, len(gaps_P)))
    return gaps_P[drawn_BP].mean(axis=1)


def mi_interval(
    sum_logprob_SN: ArrayLike,
    source_S: ArrayLike,
    prompt_class_N: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    resamples: int = 1000,
) -> tuple[float, float]:
    """Percentile bootstrap interval of `mi_sequence` in nats. Raises NotMeasurable like `mutual_information`."""
    draws_B = mi_resamples(sum_logprob_SN, source_S, prompt_class_N, rng=rng, resamples=resamples)
    low, high = np.quantile(draws_B, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def weighted_mean(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means of several `mutual_information` results, weighted by their reasonings; `num_samples` is the total.

    A result whose token figures are NaN has no weight in those.
    """
    if not figures:
        raise NotMeasurable("no figures to average")
    combined: dict[str, float] = {}
    for name in figures[0]:
        pairs = [(item[name], item["num_samples"]) for item in figures if not np.isnan(item[name])]
        total = sum(weight for _, weight in pairs)
        combined[name] = sum(value * weight for value, weight in pairs) / total if total else float("nan")
    combined["num_samples"] = sum(item["num_samples"] for item in figures)
    return combined


def _checked(sum_logprob_SN: ArrayLike, lengths_S: ArrayLike, source_S: ArrayLike, class_N: ArrayLike | None) -> _Scores:
    sums = np.asarray(sum_logprob_SN, dtype=np.float64)
    if sums.ndim != 2 or 0 in sums.shape:
        raise NotMeasurable(
            f"no scored reasonings: sum_logprob_SN has shape {sums.shape}, needs [reasonings, contexts], each >= 1"
        )
    lengths, source = np.asarray(lengths_S, dtype=np.float64), np.asarray(source_S)
    classes = np.arange(sums.shape[1]) if class_N is None else np.asarray(class_N)
    expected = {
        "lengths_S": (lengths, sums.shape[0]),
        "source_S": (source, sums.shape[0]),
        "prompt_class_N": (classes, sums.shape[1]),
    }
    for name, (array, size) in expected.items():
        if array.shape != (size,):
            raise NotMeasurable(f"{name} has shape {array.shape}, but sum_logprob_SN {sums.shape} asks for ({size},)")
    if not np.issubdtype(source.dtype, np.integer) or source.min() < 0 or source.max() >= sums.shape[1]:
        raise NotMeasurable(
            f"source_S must hold column numbers 0 to {sums.shape[1] - 1}, got {source.dtype} {source.tolist()[:8]}"
        )
    if not np.isfinite(lengths).all() or (lengths < 0).any():
        raise NotMeasurable(f"lengths_S must be finite and not negative, got {lengths.tolist()[:8]}")
    _, first_N, inverse_N = np.unique(classes, return_index=True, return_inverse=True)
    # Distinct contexts keep the order of their first column, so that results do not depend on what the classes are called.
    order = np.argsort(first_N)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    if len(order) < 2:
        raise NotMeasurable("one distinct prompt: mutual information needs at least two different contexts")
    own_S = sums[np.arange(len(source)), source]
    if np.isnan(sums).any() or np.isposinf(sums).any() or not np.isfinite(own_S).all():
        raise NotMeasurable("a cross-score is NaN or infinite: the scorer is broken or the model's weights are not finite")
    return _Scores(sums[:, first_N[order]], lengths, rank[inverse_N[source]])


def _figures(form: str, score_SN: np.ndarray, source_S: np.ndarray) -> dict[str, float]:
    matched_S, marginal_S = _matched_and_marginal(score_SN, source_S)
    information = _mean_by_source(matched_S - marginal_S, source_S)
    deviation = float(marginal_S.std())
    return {
        f"mi_{form}": information,
        f"conditional_entropy_{form}": -_mean_by_source(matched_S, source_S),
        f"reasoning_entropy_{form}": -_mean_by_source(marginal_S, source_S),
        f"marginal_std_{form}": deviation,
        f"mi_zscore_{form}": information / (deviation + ZSCORE_EPSILON),
    }


def _matched_and_marginal(score_SN: np.ndarray, source_S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    highest_S1 = score_SN.max(axis=1, keepdims=True)
    marginal_S = highest_S1[:, 0] + np.log(np.exp(score_SN - highest_S1).mean(axis=1))
    return score_SN[np.arange(len(source_S)), source_S], marginal_S


def _means_by_source(values_S: np.ndarray, source_S: np.ndarray) -> np.ndarray:
    _, inverse_S = np.unique(source_S, return_inverse=True)
    return np.bincount(inverse_S, weights=values_S) / np.bincount(inverse_S)


def _mean_by_source(values_S: np.ndarray, source_S: np.ndarray) -> float:
    return float(_means_by_source(values_S, source_S).mean())


def _retrieval(scores: _Scores) -> dict[str, float]:
    num_prompts = scores.sum_SN.shape[1]
    own_S1 = scores.sum_SN[np.arange(len(scores.source_S)), scores.source_S][:, None]
    better_S = (scores.sum_SN > own_S1).sum(axis=1)
    tied_S = (scores.sum_SN == own_S1).sum(axis=1)
    figures: dict[str, float] = {}
    for k in (1, *RETRIEVAL_KS):
        # Of the tied contexts, those that still fit into the first k are drawn uniformly.
        credit_S = np.clip((k - better_S) / tied_S, 0.0, 1.0)
        suffix = "" if k == 1 else f"_at_{k}"
        figures[f"retrieval_accuracy{suffix}"] = _mean_by_source(credit_S, scores.source_S)
        figures[f"retrieval_chance{suffix}"] = min(1.0, k / num_prompts)
    return figures
