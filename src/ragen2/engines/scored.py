"""Scored continuations one by one, and as the lists an engine's `score` returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ragen2.trajectory import Ids

Scored = tuple[int, int, np.ndarray]
"""(i, k, log-probabilities of continuations[i][k] after contexts[i])."""


def gathered(continuations: Sequence[Sequence[Ids]], scored: Iterable[Scored]) -> list[list[np.ndarray]]:
    """result[i][k] from scored continuations in any order."""
    results = [[np.zeros(0, dtype=np.float32)] * len(rows) for rows in continuations]
    for i, k, values in scored:
        results[i][k] = values
    return results
