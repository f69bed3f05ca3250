"""Keys and values of rows that decode: a region of its own for every row, the prefix of its group read once for all.

Slots form a rectangle: `groups` x `members`, slot = group * members + member, all slots of a group on one prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ragen2.engines.attention import two_part_attention
from ragen2.engines.shared_rows import PrefixKV

FIRST_CAPACITY = 64
SCORE_ELEMENTS = 1 << 25
"""Most attention scores an extension holds at once in one layer."""


class Slots:
    """Where each row's keys and values lie. `slot_R[row]` is its slot, -1 when it has none."""

    def __init__(self, prefix: PrefixKV, prefix_of_row_R: np.ndarray) -> None:
        # A processor multiplies many small bfloat16 matrices at half the speed of float32 ones, so there keys are kept wider.
        narrow = prefix.layers[0][0].device.type == "cpu" and prefix.layers[0][0].dtype != torch.float64
        self.dtype = torch.float32 if narrow else prefix.layers[0][0].dtype
        self._layers = [(keys.to(self.dtype), values.to(self.dtype)) for keys, values in prefix.layers]
        self._lengths_P = prefix.lengths_P
        self._prefix_of_row_R = prefix_of_row_R
        self.slot_R = np.full(len(prefix_of_row_R), -1)
        self.prefixes = self._layers
        self.own: list[tuple[Tensor, Tensor]] = []
        self.capacity = FIRST_CAPACITY
        self._lay_out(np.arange(len(prefix_of_row_R)))

    @property
    def count(self) -> int:
        """Number of slots, vacant ones included."""
        return len(self.prefix_of_group) * self.members

    def _best_members(self, rows: np.ndarray) -> tuple[int, np.ndarray]:
        """Members a group that leave the fewest vacant slots, and the rows of each prefix."""
        counts = np.bincount(self._prefix_of_row_R[rows], minlength=len(self._lengths_P))
        options = np.arange(1, counts.max() + 1)
        groups_O = (-(-counts[None] // options[:, None])).sum(1)
        # A further copy of a prefix costs about as much as one more slot.
        return int(options[np.argmin(groups_O * options + groups_O)]), counts

    def fewest(self, rows: np.ndarray) -> int:
        """Slots that a layout of these rows alone would take."""
        members, counts = self._best_members(rows)
        return int((-(-counts // members)).sum()) * members

    def _lay_out(self, rows: np.ndarray) -> None:
        """Give these rows slots. A prefix with many rows takes several groups, so that the rectangle has few vacant slots."""
        self.members, counts = self._best_members(rows)
        self.prefix_of_group = np.repeat(np.arange(len(counts)), -(-counts // self.members))
        self.slot_R[:] = -1
        first_slot = np.searchsorted(self.prefix_of_group, np.arange(len(counts))) * self.members
        order = rows[np.argsort(self._prefix_of_row_R[rows], kind="stable")]
        prefixes = self._prefix_of_row_R[order]
        rank = np.arange(len(order)) - np.searchsorted(prefixes, prefixes)
        self.slot_R[order] = first_slot[prefixes] + rank
        chosen = torch.from_numpy(self.prefix_of_group).to(self._layers[0][0].device)
        unchanged = np.array_equal(self.prefix_of_group, np.arange(len(counts)))
        layers = self._layers
        self.prefixes = layers if unchanged else [(keys[chosen], values[chosen]) for keys, values in layers]

    def compact(self, rows: np.ndarray) -> None:
        """Keep only the regions of these rows, in as few slots as the rectangle allows."""
        before = self.slot_R[rows]
        self._lay_out(rows)
        source = np.zeros(self.count, dtype=np.int64)
        source[self.slot_R[rows]] = before
        for layer, pair in enumerate(self.own):
            index = torch.from_numpy(source).to(pair[0].device)
            self.own[layer] = (pair[0].index_select(0, index), pair[1].index_select(0, index))

    def reserve(self, length: int) -> None:
        """Make every region hold `length` tokens; capacity grows geometrically."""
        if length <= self.capacity:
            return
        self.capacity = max(length, self.capacity * 3 // 2)
        self.own = [(self._grown(keys), self._grown(values)) for keys, values in self.own]

    def _grown(self, old: Tensor) -> Tensor:
        new = old.new_zeros(*old.shape[:2], self.capacity, old.shape[3])
        new[:, :, : old.shape[2]] = old
        return new

    def write(self, layer: int, index: Tensor, key_NKd: Tensor, value_NKd: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values at `index` [N * K] of the layer's flattened [S, K, C] region; the whole regions."""
        if layer == len(self.own):
            shape = (self.count, key_NKd.shape[1], self.capacity, key_NKd.shape[2])
            self.own.append((key_NKd.new_zeros(shape), value_NKd.new_zeros(shape)))
        keys, values = self.own[layer]
        keys.view(-1, keys.shape[3]).index_copy_(0, index, key_NKd.reshape(-1, keys.shape[3]))
        values.view(-1, values.shape[3]).index_copy_(0, index, value_NKd.reshape(-1, values.shape[3]))
        return keys, values


@dataclass(frozen=True)
class StepRows:
    """The rows of one step: the tokens each one feeds (`feeds_A`), how many of its prefix it sees, how many own tokens it has."""

    rows_A: np.ndarray
    feeds_A: np.ndarray
    visible_A: np.ndarray
    own_A: np.ndarray


@dataclass
class StepAttention:
    """Attention of one packed step [1, N]: rows that feed one token first, then extensions, each row's tokens in order."""

    slots: Slots
    step: StepRows
    key_heads: int
    longest: int
    device: torch.device
    singles: int = field(init=False)
    _extensions: list[_Extension] = field(init=False)

    def __post_init__(self) -> None:
        step, slots = self.step, self.slots
        self.singles = int((step.feeds_A == 1).sum())
        slot_A = slots.slot_R[step.rows_A]
        slots.reserve(int((step.own_A + step.feeds_A).max()))
        starts_A = np.cumsum(step.feeds_A) - step.feeds_A
        offsets_N = np.arange(step.feeds_A.sum()) - np.repeat(starts_A, step.feeds_A)
        at_N = np.repeat(step.own_A, step.feeds_A) + offsets_N
        first_N = np.repeat(slot_A, step.feeds_A) * self.key_heads
        index_NK = (first_N[:, None] + np.arange(self.key_heads)) * slots.capacity + at_N[:, None]
        self._index = torch.from_numpy(index_NK.reshape(-1)).to(self.device)
        self._prepare_singles(slot_A[: self.singles])
        self._extensions = self._prepare_extensions(slot_A, starts_A)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the attention."""
        return self.slots.dtype

    def _mask(self, hidden: np.ndarray, shape: Sequence[int]) -> Tensor:
        mask = torch.zeros(hidden.shape, dtype=self.dtype)
        return mask.masked_fill_(torch.from_numpy(hidden), float("-inf")).to(self.device).view(*shape)

    def _prefix_mask(self, visible: np.ndarray, shape: Sequence[int]) -> Tensor | None:
        length = self.slots.prefixes[0][0].shape[2]
        return None if (visible == length).all() else self._mask(np.arange(length) >= visible[:, None], (*shape, length))

    def _prepare_singles(self, slot_D: np.ndarray) -> None:
        count, step = self.slots.count, self.step
        if not len(slot_D):
            return
        self._own = int(step.own_A[: self.singles].max()) + 1
        length_S = np.ones(count, dtype=np.int64)
        length_S[slot_D] = step.own_A[: self.singles] + 1
        self._own_mask = self._mask(np.arange(self._own) >= length_S[:, None], (count, 1, 1, 1, self._own))
        visible_S = np.full(count, self.slots.prefixes[0][0].shape[2])
        visible_S[slot_D] = step.visible_A[: self.singles]
        shape = (len(self.slots.prefix_of_group), self.slots.members, 1, 1, 1)
        self._visible_mask = self._prefix_mask(visible_S, shape)
        everyone = len(slot_D) == count and bool((slot_D == np.arange(count)).all())
        self._slot_D = None if everyone else torch.from_numpy(slot_D).to(self.device)

    def _prepare_extensions(self, slot_A: np.ndarray, starts_A: np.ndarray) -> list[_Extension]:
        """Extensions in chunks whose attention scores fit."""
        step, prefix = self.step, self.slots.prefixes[0][0].shape[2]
        chunks, begin = [], self.singles
        while begin < len(step.rows_A):
            end, longest, own = begin, 0, 0
            while end < len(step.rows_A):
                longest, own = max(longest, int(step.feeds_A[end])), max(own, int(step.own_A[end] + step.feeds_A[end]))
                if end > begin and (end + 1 - begin) * longest * (prefix + own) * self.key_heads > SCORE_ELEMENTS:
                    break
                end += 1
            chunks.append(self._extension(slot_A, starts_A, slice(begin, end)))
            begin = end
        return chunks

    def _extension(self, slot_A: np.ndarray, starts_A: np.ndarray, chunk: slice) -> _Extension:
        step, slot_E = self.step, slot_A[chunk]
        feeds_E, own_E = step.feeds_A[chunk], step.own_A[chunk]
        tokens, own = int(feeds_E.max()), int((own_E + feeds_E).max())
        first = int(starts_A[chunk.start])
        packed = starts_A[chunk, None] - first + np.arange(tokens)
        real = np.arange(tokens) < feeds_E[:, None]
        hidden = np.arange(own) > (own_E[:, None] + np.arange(tokens))[..., None]
        return _Extension(
            torch.from_numpy(slot_E).to(self.device),
            torch.from_numpy(slot_E // self.slots.members).to(self.device),
            slice(first, first + int(feeds_E.sum())),
            torch.from_numpy(np.where(real, packed, 0)).to(self.device),
            torch.from_numpy(np.flatnonzero(real)).to(self.device),
            self._prefix_mask(step.visible_A[chunk], (len(slot_E), 1, 1, 1, 1)),
            self._mask(hidden, (len(slot_E), 1, 1, tokens, own)),
        )

    def attend(self, layer: int, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, scaling: float) -> Tensor:
        key_NKd, value_NKd = key_BKTd[0].transpose(0, 1).to(self.dtype), value_BKTd[0].transpose(0, 1).to(self.dtype)
        query_NHd = query_BHTd[0].transpose(0, 1).to(self.dtype)
        region = self.slots.write(layer, self._index, key_NKd, value_NKd)
        prefix = self.slots.prefixes[layer]
        parts = [self._attend_singles(query_NHd[: self.singles], prefix, region, scaling)] if self.singles else []
        parts += [extension.attend(query_NHd, prefix, region, scaling) for extension in self._extensions]
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[None].to(query_BHTd.dtype)

    def _attend_singles(
        self, query_DHd: Tensor, prefix: tuple[Tensor, Tensor], region: tuple[Tensor, Tensor], scaling: float
    ) -> Tensor:
        query_SHd = query_DHd
        if self._slot_D is not None:
            query_SHd = query_DHd.new_zeros(self.slots.count, *query_DHd.shape[1:]).index_copy_(0, self._slot_D, query_DHd)
        out_SHd = two_part_attention(
            query_SHd[:, :, None],
            prefix,
            (region[0][:, :, : self._own], region[1][:, :, : self._own]),
            scaling,
            prefix_mask=self._visible_mask,
            own_mask=self._own_mask,
        )[:, 0]
        return out_SHd if self._slot_D is None else out_SHd.index_select(0, self._slot_D)


@dataclass(frozen=True)
class _Extension:
    """Rows that feed several tokens, padded to [E, T] for their attention."""

    slot_E: Tensor
    group_E: Tensor
    packed: slice
    packed_of_ET: Tensor
    real: Tensor
    prefix_mask: Tensor | None
    own_mask: Tensor

    def attend(self, query_NHd: Tensor, prefix: tuple[Tensor, Tensor], region: tuple[Tensor, Tensor], scaling: float) -> Tensor:
        own = self.own_mask.shape[-1]
        query_ETHd = query_NHd[self.packed][self.packed_of_ET]
        out_ETHd = two_part_attention(
            query_ETHd.transpose(1, 2),
            (prefix[0].index_select(0, self.group_E), prefix[1].index_select(0, self.group_E)),
            (region[0][:, :, :own].index_select(0, self.slot_E), region[1][:, :, :own].index_select(0, self.slot_E)),
            scaling,
            prefix_mask=self.prefix_mask,
            own_mask=self.own_mask,
        )
        return out_ETHd.flatten(0, 1).index_select(0, self.real)
