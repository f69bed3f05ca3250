"""Training rows derived from trajectories: which tokens are trained, after exactly which context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ragen2.trajectory import Ids, Trajectory, Turn, as_ids


@dataclass(frozen=True)
class TrainingRow:
    """One sequence for the trainer, `prompt_ids` followed by `suffix_ids` of length T.

    `mask` (T, bool) is True exactly on tokens the policy sampled; `logprobs` (T, float32, nats) are their sampling
    log-probabilities, 0 elsewhere; `turn_of_token` (T, int32) is the turn's index on sampled tokens, -1 elsewhere.
    `trajectory` is the number of the trajectory the row came from.
    """

    trajectory: int
    prompt_ids: Ids
    suffix_ids: Ids
    mask: np.ndarray
    logprobs: np.ndarray
    turn_of_token: np.ndarray

    def __len__(self) -> int:
        """Tokens of the whole row."""
        return len(self.prompt_ids) + len(self.suffix_ids)


def rows_of(trajectory: Trajectory, number: int = 0) -> list[TrainingRow]:
    """The rows of one trajectory: one for all its turns where every context extends what came before (the previous context and
    the ids sampled after it), else one a turn. Turns without a sampled token train nothing and make no row of their own."""
    turns = trajectory.turns
    if not turns:
        return []
    if all(_extends(before, after) for before, after in pairwise(turns)):
        return [_row(turns, number)] if any(len(turn.sampled_ids) for turn in turns) else []
    return [_row([turn], number) for turn in turns if len(turn.sampled_ids)]


def _extends(before: Turn, after: Turn) -> bool:
    shown, sampled = len(before.context_ids), len(before.sampled_ids)
    context = after.context_ids
    return (
        len(context) >= shown + sampled
        and np.array_equal(context[:shown], before.context_ids)
        and np.array_equal(context[shown : shown + sampled], before.sampled_ids)
    )


def _row(turns: Sequence[Turn], number: int) -> TrainingRow:
    prompt = turns[0].context_ids
    ids: list[np.ndarray] = []
    logprobs: list[np.ndarray] = []
    turn_of_token: list[np.ndarray] = []
    seen = len(prompt)
    for turn in turns:
        shown = turn.context_ids[seen:]
        sampled = len(turn.sampled_ids)
        ids += [shown, turn.sampled_ids]
        logprobs += [np.zeros(len(shown), np.float32), np.asarray(turn.logprobs, np.float32)]
        turn_of_token += [np.full(len(shown), -1, np.int32), np.full(sampled, turn.index, np.int32)]
        seen = len(turn.context_ids) + sampled
    turns_T = np.concatenate(turn_of_token)
    return TrainingRow(number, as_ids(prompt), as_ids(np.concatenate(ids)), turns_T >= 0, np.concatenate(logprobs), turns_T)
