"""Cross-scoring: the log-probability of every reasoning after every context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ragen2.diagnostics.views import content_key
from ragen2.errors import NotMeasurable, TokenMismatch
from ragen2.trajectory import Ids

Progress = Callable[[int, int], None]
"""Called as progress(contexts done, contexts in all)."""


class Scorer(Protocol):
    """What cross-scoring asks of an engine (see `ragen2.engines.base.Engine.score`)."""

    def score(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> list[list[np.ndarray]]:
        """result[i][k][t] = log-probability (nats) of token t of continuations[i][k] after contexts[i]."""
        ...


def cross_score(
    scorer: Scorer, contexts: Sequence[Ids], reasonings: Sequence[Ids], progress: Progress | None = None
) -> np.ndarray:
    """log p(reasoning s | context n) summed over tokens, in nats: float64 [reasonings, contexts].

    Equal contexts and equal reasonings are scored once. Each context is given all reasonings in one call, so that the scorer
    can share the prefix. An empty reasoning scores 0 everywhere.

    Raises:
        NotMeasurable: no contexts or no reasonings.
        TokenMismatch: the scorer returned another number of tokens than it was given.
    """
    if not contexts or not reasonings:
        raise NotMeasurable(f"nothing to score: {len(contexts)} contexts and {len(reasonings)} reasonings")
    context_list, column_N = _distinct(contexts)
    reasoning_list, row_S = _distinct(reasonings)
    spoken = [number for number, ids in enumerate(reasoning_list) if len(ids)]
    sums_UC = np.zeros((len(reasoning_list), len(context_list)))
    for number, context in enumerate(context_list):
        if spoken:
            sums_UC[spoken, number] = _sums(scorer, context, [reasoning_list[row] for row in spoken])
        if progress is not None:
            progress(number + 1, len(context_list))
    return sums_UC[np.ix_(row_S, column_N)]


def _sums(scorer: Scorer, context: Ids, reasonings: list[Ids]) -> list[float]:
    (logprobs,) = scorer.score([context], [reasonings])
    lengths = [len(ids) for ids in reasonings]
    returned = [len(values) for values in logprobs]
    if lengths != returned:
        raise TokenMismatch(
            f"the scorer was given reasonings of {lengths[:8]} tokens and returned {returned[:8]} log-probabilities"
        )
    return [float(np.asarray(values, dtype=np.float64).sum()) for values in logprobs]


def _distinct(items: Sequence[Ids]) -> tuple[list[Ids], list[int]]:
    """Distinct items in order of first appearance, and where each item is among them."""
    number: dict[bytes, int] = {}
    kept: list[Ids] = []
    places: list[int] = []
    for ids in items:
        key = content_key(ids)
        if key not in number:
            number[key] = len(kept)
            kept.append(ids)
        places.append(number[key])
    return kept, places
