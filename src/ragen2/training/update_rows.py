"""What the optimiser sees of a batch: one row of token ids with its advantages, and the weight of each row in the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ragen2.engines.prefix import SharedRows
from ragen2.training.batches import PADDING, MicroBatch, plan_micro_batches
from ragen2.trajectory import Ids, as_ids

if TYPE_CHECKING:
    import torch


@dataclass
class UpdateRow:
    """One training row. Arrays are aligned with `suffix` (T tokens); `mask_T` is True on the tokens that the policy sampled."""

    trajectory: int
    prefix: Ids
    suffix: Ids
    mask_T: np.ndarray
    old_logprobs_T: np.ndarray
    advantages_T: np.ndarray
    returns_T: np.ndarray
    values_T: np.ndarray
    reference_logprobs_T: np.ndarray

    @property
    def tokens(self) -> int:
        """Number of trained tokens."""
        return int(self.mask_T.sum())


def aggregation_weights(rows: Sequence[UpdateRow], mode: str, horizon: int) -> np.ndarray:
    """Weight w_R of each row so that the mini-batch loss is sum_r w_r sum_t mask * loss, however it is split.

    Sequence means count trajectories: rows of one trajectory share its weight. Same definitions as `aggregate_loss`.
    """
    per_trajectory = Counter[int]()
    for row in rows:
        per_trajectory[row.trajectory] += row.tokens
    total = sum(per_trajectory.values())
    filled = sum(tokens > 0 for tokens in per_trajectory.values())
    if mode == "token-mean":
        return np.full(len(rows), 1.0 / total if total else 0.0)
    if mode == "seq-mean-token-sum":
        return np.full(len(rows), 1.0 / (len(per_trajectory) * horizon) if per_trajectory else 0.0)
    return np.array([1.0 / (filled * per_trajectory[row.trajectory]) if row.tokens else 0.0 for row in rows])


def micro_batches(rows: Sequence[UpdateRow], token_budget: int) -> list[MicroBatch]:
    """Split rows into forward passes that share prefixes."""
    return plan_micro_batches(
        [row.prefix.tobytes() for row in rows],
        [len(row.prefix) for row in rows],
        [len(row.suffix) for row in rows],
        token_budget,
    )


def shared_rows(rows: Sequence[UpdateRow], batch: MicroBatch) -> SharedRows:
    """The token ids of a micro-batch; PADDING places become empty suffixes."""
    empty = as_ids([])
    prefixes = [rows[next(row for row in group if row != PADDING)].prefix for group in batch.rows_PR]
    suffixes = [rows[row].suffix if row != PADDING else empty for group in batch.rows_PR for row in group]
    return SharedRows(prefixes, suffixes)


def padded(rows: Sequence[UpdateRow], batch: MicroBatch, name: str, device: torch.device) -> torch.Tensor:
    """Field `name` of a micro-batch's rows as a [B, T] tensor, zeros where there is no token."""
    import torch

    arrays = [getattr(rows[row], name) if row != PADDING else None for group in batch.rows_PR for row in group]
    width = max(len(array) for array in arrays if array is not None)
    kind = np.bool_ if name == "mask_T" else np.float32
    filled = np.zeros((len(arrays), width), dtype=kind)
    for place, array in enumerate(arrays):
        if array is not None:
            filled[place, : len(array)] = array
    return torch.from_numpy(filled).to(device)
