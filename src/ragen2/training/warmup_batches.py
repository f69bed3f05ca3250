"""Batches of demonstration rows and their weighted loss; a system text that rows share runs once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ragen2.training.demonstrations import REPLY_WEIGHT, DemoRow

if TYPE_CHECKING:
    import torch


def batch_loss(
    model: torch.nn.Module, batch: Sequence[DemoRow], autocast: AbstractContextManager[Any]
) -> tuple[torch.Tensor, float]:
    """Mean of the token losses of a batch under the rows' weights, and the plain mean over reply tokens (weight 1)."""
    import torch

    start = shared_prefix(batch)
    longest = max(len(row.ids) for row in batch) - start
    weights_BT = np.zeros((len(batch), longest), dtype=np.float32)
    for index, row in enumerate(batch):
        weights_BT[index, : len(row.ids) - start] = row.weights[start:]
    with autocast:
        losses = _shared_losses(model, batch, start, weights_BT > 0) if start > 1 else _whole_losses(model, batch)
    weights = torch.from_numpy(weights_BT).to(losses.device)
    reply = (weights >= REPLY_WEIGHT).float()
    reply_loss = (losses.detach() * reply).sum() / reply.sum().clamp(min=1.0)
    return (losses * weights).sum() / weights.sum(), float(reply_loss)


def shared_prefix(batch: Sequence[DemoRow]) -> int:
    """How many leading ids the batch runs once for all rows: their prefix where it is the longer part, else 1."""
    prefix = min(row.prefix for row in batch)
    return prefix if prefix and 2 * prefix * len(batch) >= sum(len(row.ids) for row in batch) else 1


def _shared_losses(model: torch.nn.Module, batch: Sequence[DemoRow], start: int, select_BT: np.ndarray) -> torch.Tensor:
    """Token losses [B, T] behind a prefix that runs once; 0 where not selected."""
    from ragen2.engines.prefix import SharedRows, token_logprobs

    rows = SharedRows([batch[0].ids[:start]], [row.ids[start:] for row in batch])
    return -token_logprobs(model, rows, select=select_BT).logprobs_BT


def _whole_losses(model: torch.nn.Module, batch: Sequence[DemoRow]) -> torch.Tensor:
    """Token losses [B, T] of all ids but each row's first; those of padding mean nothing."""
    import torch

    width = max(len(row.ids) for row in batch)
    ids_BT = np.zeros((len(batch), width), dtype=np.int64)
    for index, row in enumerate(batch):
        ids_BT[index, : len(row.ids)] = row.ids
    ids = torch.from_numpy(ids_BT).to(next(model.parameters()).device)
    first = min(int(np.flatnonzero(row.weights[1:])[0]) for row in batch)
    # Padding is on the right, where a causal model's real tokens never look: no attention mask, which keeps the fast kernel.
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=width - first).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, first + 1 :].flatten(), reduction="none")
    return torch.nn.functional.pad(losses.view(len(batch), -1), (first, 0))


def batch_rows(rows: Iterator[DemoRow], batch_tokens: int, block_rows: int, rng: np.random.Generator) -> Iterator[list[DemoRow]]:
    """Batches of at most `batch_tokens` computed tokens (at least one row), of rows of like length, in random order.

    Padding counts, a shared prefix counts once. Rows of different system texts do not meet in a batch that shares.
    """
    while True:
        block = list(itertools.islice(rows, block_rows))
        if not block:
            return
        block.sort(key=lambda row: (row.ids[: row.prefix].tobytes(), len(row.ids)))
        batches: list[list[DemoRow]] = []
        for row in block:
            if not batches or not _fits([*batches[-1], row], batch_tokens):
                batches.append([])
            batches[-1].append(row)
        yield from (batches[index] for index in rng.permutation(len(batches)))


def _fits(batch: Sequence[DemoRow], batch_tokens: int) -> bool:
    first, last = batch[0], batch[-1]
    if first.prefix != last.prefix or not np.array_equal(first.ids[: first.prefix], last.ids[: last.prefix]):
        return False
    start = shared_prefix(batch)
    return start + len(batch) * (max(len(row.ids) for row in batch) - start) <= batch_tokens
