"""How far the log-probabilities of the sampler and of the trainer are apart for the same tokens and weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ragen2.errors import NotMeasurable, TokenMismatch

LOG_RATIO_BOUND = 50.0
"""Log-ratios are cut at this size before `exp`, so that one absurd token gives a huge figure and not an infinite one."""


def logprob_mismatch(sampler_logprobs: ArrayLike, trainer_logprobs: ArrayLike, mask: ArrayLike) -> dict[str, float]:
    """Figures over the tokens where `mask` is true. All three arrays have the same shape (any); log-probabilities in nats.

    `k1` and `k3` estimate KL(sampler || trainer) in nats a token; `max_abs` and `mean_abs` are of the log-ratio; `mean_abs_ratio`
    is the mean of |trainer probability / sampler probability - 1|; `tokens` counts.

    Raises:
        TokenMismatch: the shapes differ.
        NotMeasurable: no token is masked in, or a log-probability is not finite.
    """
    sampler, trainer = np.asarray(sampler_logprobs, dtype=np.float64), np.asarray(trainer_logprobs, dtype=np.float64)
    kept = np.asarray(mask, dtype=bool)
    if not sampler.shape == trainer.shape == kept.shape:
        raise TokenMismatch(f"sampler {sampler.shape}, trainer {trainer.shape} and mask {kept.shape} must have one shape")
    if not kept.any():
        raise NotMeasurable("no token is masked in")
    log_ratio_T = trainer[kept] - sampler[kept]
    if not np.isfinite(log_ratio_T).all():
        raise NotMeasurable(f"{int((~np.isfinite(log_ratio_T)).sum())} of {len(log_ratio_T)} log-probabilities are not finite")
    excess_T = np.expm1(np.clip(log_ratio_T, -LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    return {
        "k1": float(-log_ratio_T.mean()),
        "k3": float((excess_T - log_ratio_T).mean()),
        "max_abs": float(np.abs(log_ratio_T).max()),
        "mean_abs": float(np.abs(log_ratio_T).mean()),
        "mean_abs_ratio": float(np.abs(excess_T).mean()),
        "tokens": float(len(log_ratio_T)),
    }
