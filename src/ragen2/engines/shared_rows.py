"""Prefixes run once and the rows that look back on them: the tensors and masks under `prefix.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ragen2.engines.attention import decoder_of, run_decoder, two_part_attention, unsupported
from ragen2.engines.fused import can_fuse, fused_attention
from ragen2.errors import TokenMismatch
from ragen2.trajectory import Ids, as_ids


@dataclass(frozen=True)
class SharedRows:
    """P prefixes and R suffixes for each: row b = p * R + r is prefixes[p] followed by suffixes[b].

    A suffix may be empty; it is padded like any shorter one. Raises TokenMismatch when the suffixes do not divide among the
    prefixes.
    """

    prefixes: Sequence[Ids]
    suffixes: Sequence[Ids]

    def __post_init__(self) -> None:
        if not self.prefixes or len(self.suffixes) % len(self.prefixes):
            raise TokenMismatch(f"{len(self.suffixes)} suffixes cannot be shared out evenly among {len(self.prefixes)} prefixes")

    @property
    def rows_per_prefix(self) -> int:
        """R."""
        return len(self.suffixes) // len(self.prefixes)

    @classmethod
    def from_groups(cls, prefixes: Sequence[Ids], suffixes_by_prefix: Sequence[Sequence[Ids]]) -> SharedRows:
        """From a list of suffixes a prefix; shorter lists are filled up with empty suffixes."""
        members = max((len(group) for group in suffixes_by_prefix), default=0)
        empty = as_ids([])
        filled = [[*group, *[empty] * (members - len(group))] for group in suffixes_by_prefix]
        return cls(prefixes, [suffix for group in filled for suffix in group])


@dataclass
class PrefixKV:
    """Keys and values of P prefixes, right padded: a pair of [P, K, L, d] a layer, with their graph when grad is on."""

    lengths_P: np.ndarray
    longest: int
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def attend(self, layer: int, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, scaling: float) -> Tensor:
        """Ordinary causal attention that keeps the layer's keys and values."""
        if layer != len(self.layers):
            raise unsupported("this model", f"its attention layers run out of order (layer {layer} after {len(self.layers)})")
        self.layers.append((key_BKTd, value_BKTd))
        grouped = query_BHTd.shape[1] != key_BKTd.shape[1]
        out = scaled_dot_product_attention(query_BHTd, key_BKTd, value_BKTd, is_causal=True, scale=scaling, enable_gqa=grouped)
        return out.transpose(1, 2)


@dataclass(frozen=True)
class SuffixAttention:
    """Attention of suffix tokens: to their prefix, and causally to their own row."""

    prefix: PrefixKV
    longest: int
    own_mask_TT: Tensor
    prefix_mask_PL: Tensor | None

    def attend(self, layer: int, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, scaling: float) -> Tensor:
        mask_PL = self.prefix_mask_PL
        if can_fuse(query_BHTd) and self.prefix.lengths_P.min() > 0:
            return fused_attention(query_BHTd, self.prefix.layers[layer], (key_BKTd, value_BKTd), scaling, mask_PL)
        return two_part_attention(
            query_BHTd,
            self.prefix.layers[layer],
            (key_BKTd, value_BKTd),
            scaling,
            prefix_mask=None if mask_PL is None else mask_PL[:, None, None, None, None],
            own_mask=self.own_mask_TT,
        )


def compute_prefix(model: nn.Module, prefixes: Sequence[Ids]) -> PrefixKV:
    """Run the prefixes once. The result serves any number of `suffix_hidden` calls with these prefixes and weights."""
    lengths_P = np.array([len(ids) for ids in prefixes])
    longest = max(1, int(lengths_P.max()))
    device = next(model.parameters()).device
    state = PrefixKV(lengths_P, longest)
    positions = torch.arange(longest, device=device).expand(len(prefixes), longest)
    run_decoder(decoder_of(model), padded(prefixes, longest, device), positions, state)
    return state


def suffix_call(
    model: nn.Module, rows: SharedRows, prefix: PrefixKV | None
) -> tuple[SuffixAttention, Tensor, Tensor, np.ndarray]:
    """The attention, ids [B, T], positions [B, T] and lengths [B] of a call that runs the suffixes of `rows`."""
    prefix = prefix if prefix is not None else compute_prefix(model, rows.prefixes)
    parameter = next(model.parameters())
    device, members = parameter.device, rows.rows_per_prefix
    lengths_B = np.array([len(ids) for ids in rows.suffixes])
    longest = max(1, int(lengths_B.max(initial=0)))
    starts_B = torch.from_numpy(np.repeat(prefix.lengths_P, members)).to(device)
    dtype = prefix.layers[0][0].dtype
    causal = torch.full((longest, longest), float("-inf"), dtype=dtype, device=device).triu(1)
    mask = None
    if int(prefix.lengths_P.min()) < prefix.longest:
        hidden = torch.arange(prefix.longest) >= torch.from_numpy(prefix.lengths_P)[:, None]
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, float("-inf")).to(device)
    state = SuffixAttention(prefix, prefix.longest + longest, causal, mask)
    positions_BT = starts_B[:, None] + torch.arange(longest, device=device)
    return state, padded(rows.suffixes, longest, device), positions_BT, lengths_B


def padded(sequences: Sequence[Ids], longest: int, device: torch.device) -> Tensor:
    """Right-padded ids [B, longest]; padding is id 0, which no real token ever sees."""
    out = np.zeros((len(sequences), longest), dtype=np.int64)
    for row, ids in enumerate(sequences):
        out[row, : len(ids)] = ids
    return torch.from_numpy(out).to(device)
