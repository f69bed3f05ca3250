"""Mutual information between what the policy is shown and what it reasons, from a matrix of cross-scores.

Source: the RAGEN-2 paper (arXiv 2604.06268), Eq. 1, in its sequence form: nats, mixture over the DISTINCT contexts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ragen2.diagnostics.bootstrap import mi_interval, mi_resamples, sequence_gaps
from ragen2.diagnostics.score_matrix import ScoreMatrix, matched_and_marginal, mean_by_source, score_matrix
from ragen2.errors import NotMeasurable

__all__ = ["mi_interval", "mi_resamples", "mutual_information", "sequence_gaps", "weighted_mean"]

ZSCORE_EPSILON = 1e-3
"""Added to the deviation of the marginals before a z-score divides by it (the paper's value)."""

RETRIEVAL_KS = (2, 4, 8)


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
    scores = score_matrix(sum_logprob_SN, source_S, prompt_class_N)
    lengths = _checked_lengths(lengths_S, len(scores.source_S))
    num_samples, num_prompts = scores.sum_SN.shape
    figures: dict[str, float] = {
        "num_samples": num_samples,
        "num_prompts": num_prompts,
        "mi_upper_bound": float(np.log(num_prompts)),
        **_figures("sequence", scores.sum_SN, scores.source_S),
    }
    spoken_S = lengths > 0
    if spoken_S.any():
        mean_SN = scores.sum_SN[spoken_S] / lengths[spoken_S, None]
        figures |= _figures("token", mean_SN, scores.source_S[spoken_S])
        figures["mi_rate"] = figures["mi_sequence"] / mean_by_source(lengths, scores.source_S)
    else:
        names = ("mi", "conditional_entropy", "reasoning_entropy", "marginal_std", "mi_zscore")
        figures |= {f"{name}_token": float("nan") for name in names} | {"mi_rate": float("nan")}
    figures |= _retrieval(scores)
    return figures


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


def _checked_lengths(lengths_S: ArrayLike, reasonings: int) -> np.ndarray:
    lengths = np.asarray(lengths_S, dtype=np.float64)
    if lengths.shape != (reasonings,):
        raise NotMeasurable(f"lengths_S has shape {lengths.shape}, but there are {reasonings} reasonings")
    if not np.isfinite(lengths).all() or (lengths < 0).any():
        raise NotMeasurable(f"lengths_S must be finite and not negative, got {lengths.tolist()[:8]}")
    return lengths


def _figures(form: str, score_SN: np.ndarray, source_S: np.ndarray) -> dict[str, float]:
    matched_S, marginal_S = matched_and_marginal(score_SN, source_S)
    information = mean_by_source(matched_S - marginal_S, source_S)
    deviation = float(marginal_S.std())
    return {
        f"mi_{form}": information,
        f"conditional_entropy_{form}": -mean_by_source(matched_S, source_S),
        f"reasoning_entropy_{form}": -mean_by_source(marginal_S, source_S),
        f"marginal_std_{form}": deviation,
        f"mi_zscore_{form}": information / (deviation + ZSCORE_EPSILON),
    }


def _retrieval(scores: ScoreMatrix) -> dict[str, float]:
    num_prompts = scores.sum_SN.shape[1]
    own_S1 = scores.sum_SN[np.arange(len(scores.source_S)), scores.source_S][:, None]
    better_S = (scores.sum_SN > own_S1).sum(axis=1)
    tied_S = (scores.sum_SN == own_S1).sum(axis=1)
    figures: dict[str, float] = {}
    for k in (1, *RETRIEVAL_KS):
        # Of the tied contexts, those that still fit into the first k are drawn uniformly.
        credit_S = np.clip((k - better_S) / tied_S, 0.0, 1.0)
        suffix = "" if k == 1 else f"_at_{k}"
        figures[f"retrieval_accuracy{suffix}"] = mean_by_source(credit_S, scores.source_S)
        figures[f"retrieval_chance{suffix}"] = min(1.0, k / num_prompts)
    return figures
