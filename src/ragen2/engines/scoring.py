"""Scoring continuations: what contexts share runs once, then each context once, then packed rows of similar length on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ragen2.engines.attention import bare, decoder_of
from ragen2.engines.fused import can_fuse
from ragen2.engines.head_logprobs import LOGIT_ELEMENTS, head_logprobs
from ragen2.engines.packed_rows import PackedKV, PackedRows, packed_hidden, packed_logits
from ragen2.engines.prefix import check_model
from ragen2.engines.scored import Scored
from ragen2.errors import TokenMismatch
from ragen2.trajectory import Ids, as_ids, common_prefix

CPU_TOKENS = 1024
"""Most tokens of a call on a processor: larger ones only leave its cache."""

KV_BYTES = 1 << 28
"""Most keys and values of contexts held at once (256 MiB)."""

SCORE_ELEMENTS = 1 << 27
"""Most attention scores a layer holds at once where the fused kernel does not serve."""

MIN_COMMON = 16
"""A shorter beginning that all contexts share is not worth a call of its own."""

Places = list[tuple[int, int]]


@dataclass
class _Context:
    """A distinct context and its distinct continuations; `rows[key]` is where each was asked for."""

    ids: Ids
    rows: dict[bytes, Places] = field(default_factory=dict)


def score_stream(
    model: nn.Module, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]], token_budget: int
) -> Iterator[list[Scored]]:
    """Every continuation once, in the order in which they are done, some at a time.

    Equal contexts and equal continuations of a context run once. `token_budget` bounds the tokens of one call. To be consumed
    without gradients. Raises TokenMismatch when the lists differ in length, a context is empty or ids are outside the
    vocabulary or the model's longest context; ModelError for a model that cannot share prefixes.
    """
    check_tokens(model, contexts, continuations)
    wanted, empty = _merged(contexts, continuations)
    if empty:
        yield empty
    job = _Job(model, token_budget)
    common = _common([item.ids for item in wanted])
    shared = job.run_common(wanted[0].ids[:common]) if common else None
    for batch in job.batches(wanted, common):
        yield from job.run(batch, common, shared)


def check_tokens(model: Any, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> None:
    """Raises TokenMismatch for what no model of this vocabulary and length can score, naming it."""
    if len(contexts) != len(continuations):
        raise TokenMismatch(f"{len(contexts)} contexts for {len(continuations)} lists of continuations: give one list a context")
    base = bare(model)
    vocabulary = int(base.get_input_embeddings().num_embeddings)
    longest = getattr(base.config, "max_position_embeddings", None)
    for i, (context, rows) in enumerate(zip(contexts, continuations, strict=True)):
        if not len(context):
            raise TokenMismatch(f"context {i} is empty: every context needs at least one token")
        _check_ids(context, vocabulary, f"context {i}")
        for k, row in enumerate(rows):
            _check_ids(row, vocabulary, f"continuation {k} of context {i}")
        whole = len(context) + max((len(row) for row in rows), default=0)
        if longest is not None and whole > longest:
            raise TokenMismatch(
                f"context {i} and its longest continuation have {whole} tokens, but the model reads at most {longest}"
            )


def _check_ids(ids: Ids, vocabulary: int, name: str) -> None:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TokenMismatch(f"{name} is an array of {array.dtype} and shape {array.shape}; give a list of whole numbers")
    wrong = array[(array < 0) | (array >= vocabulary)] if array.size else array
    if wrong.size:
        raise TokenMismatch(
            f"{name} holds the token id {int(wrong[0])}, but the model's vocabulary has the ids 0 to {vocabulary - 1}. "
            "Use the tokenizer of this model."
        )


def _merged(contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> tuple[list[_Context], list[Scored]]:
    """Distinct contexts with something to score, and the empty continuations."""
    found: dict[bytes, _Context] = {}
    empty: list[Scored] = []
    for i, (context, rows) in enumerate(zip(contexts, continuations, strict=True)):
        ids = as_ids(context)
        for k, row in enumerate(rows):
            if not len(row):
                empty.append((i, k, np.zeros(0, dtype=np.float32)))
                continue
            item = found.setdefault(ids.tobytes(), _Context(ids))
            item.rows.setdefault(as_ids(row).tobytes(), []).append((i, k))
    return list(found.values()), empty


def _common(contexts: Sequence[Ids]) -> int:
    """How many first tokens all contexts share, the last token of each left out; 0 where sharing would not pay."""
    if len(contexts) < 2:
        return 0
    length = len(contexts[0]) - 1
    for ids in contexts[1:]:
        length = common_prefix(contexts[0][:length], ids[:-1])
    return length if length >= MIN_COMMON else 0


class _Job:
    """One model and its bounds."""

    def __init__(self, model: nn.Module, token_budget: int) -> None:
        self.model = model
        self.plain_head = check_model(model)
        parameter = next(model.parameters())
        self.device = parameter.device
        self.config = decoder_of(model).config
        cpu = self.device.type == "cpu"
        self.tokens = max(1, min(token_budget, CPU_TOKENS) if cpu else token_budget)
        if not self.plain_head:
            self.tokens = max(1, min(self.tokens, LOGIT_ELEMENTS // self.config.vocab_size))
        heads = getattr(self.config, "num_attention_heads", 1)
        width = getattr(self.config, "head_dim", None) or self.config.hidden_size // heads
        key_heads = getattr(self.config, "num_key_value_heads", None) or heads
        self.kv_bytes = 2 * getattr(self.config, "num_hidden_layers", 1) * key_heads * width * parameter.element_size()
        self.score_elements = None if can_fuse(parameter) else SCORE_ELEMENTS // heads

    def batches(self, wanted: list[_Context], common: int) -> Iterator[list[_Context]]:
        """Contexts of similar length whose padded own tokens and whose keys and values fit."""
        ordered = sorted(wanted, key=lambda item: len(item.ids))
        begin = 0
        for end in range(1, len(ordered) + 1):
            longest = len(ordered[min(end, len(ordered) - 1)].ids)
            rows = end + 1 - begin
            if end == len(ordered) or not (
                self._fits(rows, longest - common, longest) and rows * longest * self.kv_bytes <= KV_BYTES
            ):
                yield ordered[begin:end]
                begin = end

    def _fits(self, rows: int, longest: int, seen: int) -> bool:
        padded = rows * longest
        return padded <= self.tokens and (self.score_elements is None or padded * seen <= self.score_elements)

    def run_common(self, ids: Ids) -> PackedKV:
        """Keys and values of what all contexts begin with."""
        _, kept = packed_hidden(self.model, PackedRows([ids], np.zeros(1, dtype=np.int64)), keep=True)
        assert kept is not None
        return kept

    def run(self, batch: list[_Context], common: int, shared: PackedKV | None) -> Iterator[list[Scored]]:
        """Run these contexts, then their continuations, longest first."""
        rows = PackedRows([item.ids[common:] for item in batch], np.zeros(len(batch), dtype=np.int64))
        pairs = [(c, key) for c, item in enumerate(batch) for key in item.rows]
        firsts = np.array([_ids(key)[0] for _, key in pairs])
        at = np.array([c for c, _ in pairs])
        first, kept = self._logprobs(rows, shared, rows.ends_B - 1, at, firsts, keep=True)
        assert kept is not None
        first_of = dict(zip(pairs, first, strict=True))
        for chunk in self._chunks(pairs, int(kept.lengths_P.max())):
            yield self._score(batch, chunk, kept, first_of)

    def _chunks(self, pairs: list[tuple[int, bytes]], seen: int) -> Iterator[list[tuple[int, bytes]]]:
        """Pairs of similar length, those of one context together."""
        ordered = sorted(pairs, key=lambda pair: -len(pair[1]))
        begin = 0
        for end in range(1, len(ordered) + 1):
            longest = len(_ids(ordered[begin][1]))
            if end == len(ordered) or not self._fits(end + 1 - begin, longest, seen + longest):
                yield sorted(ordered[begin:end], key=lambda pair: pair[0])
                begin = end

    def _score(
        self, batch: list[_Context], chunk: list[tuple[int, bytes]], kept: PackedKV, first_of: dict[tuple[int, bytes], Any]
    ) -> list[Scored]:
        # The last token of a row is only predicted, and the first by its context: what runs is all but the last.
        longer = [(c, key) for c, key in chunk if len(_ids(key)) > 1]
        rest: dict[tuple[int, bytes], np.ndarray] = {}
        if longer:
            rows = PackedRows([_ids(key)[:-1] for _, key in longer], np.array([c for c, _ in longer]))
            everything = np.arange(rows.ends_B[-1])
            targets = np.concatenate([_ids(key)[1:] for _, key in longer])
            values, _ = self._logprobs(rows, kept, everything, everything, targets)
            rest = dict(zip(longer, np.split(values, rows.ends_B[:-1]), strict=True))
        nothing = np.zeros(0, dtype=np.float32)
        scored: list[Scored] = []
        for pair in chunk:
            values = np.append(first_of[pair], rest.get(pair, nothing))
            scored += [(i, k, values.copy()) for i, k in batch[pair[0]].rows[pair[1]]]
        return scored

    def _logprobs(
        self,
        rows: PackedRows,
        prefix: PackedKV | None,
        where_W: np.ndarray,
        at_M: np.ndarray,
        targets_M: np.ndarray,
        *,
        keep: bool = False,
    ) -> tuple[np.ndarray, PackedKV | None]:
        """log p(targets_M[m]) at packed position where_W[at_M[m]]."""
        head: Any
        if self.plain_head:
            hidden_ND, kept = packed_hidden(self.model, rows, prefix, keep=keep)
            states, head = hidden_ND[torch.from_numpy(where_W).to(self.device)], bare(self.model).get_output_embeddings()
        else:
            states, kept = packed_logits(self.model, rows, prefix, where_W, keep=keep)
            head = _same
        return head_logprobs(head, states, at_M, targets_M).cpu().numpy(), kept


def _same(logits: Tensor) -> Tensor:
    return logits


def _ids(key: bytes) -> Ids:
    return np.frombuffer(key, dtype=np.int32)
