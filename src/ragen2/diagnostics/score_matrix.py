"""A checked matrix of cross-scores over distinct contexts, and what every measure of dependence computes from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragen2.errors import NotMeasurable


@dataclass(frozen=True)
class ScoreMatrix:
    """Cross-scores with equal contexts merged: `sum_SN` over distinct contexts, `source_S` into them.

    `first_N` is the column of the input in which each distinct context first stands.
    """

    sum_SN: np.ndarray
    source_S: np.ndarray
    first_N: np.ndarray


def score_matrix(sum_logprob_SN: ArrayLike, source_S: ArrayLike, prompt_class_N: ArrayLike | None = None) -> ScoreMatrix:
    """Check cross-scores (nats) and merge equal contexts.

    Raises NotMeasurable: no reasonings, fewer than two distinct contexts, shapes that do not match, a score that is NaN or +inf,
    or -inf in a reasoning's own context.
    """
    sums = np.asarray(sum_logprob_SN, dtype=np.float64)
    if sums.ndim != 2 or 0 in sums.shape:
        raise NotMeasurable(
            f"no scored reasonings: sum_logprob_SN has shape {sums.shape}, needs [reasonings, contexts], each >= 1"
        )
    source = np.asarray(source_S)
    if source.shape != (sums.shape[0],):
        raise NotMeasurable(f"source_S has shape {source.shape}, but sum_logprob_SN {sums.shape} asks for ({sums.shape[0]},)")
    if not np.issubdtype(source.dtype, np.integer) or source.min() < 0 or source.max() >= sums.shape[1]:
        raise NotMeasurable(
            f"source_S must hold column numbers 0 to {sums.shape[1] - 1}, got {source.dtype} {source.tolist()[:8]}"
        )
    first_N, rank_N = distinct_columns(sums.shape[1], prompt_class_N)
    own_S = sums[np.arange(len(source)), source]
    if np.isnan(sums).any() or np.isposinf(sums).any() or not np.isfinite(own_S).all():
        raise NotMeasurable("a cross-score is NaN or infinite: the scorer is broken or the model's weights are not finite")
    return ScoreMatrix(sums[:, first_N], rank_N[source], first_N)


def distinct_columns(columns: int, prompt_class_N: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """First column of each distinct context, and for every column which distinct context it is.

    They keep the order of their first column, so that results do not depend on what the classes are called. Raises NotMeasurable
    for a wrong shape or fewer than two distinct contexts.
    """
    classes = np.arange(columns) if prompt_class_N is None else np.asarray(prompt_class_N)
    if classes.shape != (columns,):
        raise NotMeasurable(f"prompt_class_N has shape {classes.shape}, but there are {columns} contexts")
    _, first_N, inverse_N = np.unique(classes, return_index=True, return_inverse=True)
    order = np.argsort(first_N)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    if len(order) < 2:
        raise NotMeasurable("one distinct prompt: mutual information needs at least two different contexts")
    return first_N[order], rank[inverse_N]


def matched_and_marginal(score_SN: np.ndarray, source_S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log p(z | own context) and log of the mean of p(z | context) over all contexts: each [reasonings]."""
    return score_SN[np.arange(len(source_S)), source_S], log_mean_exp(score_SN)


def log_mean_exp(score_SN: np.ndarray) -> np.ndarray:
    """log of the mean of exp over the last axis; -inf is a term of 0 as long as one score of the row is finite."""
    highest_S1 = score_SN.max(axis=-1, keepdims=True)
    return highest_S1[..., 0] + np.log(np.exp(score_SN - highest_S1).mean(axis=-1))


def means_by_source(values_S: np.ndarray, source_S: np.ndarray) -> np.ndarray:
    """Mean within each context that has reasonings, in the order of the contexts."""
    _, inverse_S = np.unique(source_S, return_inverse=True)
    return np.bincount(inverse_S, weights=values_S) / np.bincount(inverse_S)


def mean_by_source(values_S: np.ndarray, source_S: np.ndarray) -> float:
    """Mean over contexts of the mean within each."""
    return float(means_by_source(values_S, source_S).mean())
