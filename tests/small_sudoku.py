"""All completed 4x4 Sudoku boards, found without the package."""

from __future__ import annotations

import functools
import itertools


@functools.cache
def all_small_boards() -> tuple[tuple[int, ...], ...]:
    """The 288 completed 4x4 boards from permutations of rows. Shares no code with the solver."""
    rows = list(itertools.permutations((1, 2, 3, 4)))
    found = []
    for board in itertools.product(rows, repeat=4):
        columns = all(len({row[col] for row in board}) == 4 for col in range(4))
        boxes = columns and all(
            len({board[top + r][left + c] for r in (0, 1) for c in (0, 1)}) == 4 for top in (0, 2) for left in (0, 2)
        )
        if boxes:
            found.append(tuple(value for row in board for value in row))
    return tuple(found)
