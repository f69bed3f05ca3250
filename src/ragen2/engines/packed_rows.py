"""Rows of several prefixes in one call without padding: linear layers see real tokens only, attention never copies a prefix.

Inference only; `prefix.py` is the differentiable way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from ragen2.engines.attention import decoder_of, run_causal_model, run_decoder
from ragen2.engines.fused import attention_with_sums
from ragen2.trajectory import Ids

KeyValue = tuple[Tensor, Tensor]
"""Keys and values [K, L, d] of one prefix in one layer."""


@dataclass(frozen=True)
class PackedKV:
    """Keys and values of P prefixes at their own lengths: `layers[l][p]`."""

    lengths_P: np.ndarray
    layers: list[list[KeyValue]] = field(default_factory=list)


@dataclass(frozen=True)
class PackedRows:
    """Rows one after another, none empty; row b continues prefix `prefix_B[b]`, and rows of one prefix stand together."""

    rows: Sequence[Ids]
    prefix_B: np.ndarray

    @property
    def lengths_B(self) -> np.ndarray:
        """Tokens of each row."""
        return np.array([len(ids) for ids in self.rows])

    @property
    def ends_B(self) -> np.ndarray:
        """Where each row ends, in packed positions."""
        return np.cumsum(self.lengths_B)


class PackedAttention:
    """What the tokens of a packed call [1, N] see: their prefix, and causally their own row.

    With `keep` the keys and values of every row, its prefix's in front, are collected in `kept`.
    """

    def __init__(self, rows: PackedRows, prefix: PackedKV | None, device: torch.device, *, keep: bool = False) -> None:
        self._prefix, lengths_B = prefix, rows.lengths_B
        before_B = np.zeros(len(lengths_B), dtype=np.int64) if prefix is None else prefix.lengths_P[rows.prefix_B]
        self.longest = int((before_B + lengths_B).max())
        self.kept = PackedKV(before_B + lengths_B) if keep else None
        self._row_of_prefix_B, self._ends_B = rows.prefix_B, rows.ends_B
        self._starts_B = self._ends_B - lengths_B
        self.positions_N = np.repeat(before_B - self._starts_B, lengths_B) + np.arange(self._ends_B[-1])
        self._rows, self._tokens = len(lengths_B), int(lengths_B.max())
        real_BT = np.arange(self._tokens) < lengths_B[:, None]
        self._gather: Tensor | None = None
        if not real_BT.all():
            packed_BT = np.where(real_BT, self._starts_B[:, None] + np.arange(self._tokens), 0)
            self._gather = torch.from_numpy(packed_BT.reshape(-1)).to(device)
            self._real = torch.from_numpy(np.flatnonzero(real_BT)).to(device)

    def attend(self, layer: int, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, scaling: float) -> Tensor:
        """Attention output [1, N, H, d]."""
        query, key, value = query_BHTd[0], key_BKTd[0], value_BKTd[0]
        if self.kept is not None:
            self.kept.layers.append([self._with_prefix(layer, b, key, value) for b in range(self._rows)])
        # Query heads split by the key head they read, as views: [N, K, rep, d].
        size = (query.shape[1], key.shape[0], query.shape[0] // key.shape[0])
        own_NKrd, own_sum_NKr = self._own(query, key, value, scaling)
        if self._prefix is not None:
            split = query.unflatten(0, size[1:])
            for p, begin, end in self._segments():
                keys, values = (x[:, None].expand(-1, size[2], -1, -1) for x in self._prefix.layers[layer][p])
                shared, shared_sum = attention_with_sums(split[:, :, begin:end], keys, values, scaling, causal=False)
                part = own_NKrd[begin:end]
                # exp(a) / (exp(a) + exp(b)): the share of the joint softmax that falls on the prefix.
                weight = (shared_sum.permute(2, 0, 1) - own_sum_NKr[begin:end]).sigmoid_()[..., None].to(part.dtype)
                torch.lerp(part, shared.permute(2, 0, 1, 3).to(part.dtype), weight, out=part)
        return own_NKrd.flatten(1, 2)[None].to(query.dtype)

    def _segments(self) -> list[tuple[int, int, int]]:
        """(prefix, begin, end) of the packed positions of each prefix."""
        first = np.flatnonzero(np.diff(self._row_of_prefix_B, prepend=-1))
        ends = [*self._starts_B[first[1:]].tolist(), int(self._ends_B[-1])]
        return list(zip(self._row_of_prefix_B[first].tolist(), self._starts_B[first].tolist(), ends, strict=True))

    def _with_prefix(self, layer: int, row: int, key_KNd: Tensor, value_KNd: Tensor) -> KeyValue:
        own = slice(int(self._starts_B[row]), int(self._ends_B[row]))
        if self._prefix is None:
            # Cloned, so that a kept row does not hold the whole call's tensors.
            return key_KNd[:, own].contiguous().clone(), value_KNd[:, own].contiguous().clone()
        keys, values = self._prefix.layers[layer][self._row_of_prefix_B[row]]
        return torch.cat([keys, key_KNd[:, own]], 1), torch.cat([values, value_KNd[:, own]], 1)

    def _own(self, query_HNd: Tensor, key_KNd: Tensor, value_KNd: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
        """Each row's attention to itself: output [N, K, rep, d] and log-sums [N, K, rep]."""
        key_heads, repeat = key_KNd.shape[0], query_HNd.shape[0] // key_KNd.shape[0]
        query, key, value = (self._by_row(x) for x in (query_HNd, key_KNd, value_KNd))
        outs, sums = [], []
        for k in range(key_heads):
            keys, values = (x[:, k : k + 1].expand(-1, repeat, -1, -1) for x in (key, value))
            out, total = attention_with_sums(query[:, k * repeat : (k + 1) * repeat], keys, values, scaling, causal=True)
            outs.append(out.transpose(1, 2))
            sums.append(total.transpose(1, 2))
        out_NKrd, sum_NKr = torch.stack(outs, 2).flatten(0, 1), torch.stack(sums, 2).flatten(0, 1)
        if self._gather is None:
            return out_NKrd, sum_NKr
        return out_NKrd.index_select(0, self._real), sum_NKr.index_select(0, self._real)

    def _by_row(self, x_hNd: Tensor) -> Tensor:
        """[h, N, d] as [B, h, T, d], right padded where rows differ in length."""
        x_Nhd = x_hNd.transpose(0, 1)
        if self._gather is not None:
            x_Nhd = x_Nhd.index_select(0, self._gather)
        return x_Nhd.unflatten(0, (self._rows, self._tokens)).transpose(1, 2)


@torch.no_grad()
def packed_hidden(
    model: nn.Module, rows: PackedRows, prefix: PackedKV | None = None, *, keep: bool = False
) -> tuple[Tensor, PackedKV | None]:
    """Hidden states after the final norm of all row tokens [N, D], and with `keep` the keys and values of prefix and row."""
    state, ids, positions = _call(model, rows, prefix, keep)
    return run_decoder(decoder_of(model), ids, positions, state)[0], state.kept


@torch.no_grad()
def packed_logits(
    model: nn.Module, rows: PackedRows, prefix: PackedKV | None, at_M: np.ndarray, *, keep: bool = False
) -> tuple[Tensor, PackedKV | None]:
    """Logits [M, V] of the whole model at packed positions `at_M`: for models whose logits are no plain product."""
    state, ids, positions = _call(model, rows, prefix, keep)
    return run_causal_model(model, ids, positions, state, torch.from_numpy(at_M).to(ids.device))[0], state.kept


def _call(model: nn.Module, rows: PackedRows, prefix: PackedKV | None, keep: bool) -> tuple[PackedAttention, Tensor, Tensor]:
    device = next(model.parameters()).device
    state = PackedAttention(rows, prefix, device, keep=keep)
    ids = torch.from_numpy(np.concatenate(rows.rows).astype(np.int64)).to(device)[None]
    return state, ids, torch.from_numpy(state.positions_N).to(device)[None]
