"""Bi-level advantage estimation: over turns first, then over the tokens inside each turn (RAGEN, arXiv 2504.20073).

Turn ends come from the turn of each token. Reading them off non-zero rewards would merge a turn that paid nothing with the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ragen2.algorithms.arrays import Array, as_float, as_like, to_numpy
from ragen2.errors import TokenMismatch


def bi_level_gae_advantages(
    turn_rewards: Any, values: Any, turn_of_model_token: Any, turn_gamma: float, gamma: float, lam: float
) -> tuple[Array, Array]:
    """Advantages and value targets (advantage + value) of one trajectory's n sampled tokens, both of shape (n,).

    `turn_rewards` has one reward a turn, `values` one value a sampled token, `turn_of_model_token` the turn of each (never
    falling). The advantage over turns (`turn_gamma`, `lam`) stands at a turn's last token, and estimation over tokens (`gamma`,
    `lam`) runs back from it through the turn. numpy or torch in, same out, 64 bits inside, constants. Raises TokenMismatch for
    shapes that do not belong together, and for a reward whose turn has no token.
    """
    like = as_float(values)
    value_n = to_numpy(like).astype(np.float64)
    reward_K = to_numpy(turn_rewards).astype(np.float64)
    turn_n = to_numpy(turn_of_model_token).astype(np.int64)
    last_K = _turn_ends(reward_K, value_n, turn_n)
    advantage_n = np.zeros(len(value_n))
    after, value_after = 0.0, 0.0
    for turn in reversed(np.unique(turn_n).tolist()):
        last = last_K[turn]
        after = reward_K[turn] + turn_gamma * value_after - value_n[last] + turn_gamma * lam * after
        value_after = value_n[last]
        advantage_n[last] = following = after
        for t in range(last - 1, -1, -1):
            if turn_n[t] != turn:
                break
            following = gamma * value_n[t + 1] - value_n[t] + gamma * lam * following
            advantage_n[t] = following
    return as_like(advantage_n, like), as_like(advantage_n + value_n, like)


def _turn_ends(reward_K: np.ndarray, value_n: np.ndarray, turn_n: np.ndarray) -> dict[int, int]:
    """Index of each turn's last token."""
    if reward_K.ndim != 1 or value_n.ndim != 1 or turn_n.shape != value_n.shape:
        raise TokenMismatch(
            f"bi-level estimation got turn rewards {reward_K.shape}, values {value_n.shape} and turns {turn_n.shape}; "
            "it takes one trajectory: (turns,), (tokens,) and (tokens,)"
        )
    if len(turn_n) and (turn_n[0] < 0 or turn_n[-1] >= len(reward_K) or (np.diff(turn_n) < 0).any()):
        raise TokenMismatch(f"turns of tokens must rise from 0 to {len(reward_K) - 1}, one reward each; got {np.unique(turn_n)}")
    last_K = {int(turn): index for index, turn in enumerate(turn_n)}
    for turn in np.nonzero(reward_K)[0].tolist():
        if turn not in last_K:
            raise TokenMismatch(f"turn {turn} has the reward {reward_K[turn]:g} but no sampled token to stand on")
    return last_K
