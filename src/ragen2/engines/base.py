"""What the collector asks of an engine: sessions in which rows sample replies and go on from longer contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ragen2.trajectory import Ids


@dataclass(frozen=True)
class SamplingConfig:
    """How replies are sampled. Truncated sampling (top-p, top-k) is left out on purpose: it makes log-probabilities of
    the sampler and the trainer different quantities.
    """

    temperature: float = 1.0
    """0 is greedy."""
    turn_tokens: int = 64
    """Most tokens of one reply."""
    context_tokens: int = 2048
    """Most tokens of a whole row, prompt included; a row that would pass it stops as overflow."""


@dataclass(frozen=True)
class Reply:
    """One finished reply of one row. `ended` is False when it was cut at `turn_tokens` or at `context_tokens`."""

    row: int
    ids: Ids
    logprobs: np.ndarray
    ended: bool


class Session(Protocol):
    """Rows of P groups of G, row = group * G + member, all sampling at once, each at its own pace."""

    def advance(self) -> list[Reply]:
        """Sample until at least one row has finished its reply; those replies, by row. Empty when no row is running."""
        ...

    def resume(self, row: int, context_ids: Ids) -> None:
        """Let a finished row sample its next reply after `context_ids` (a whole context; what it shares with what the row has
        already seen is not computed again)."""
        ...

    def close(self, row: int) -> None:
        """The row is done; its place may be given up."""
        ...


class Engine(Protocol):
    """A policy that samples and scores."""

    def open(self, prompts_P: Sequence[Ids], group_size: int, sampling: SamplingConfig, seeds_R: Sequence[int]) -> Session:
        """Start a session: every row of group p begins after `prompts_P[p]`. Row r draws only from its own generator
        `seeds_R[r]`, so what it samples does not depend on the other rows (up to rounding in batched arithmetic)."""
        ...

    def score(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> list[list[np.ndarray]]:
        """Log-probability (nats, temperature 1) of every token of each continuation after its context:
        result[i][k][t] = log p(continuations[i][k][t] | contexts[i], continuations[i][k][:t])."""
        ...
