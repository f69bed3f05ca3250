"""How kept rows become optimiser steps and forward passes: the number of steps is fixed, the split never changes a gradient."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

PADDING = -1
"""Row index of a place that only fills a rectangle."""


@dataclass(frozen=True)
class MicroBatch:
    """Rows of one forward pass: `rows_PR[p]` are the rows that share prefix p (PADDING fills)."""

    rows_PR: tuple[tuple[int, ...], ...]

    @property
    def rows(self) -> list[int]:
        """Real rows, in order."""
        return [row for rows in self.rows_PR for row in rows if row != PADDING]


def spread_over_steps(members_by_group: Sequence[Sequence[int]], steps: int, rng: np.random.Generator) -> list[list[int]]:
    """Deal every group's members out over `steps` mini-batches, so that each holds a share of every group.

    Each mini-batch keeps its order by group; sizes differ by at most one. With fewer members than steps, some stay empty.
    """
    dealt: list[list[int]] = [[] for _ in range(steps)]
    turn = 0
    for members in members_by_group:
        for member in rng.permutation(len(members)):
            dealt[turn % steps].append(members[int(member)])
            turn += 1
    return dealt


def plan_micro_batches(
    prefixes: Sequence[Hashable], prefix_lengths: Sequence[int], suffix_lengths: Sequence[int], token_budget: int
) -> list[MicroBatch]:
    """Group rows (row i has the shared prefix `prefixes[i]`) into rectangles of at most `token_budget` tokens, padding included.

    Rows of similar length go together. A row that alone exceeds the budget gets its own pass.
    """
    by_prefix: dict[Hashable, list[int]] = defaultdict(list)
    for row, prefix in enumerate(prefixes):
        by_prefix[prefix].append(row)
    for rows in by_prefix.values():
        rows.sort(key=lambda row: (suffix_lengths[row], row))
    most = max((len(rows) for rows in by_prefix.values()), default=0)
    widths = sorted({most, *(2**power for power in range(int(math.log2(most)) + 1))}) if most else []
    plans = [_pack(_blocks(by_prefix, width), width, prefix_lengths, suffix_lengths, token_budget) for width in widths]

    def preference(plan: list[MicroBatch]) -> tuple[int, int]:
        costs = [_cost(batch, prefix_lengths, suffix_lengths) for batch in plan]
        return max(0, max(costs) - token_budget), sum(costs)

    return min(plans, key=preference, default=[])


def _blocks(by_prefix: dict[Hashable, list[int]], width: int) -> list[tuple[int, ...]]:
    blocks = []
    for rows in by_prefix.values():
        for start in range(0, len(rows), width):
            part = rows[start : start + width]
            blocks.append(tuple(part + [PADDING] * (width - len(part))))
    return blocks


def _pack(
    blocks: list[tuple[int, ...]], width: int, prefix_lengths: Sequence[int], suffix_lengths: Sequence[int], token_budget: int
) -> list[MicroBatch]:
    def longest(block: tuple[int, ...]) -> int:
        return max(suffix_lengths[row] for row in block if row != PADDING)

    batches: list[MicroBatch] = []
    current: list[tuple[int, ...]] = []
    for block in sorted(blocks, key=lambda block: (longest(block), block)):
        candidate = [*current, block]
        if current and _cost(MicroBatch(tuple(candidate)), prefix_lengths, suffix_lengths) > token_budget:
            batches.append(MicroBatch(tuple(current)))
            candidate = [block]
        current = candidate
    if current:
        batches.append(MicroBatch(tuple(current)))
    return batches


def _cost(batch: MicroBatch, prefix_lengths: Sequence[int], suffix_lengths: Sequence[int]) -> int:
    """Tokens of the rectangle: every prefix once and every row at the longest suffix."""
    rows = batch.rows
    width = len(batch.rows_PR[0])
    prefix = max(prefix_lengths[row] for row in rows)
    return len(batch.rows_PR) * (prefix + width * max(suffix_lengths[row] for row in rows))
