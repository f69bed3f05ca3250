"""How far two distributions over the same candidate answers are apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ragen2.errors import NotMeasurable


def normalised(logprob_NA: ArrayLike) -> np.ndarray:
    """Probabilities over the last axis from unnormalised log-probabilities (nats), each row summing to 1: float64.

    -inf is allowed for single candidates. Raises NotMeasurable where a row has no finite entry, or holds NaN or +inf.
    """
    scores = np.asarray(logprob_NA, dtype=np.float64)
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise NotMeasurable(f"no candidate answers: the scores have shape {scores.shape}")
    highest = scores.max(axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        raise NotMeasurable("the log-probabilities of the candidate answers are NaN or infinite: the model's weights are broken")
    weights = np.exp(scores - highest)
    return weights / weights.sum(axis=-1, keepdims=True)


def total_variation(p_NA: ArrayLike, q_NA: ArrayLike) -> np.ndarray:
    """Total variation distance along the last axis, 0 to 1: the share of probability that moves to other answers."""
    return 0.5 * np.abs(np.asarray(p_NA, dtype=np.float64) - np.asarray(q_NA, dtype=np.float64)).sum(axis=-1)


def jensen_shannon_distance(p_NA: ArrayLike, q_NA: ArrayLike) -> np.ndarray:
    """Square root of the Jensen-Shannon divergence in bits along the last axis: a metric, 0 to 1."""
    p, q = np.asarray(p_NA, dtype=np.float64), np.asarray(q_NA, dtype=np.float64)
    middle = 0.5 * (p + q)
    divergence = 0.5 * (_bits(p, middle) + _bits(q, middle))
    # Rounding can leave a hair below 0 or above 1.
    return np.sqrt(np.clip(divergence, 0.0, 1.0))


def _bits(p: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """Kullback-Leibler divergence of p from `middle`, in bits; 0 log 0 is 0."""
    inside = p > 0
    ratio = np.divide(p, middle, out=np.ones_like(p), where=inside)
    return (p * np.log2(ratio)).sum(axis=-1)
