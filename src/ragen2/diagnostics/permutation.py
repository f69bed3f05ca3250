"""Permutation test for "the reasoning does not depend on the context".

If it does not, the reasonings are exchangeable: which context each is said to come from carries nothing. The labels are permuted,
the mixture stays as it is, so that only the matched terms change. Nothing about the distribution of the gaps is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ragen2.diagnostics.score_matrix import log_mean_exp, score_matrix
from ragen2.errors import NotMeasurable

Exchange = Literal["reasonings", "prompts"]
"""What is exchanged. `reasonings`: single ones, right when those of a prompt were sampled independently given the prompt, and
the stronger test. `prompts`: all reasonings of a prompt together, right also when they share something besides the prompt (a
worker, a day, a trajectory); it needs at least four prompts."""

LEAST_ORDERINGS = 20
"""Fewer distinct ways to give out the labels cannot bring the p-value to 0.05: such a test is refused."""

TIE = 1e-9
"""Permuted figures closer than this to the observed one (nats; relative above 1) count as equal to it."""

_CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class PermutationTest:
    """`p_value` = (b + 1) / (B + 1), b of B permutations with at least the observed information (nats).

    No outcome of this test lies below `smallest_p_value`: it is high where reasonings are equal, and 1 where all are.
    """

    p_value: float
    observed: float
    permutations: int
    smallest_p_value: float


@dataclass(frozen=True)
class NullDraws:
    """Observed `mi_sequence` of a matrix and its value under each permutation. `log_orderings`: log of the number of distinct
    ways to give out the labels; `log_same`: log of the probability that a permutation changes nothing, equal reasonings
    considered.
    """

    observed: float
    draws_B: np.ndarray
    weight: float
    log_orderings: float
    log_same: float


def permutation_test(
    sum_logprob_SN: ArrayLike,
    source_S: ArrayLike,
    prompt_class_N: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    permutations: int = 999,
    exchange: Exchange = "reasonings",
) -> PermutationTest:
    """Test that reasonings do not depend on contexts, from cross-scores in nats (see `mutual_information`).

    Raises:
        NotMeasurable: like `mutual_information`; and where there are fewer than 20 distinct ways to give out the labels, so that
            the p-value cannot get to 0.05 whatever the reasonings say.
    """
    return combined_test(
        [null_draws(sum_logprob_SN, source_S, prompt_class_N, rng=rng, permutations=permutations, exchange=exchange)]
    )


def null_draws(
    sum_logprob_SN: ArrayLike,
    source_S: ArrayLike,
    prompt_class_N: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    permutations: int = 999,
    exchange: Exchange = "reasonings",
) -> NullDraws:
    """Information under permuted labels. Raises NotMeasurable like `mutual_information`."""
    if permutations < 1 or exchange not in ("reasonings", "prompts"):
        raise NotMeasurable(
            f"permutations is {permutations} and exchange {exchange!r}; needs 1 or more, 'reasonings' or 'prompts'"
        )
    scores = score_matrix(sum_logprob_SN, source_S, prompt_class_N)
    used_P, unit_S, counts_P = np.unique(scores.source_S, return_inverse=True, return_counts=True)
    gap_SP = (scores.sum_SN - log_mean_exp(scores.sum_SN)[:, None])[:, used_P]
    if exchange == "prompts":
        # A prompt's reasonings move together: their mean gap to every context is all that is needed.
        gap_SP = np.stack([gap_SP[unit_S == number].mean(axis=0) for number in range(len(used_P))])
        unit_S, counts_P = np.arange(len(used_P)), np.ones(len(used_P), dtype=np.int64)
    share_SP = gap_SP / (counts_P * len(counts_P))
    rows_S = np.arange(len(unit_S))
    draws_B = np.concatenate([share_SP[rows_S, labels_bS].sum(axis=1) for labels_bS in _permuted(unit_S, permutations, rng)])
    return NullDraws(
        observed=float(share_SP[rows_S, unit_S].sum()),
        draws_B=draws_B,
        weight=float(len(scores.source_S)),
        log_orderings=_log_factorial(len(unit_S)) - sum(_log_factorial(count) for count in counts_P),
        log_same=_log_same(gap_SP, unit_S, counts_P),
    )


def combined_test(parts: Sequence[NullDraws]) -> PermutationTest:
    """One test over several matrices (turn indices, environments), means weighted by reasonings, labels permuted within each.

    Raises NotMeasurable without a matrix, or where all together have fewer than 20 ways to give out the labels.
    """
    if not parts:
        raise NotMeasurable("no cross-scores to permute")
    orderings = sum(part.log_orderings for part in parts)
    # Compared in logs with room for rounding: exactly 20 orderings are enough.
    if orderings < math.log(LEAST_ORDERINGS) - TIE:
        raise NotMeasurable(
            f"only {round(math.exp(orderings))} distinct permutations: the p-value cannot fall below "
            f"{math.exp(-orderings):.2g}. {LEAST_ORDERINGS} are needed: give more prompts"
        )
    weights = np.array([part.weight for part in parts])
    observed = float(np.average([part.observed for part in parts], weights=weights))
    draws_B = np.average(np.stack([part.draws_B for part in parts]), axis=0, weights=weights)
    at_least = int((draws_B >= observed - TIE * max(1.0, abs(observed))).sum())
    permutations = len(draws_B)
    return PermutationTest(
        p_value=(at_least + 1) / (permutations + 1),
        observed=observed,
        permutations=permutations,
        smallest_p_value=max(1 / (permutations + 1), min(1.0, math.exp(sum(part.log_same for part in parts)))),
    )


def _permuted(labels_S: np.ndarray, permutations: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Permuted copies of the labels, [some, S] at a time."""
    at_once = max(1, _CELLS_AT_ONCE // len(labels_S))
    for start in range(0, permutations, at_once):
        yield rng.permuted(np.tile(labels_S, (min(at_once, permutations - start), 1)), axis=1)


def _log_same(gap_SP: np.ndarray, unit_S: np.ndarray, counts_P: np.ndarray) -> float:
    """Log of the probability that a permutation gives every context the same multiset of reasonings as observed."""
    _, kind_S, counts_K = np.unique(gap_SP, axis=0, return_inverse=True, return_counts=True)
    kind_S = kind_S.reshape(-1)
    cells = np.unique(kind_S * len(counts_P) + unit_S, return_counts=True)[1]
    kept = sum(_log_factorial(count) for count in (*counts_P, *counts_K))
    return kept - _log_factorial(len(unit_S)) - sum(_log_factorial(count) for count in cells)


def _log_factorial(count: int | np.integer) -> float:
    return math.lgamma(int(count) + 1)
