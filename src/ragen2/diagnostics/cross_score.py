"""Cross-scoring: the log-probability of every reasoning after every context, or of a drawn part of the pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, overload

import numpy as np

from ragen2.diagnostics.sampled_scores import SampledScores, draw_columns
from ragen2.diagnostics.views import content_key
from ragen2.errors import ConfigError, NotMeasurable, TokenMismatch
from ragen2.trajectory import Ids

Progress = Callable[[int, int], None]
"""Called as progress(done, in all): pairs with a scorer that has `score_each`, contexts with any other."""

CALLS = 400
"""Most calls of `progress` where pairs are counted."""

Scored = tuple[int, int, np.ndarray]


class Scorer(Protocol):
    """What cross-scoring asks of an engine (see `ragen2.engines.base.Engine.score`).

    A scorer may also have `score_each(contexts, continuations)`, which yields `(i, k, log-probabilities)` of every pair once, in
    any order. It then gets all contexts in one call, and can share what they have in common or ask for many at a time.
    """

    def score(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> list[list[np.ndarray]]:
        """result[i][k][t] = log-probability (nats) of token t of continuations[i][k] after contexts[i]."""
        ...


@overload
def cross_score(
    scorer: Scorer,
    contexts: Sequence[Ids],
    reasonings: Sequence[Ids],
    progress: Progress | None = None,
    *,
    columns: None = None,
    source_S: Sequence[int] | np.ndarray | None = None,
    rng: np.random.Generator | None = None,
) -> np.ndarray: ...
@overload
def cross_score(
    scorer: Scorer,
    contexts: Sequence[Ids],
    reasonings: Sequence[Ids],
    progress: Progress | None = None,
    *,
    columns: int,
    source_S: Sequence[int] | np.ndarray,
    rng: np.random.Generator,
) -> SampledScores: ...
def cross_score(
    scorer: Scorer,
    contexts: Sequence[Ids],
    reasonings: Sequence[Ids],
    progress: Progress | None = None,
    *,
    columns: int | None = None,
    source_S: Sequence[int] | np.ndarray | None = None,
    rng: np.random.Generator | None = None,
) -> np.ndarray | SampledScores:
    """log p(reasoning s | context n) summed over tokens, in nats: float64 [reasonings, contexts].

    Equal contexts and equal reasonings are scored once. An empty reasoning scores 0 everywhere.

    With `columns` only a part is scored: of each distinct reasoning the contexts it was sampled in (`source_S`, a column for
    each reasoning) and `columns` others drawn from `rng` without replacement. Its `information()` estimates mutual information
    and states the error of the draw.

    Raises:
        NotMeasurable: no contexts or no reasonings.
        TokenMismatch: the scorer returned other pairs or another number of tokens than it was given; ids that are no ids.
        ConfigError: `columns` below 2, or without `source_S` and `rng`; `source_S` that names no column.
    """
    if not len(contexts) or not len(reasonings):
        raise NotMeasurable(f"nothing to score: {len(contexts)} contexts and {len(reasonings)} reasonings")
    context_list, column_N = _distinct(contexts, "context")
    reasoning_list, row_S = _distinct(reasonings, "reasoning")
    shape = (len(reasoning_list), len(context_list))
    if columns is None:
        sums_UC = _sums(scorer, context_list, reasoning_list, np.ones(shape, dtype=bool), progress)
        return sums_UC[np.ix_(row_S, column_N)]
    if columns < 2 or rng is None:
        raise ConfigError(f"columns={columns} with rng={rng}: draw at least 2 columns, from a seeded numpy Generator")
    source = column_N[_checked_source(source_S, len(reasonings), len(contexts))]
    own_UC = np.zeros(shape, dtype=bool)
    own_UC[row_S, source] = True
    wanted_UC = draw_columns(own_UC, columns, rng)
    sums_UC = _sums(scorer, context_list, reasoning_list, wanted_UC, progress)
    return SampledScores(sums_UC, own_UC, row_S, source, column_N)


def _checked_source(source_S: Sequence[int] | np.ndarray | None, reasonings: int, contexts: int) -> np.ndarray:
    source = np.asarray([] if source_S is None else source_S)
    if source.shape != (reasonings,) or source.dtype.kind not in "iu" or source.min() < 0 or source.max() >= contexts:
        raise ConfigError(
            f"columns needs source_S, the own column (0 to {contexts - 1}) of each of {reasonings} reasonings; "
            f"got {None if source_S is None else source.tolist()[:8]}"
        )
    return source


def _sums(
    scorer: Scorer, contexts: list[Ids], reasonings: list[Ids], wanted_UC: np.ndarray, progress: Progress | None
) -> np.ndarray:
    """Sums of the wanted pairs, NaN elsewhere; an empty reasoning is 0 everywhere."""
    sums_UC = np.full(wanted_UC.shape, np.nan)
    spoken_U = np.array([len(ids) > 0 for ids in reasonings])
    sums_UC[~spoken_U] = 0.0
    rows_C = [np.flatnonzero(wanted_C & spoken_U) for wanted_C in wanted_UC.T]
    lists = [[reasonings[u] for u in rows] for rows in rows_C]
    pairs, done = sum(map(len, rows_C)), 0
    each: Any = getattr(scorer, "score_each", None)
    scored_UC = np.zeros(wanted_UC.shape, dtype=bool)
    for i, k, values in each(contexts, lists) if each is not None else _by_context(scorer, contexts, lists, progress):
        u = rows_C[i][k]
        if len(values) != len(reasonings[u]) or scored_UC[u, i]:
            raise TokenMismatch(
                f"the scorer was given a reasoning of {len(reasonings[u])} tokens and returned {len(values)} log-probabilities"
                + (" a second time" if scored_UC[u, i] else "")
            )
        sums_UC[u, i] = np.asarray(values, dtype=np.float64).sum()
        scored_UC[u, i] = True
        done += 1
        if each is not None and progress is not None and done * CALLS // pairs > (done - 1) * CALLS // pairs:
            progress(done, pairs)
    if done < pairs:
        raise TokenMismatch(f"the scorer was given {pairs} pairs and returned {done}")
    return sums_UC


def _by_context(scorer: Scorer, contexts: list[Ids], lists: list[list[Ids]], progress: Progress | None) -> Iterator[Scored]:
    """Each context with all its reasonings in one call, so that the scorer can share the prefix."""
    for i, (context, rows) in enumerate(zip(contexts, lists, strict=True)):
        if rows:
            (found,) = scorer.score([context], [rows])
            if len(found) != len(rows):
                raise TokenMismatch(f"the scorer was given {len(rows)} reasonings and returned {len(found)}")
            for k, values in enumerate(found):
                yield i, k, values
        if progress is not None:
            progress(i + 1, len(contexts))


def _distinct(items: Sequence[Ids], name: str) -> tuple[list[Ids], np.ndarray]:
    """Distinct items in order of first appearance, and where each item is among them."""
    number: dict[bytes, int] = {}
    kept: list[Ids] = []
    places: list[int] = []
    for position, ids in enumerate(items):
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TokenMismatch(
                f"{name} {position} is an array of {array.dtype} and shape {array.shape}; give token ids, a list of whole numbers"
            )
        key = content_key(array)
        if key not in number:
            number[key] = len(kept)
            kept.append(array)
        places.append(number[key])
    return kept, np.array(places, dtype=np.int64)
