"""Scoring continuations: every context runs once, equal rows are merged, batches hold rows of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import nn

from ragen2.engines.prefix import PrefixKV, SharedRows, compute_prefix, token_logprobs, without_last
from ragen2.errors import TokenMismatch
from ragen2.trajectory import Ids, as_ids

SCORE_ELEMENTS = 1 << 27
"""Most attention scores a layer holds at once."""


def score_continuations(
    model: nn.Module, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]], token_budget: int
) -> list[list[np.ndarray]]:
    """result[i][k][t] = log p(continuations[i][k][t] | contexts[i], continuations[i][k][:t]), nats, float32.

    Raises TokenMismatch when the lists differ in length or a context is empty.
    """
    if len(contexts) != len(continuations) or any(len(ids) == 0 for ids in contexts):
        raise TokenMismatch(f"{len(contexts)} contexts for {len(continuations)} lists of continuations, or an empty context")
    wanted: dict[bytes, dict[bytes, np.ndarray]] = {}
    for context, rows in zip(contexts, continuations, strict=True):
        found = wanted.setdefault(as_ids(context).tobytes(), {})
        found.update({as_ids(row).tobytes(): np.zeros(0, dtype=np.float32) for row in rows})
    for keys in _context_batches(list(wanted), token_budget):
        _score_batch(model, keys, wanted, token_budget)
    return [
        [wanted[as_ids(context).tobytes()][as_ids(row).tobytes()].copy() for row in rows]
        for context, rows in zip(contexts, continuations, strict=True)
    ]


def _ids(key: bytes) -> Ids:
    return np.frombuffer(key, dtype=np.int32)


def _context_batches(keys: list[bytes], token_budget: int) -> Iterator[list[bytes]]:
    """Contexts of similar length whose padded tokens fit the budget."""
    ordered = sorted(keys, key=len)
    begin = 0
    for end in range(1, len(ordered) + 1):
        if end == len(ordered) or (end + 1 - begin) * len(_ids(ordered[end])) > token_budget:
            yield ordered[begin:end]
            begin = end


def _score_batch(model: nn.Module, keys: list[bytes], wanted: dict[bytes, dict[bytes, np.ndarray]], token_budget: int) -> None:
    """Fill in `wanted` for these contexts, longest continuations first."""
    prefixes = [_ids(key) for key in keys]
    lists = [sorted((row for row in wanted[key] if row), key=len, reverse=True) for key in keys]
    prefix: PrefixKV = compute_prefix(model, without_last(prefixes))
    config = model.config
    heads = getattr(config, "num_attention_heads", 1)
    begin, most = 0, max((len(rows) for rows in lists), default=0)
    while begin < most:
        longest = max(len(_ids(rows[begin])) for rows in lists if begin < len(rows))
        a_row = len(keys) * longest
        members = min(token_budget // a_row, SCORE_ELEMENTS // (a_row * heads * (prefix.longest + longest)))
        chunk = slice(begin, begin + max(1, members))
        groups = [rows[chunk] for rows in lists]
        rows = SharedRows.from_groups(prefixes, [[_ids(row) for row in group] for group in groups])
        logprobs_BT = token_logprobs(model, rows, prefix=prefix).logprobs_BT.float().cpu().numpy()
        for p, (key, group) in enumerate(zip(keys, groups, strict=True)):
            for r, row in enumerate(group):
                wanted[key][row] = logprobs_BT[p * rows.rows_per_prefix + r, : len(_ids(row))].copy()
        begin = chunk.stop
