"""Pointwise information: how much each reasoning token says about the context it was written in.

Token t of reasoning z from context x carries log p(z_t | x, z_<t) - log p(z_t | z_<t) nats. The second term is the mixture's own
prediction: contexts weighted by how well they explain the tokens so far. By the chain rule the tokens of a reasoning add up to
its gap, matched minus marginal (the RAGEN-2 paper, arXiv 2604.06268, Eq. 1 in its sequence form).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragen2.diagnostics.cross_score import Progress, Scorer
from ragen2.diagnostics.score_matrix import distinct_columns, log_mean_exp
from ragen2.diagnostics.views import Slice, content_key
from ragen2.errors import NotMeasurable, TokenMismatch
from ragen2.trajectory import Ids

Decode = Callable[[list[int]], str]
"""Text of token ids."""


@dataclass(frozen=True)
class WordInformation:
    """Information (nats) of all places where a token with this text stands in the reasonings."""

    text: str
    count: int
    mean: float
    total: float


@dataclass(frozen=True)
class WordTable:
    """Words by total information, highest first. `reasonings` and `tokens` is how much was read."""

    words: tuple[WordInformation, ...]
    reasonings: int
    tokens: int

    def carriers(self, most: int = 20) -> tuple[WordInformation, ...]:
        """Words that tell the prompt apart, highest total first."""
        return tuple(word for word in self.words if word.total > 0)[:most]

    def misleading(self, most: int = 20) -> tuple[WordInformation, ...]:
        """Words that fit other prompts better than their own, lowest total first."""
        return tuple(word for word in reversed(self.words) if word.total < 0)[:most]


def pointwise_information(token_logprob_NT: ArrayLike, source: int, prompt_class_N: ArrayLike | None = None) -> np.ndarray:
    """Information (nats) of every token of one reasoning: [T]. It sums to matched minus marginal of the reasoning.

    Args:
        token_logprob_NT: log p(token t | context n, tokens before t) in nats. -inf is allowed in contexts other than the own.
        source: row of the context the reasoning was sampled in.
        prompt_class_N: equal numbers for identical contexts; default all distinct. Duplicates are merged first.

    Raises:
        NotMeasurable: not a [contexts, tokens] array, fewer than two distinct contexts, no such row, a value that is NaN or +inf,
            or -inf in the own context.
    """
    tokens = np.asarray(token_logprob_NT, dtype=np.float64)
    if tokens.ndim != 2:
        raise NotMeasurable(f"token_logprob_NT has shape {tokens.shape}, needs [contexts, tokens]")
    if not 0 <= source < tokens.shape[0]:
        raise NotMeasurable(f"source is {source}, but there are {tokens.shape[0]} contexts")
    first_N, rank_N = distinct_columns(tokens.shape[0], prompt_class_N)
    if np.isnan(tokens).any() or np.isposinf(tokens).any() or not np.isfinite(tokens[source]).all():
        raise NotMeasurable("a token's score is NaN or infinite: the scorer is broken or the model's weights are not finite")
    tokens, own = tokens[first_N], int(rank_N[source])
    # log of the mean over contexts of p(z_1..z_t | x_j), for t = 0..T; its steps are the mixture's predictions.
    so_far_TN = np.concatenate([np.zeros((1, len(tokens))), np.cumsum(tokens, axis=1).T])
    return tokens[own] - np.diff(log_mean_exp(so_far_TN))


def slice_information(scorer: Scorer, part: Slice, progress: Progress | None = None) -> tuple[np.ndarray, ...]:
    """`pointwise_information` of every reasoning of a slice, in its order; an empty reasoning gives an empty array.

    Scores every pair of context and distinct reasoning: contexts x reasonings x tokens numbers are held in memory.

    Raises:
        NotMeasurable: no reasonings, fewer than two contexts, a score that is NaN.
        TokenMismatch: the scorer returned another number of tokens than it was given.
    """
    if not part.reasonings or len(part.contexts) < 2:
        raise NotMeasurable(f"{len(part.contexts)} contexts and {len(part.reasonings)} reasonings: needs at least 2 and 1")
    keys = [content_key(ids) for ids in part.reasonings]
    spoken = {key: ids for key, ids in zip(keys, part.reasonings, strict=True) if len(ids)}
    tokens = {key: np.empty((len(part.contexts), len(ids))) for key, ids in spoken.items()}
    for column, context in enumerate(part.contexts):
        (rows,) = scorer.score([context], [list(spoken.values())]) if spoken else ([],)
        given, returned = [len(ids) for ids in spoken.values()], [len(row) for row in rows]
        if given != returned:
            raise TokenMismatch(f"the scorer was given reasonings of {given[:8]} tokens and returned {returned[:8]} values")
        for key, row in zip(spoken, rows, strict=True):
            tokens[key][column] = row
        if progress is not None:
            progress(column + 1, len(part.contexts))
    classes = _classes(part.contexts)
    silent = np.empty((len(part.contexts), 0))
    return tuple(
        pointwise_information(tokens.get(key, silent), int(source), classes)
        for key, source in zip(keys, part.source_S, strict=True)
    )


def word_table(reasonings: Sequence[Ids], information: Sequence[np.ndarray], decode: Decode) -> WordTable:
    """Add up the information of tokens by their text. `decode` is asked once for each distinct token, alone.

    Raises TokenMismatch where a reasoning and its information differ in length.
    """
    lengths, given = [len(ids) for ids in reasonings], [len(values) for values in information]
    if lengths != given:
        raise TokenMismatch(f"reasonings of {lengths[:8]} tokens came with {given[:8]} values")
    texts: dict[int, str] = {}
    counts: dict[str, int] = {}
    totals: dict[str, float] = {}
    for ids, values in zip(reasonings, information, strict=True):
        for token, value in zip(ids.tolist(), values.tolist(), strict=True):
            if token not in texts:
                texts[token] = decode([token])
            text = texts[token]
            counts[text] = counts.get(text, 0) + 1
            totals[text] = totals.get(text, 0.0) + value
    words = [WordInformation(text, count, totals[text] / count, totals[text]) for text, count in counts.items()]
    words.sort(key=lambda word: (-word.total, word.text))
    return WordTable(tuple(words), len(reasonings), sum(lengths))


def informative_words(scorer: Scorer, part: Slice, decode: Decode, progress: Progress | None = None) -> WordTable:
    """Which words carry the input: the word table of a slice. Raises like `slice_information`."""
    return word_table(part.reasonings, slice_information(scorer, part, progress), decode)


def _classes(contexts: Sequence[Ids]) -> np.ndarray:
    number: dict[bytes, int] = {}
    return np.array([number.setdefault(content_key(ids), len(number)) for ids in contexts])
