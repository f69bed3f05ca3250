"""Mutual information from a part of the cross-scores: each reasoning's own columns and a few others drawn at random.

The mixture over all contexts is estimated with the right weights; what the draw leaves uncertain is stated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ragen2.errors import NotMeasurable


@dataclass(frozen=True)
class SampledInformation:
    """An estimate of `mi_sequence` and the error that the draw of columns gives it, in nats."""

    mi_sequence: float
    """The jackknife's estimate: the plain one less `jensen_bias`."""
    standard_error: float
    """Of `mi_sequence`, from the draw of columns alone; 0 when every column was scored. It says nothing about other prompts.

    Half of `jensen_bias` is part of it, in quadrature: the correction is itself an estimate.
    """
    jensen_bias: float
    """How far the plain estimate stands too high: the log of an estimated mean is too low on average."""
    mi_upper_bound: float
    conditional_entropy_sequence: float
    """Exact: it needs the own columns only."""
    scored_share: float
    """Part of all pairs of reasoning and distinct context that was scored."""


@dataclass(frozen=True)
class SampledScores:
    """Cross-scores of some pairs. Equal contexts are one column, equal reasonings one row.

    Shapes: U distinct reasonings, C distinct contexts, S reasonings, N contexts as given.
    """

    sum_logprob_UC: np.ndarray
    """log p(reasoning u | context c) in nats; NaN where not scored."""
    own_UC: np.ndarray
    """Whether reasoning u was sampled in context c: those pairs are scored without fail."""
    reasoning_S: np.ndarray
    """Row of each reasoning."""
    source_S: np.ndarray
    """Column of the context each reasoning was sampled in."""
    class_N: np.ndarray
    """Column of each context as given."""

    def information(self) -> SampledInformation:
        """The estimate. Raises NotMeasurable with fewer than two distinct contexts, or when a score is NaN or infinite."""
        scored_UC = ~np.isnan(self.sum_logprob_UC)
        contexts = self.sum_logprob_UC.shape[1]
        if contexts < 2:
            raise NotMeasurable("one distinct prompt: mutual information needs at least two different contexts")
        matched_S = self.sum_logprob_UC[self.reasoning_S, self.source_S]
        if not np.isfinite(matched_S).all() or np.isposinf(self.sum_logprob_UC).any():
            raise NotMeasurable("a cross-score is NaN or infinite: the scorer is broken or the model's weights are not finite")
        counts_C = np.bincount(self.source_S, minlength=contexts)
        weight_S = 1.0 / (counts_C[self.source_S] * np.count_nonzero(counts_C))
        weight_U = np.bincount(self.reasoning_S, weights=weight_S, minlength=len(self.sum_logprob_UC))
        marginals = [
            _marginal(scores_C, own_C, scored_C)
            for scores_C, own_C, scored_C in zip(self.sum_logprob_UC, self.own_UC, scored_UC, strict=True)
        ]
        plain_U, bias_U, variance_U = np.array(marginals).T
        matched = float(weight_S @ matched_S)
        bias = float(weight_U @ bias_U)
        return SampledInformation(
            mi_sequence=matched - float(weight_U @ plain_U) - bias,
            standard_error=float(np.hypot(np.sqrt(weight_U**2 @ variance_U), bias / 2)),
            jensen_bias=bias,
            mi_upper_bound=float(np.log(contexts)),
            conditional_entropy_sequence=-matched,
            scored_share=float(scored_UC.mean()),
        )


def draw_columns(own_UC: np.ndarray, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Which pairs to score, bool [U, C]: the own columns of each row and `columns` others, without replacement."""
    wanted_UC = own_UC.copy()
    for wanted_C in wanted_UC:
        others = np.flatnonzero(~wanted_C)
        drawn = others if columns >= len(others) else rng.choice(others, size=columns, replace=False)
        wanted_C[drawn] = True
    return wanted_UC


def _marginal(scores_C: np.ndarray, own_C: np.ndarray, scored_C: np.ndarray) -> tuple[float, float, float]:
    """log of the estimated mixture, how far it stands too low, and its variance, both by the jackknife over drawn columns."""
    drawn = scores_C[scored_C & ~own_C]
    others = int((~own_C).sum())
    own = _log_sum(scores_C[own_C])
    log_contexts = np.log(len(scores_C))
    if not len(drawn):
        return own - log_contexts, 0.0, 0.0
    count = len(drawn)
    estimate = np.logaddexp(own, _log_sum(drawn) + np.log(others / count))
    if count == others:
        return float(estimate - log_contexts), 0.0, 0.0
    left_out = np.where(np.eye(count, dtype=bool), -np.inf, drawn)
    without_K = np.logaddexp(own, _log_sum(left_out) + np.log(others / (count - 1)))
    # A draw without replacement from few columns leaves less open than one from many.
    open_share = 1.0 - count / others
    bias = open_share * (count - 1) * (estimate - without_K.mean())
    variance = open_share * (count - 1) * without_K.var()
    return float(estimate - log_contexts), float(bias), float(variance)


def _log_sum(scores: np.ndarray) -> np.ndarray:
    """log of the sum of exp over the last axis; -inf when all are."""
    highest = scores.max(axis=-1, keepdims=True)
    shift = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(scores - shift).sum(axis=-1)) + shift[..., 0]
