"""Sudoku: the board, which values a cell may take, all solutions up to a limit, and the two simplest deductions.

A board is a flat tuple of side x side numbers, row by row, 0 for an empty cell. The side is 4 (boxes of 2 x 2) or 9 (3 x 3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ragen2.errors import ConfigError

Board = tuple[int, ...]

SIDES = (4, 9)
_BOX = {4: 2, 9: 3}

UNITS = ("row", "column", "box")


@dataclass(frozen=True)
class Geometry:
    """Which cells share a row, a column or a box. `units[k]` are the cells of unit k, `kinds[k]` says what it is."""

    side: int
    units: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    units_of: tuple[tuple[int, ...], ...]
    peers: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Deduction:
    """A cell whose value is forced. `why` is "cell" (no other value fits the cell) or the unit that has no other place for it.

    `because` are filled cells: one for each value that the cell cannot take, in ascending order of the values; or, for a unit,
    one for each of its other empty cells, which are in `others` in the same order.
    """

    cell: int
    value: int
    why: str
    because: tuple[int, ...]
    others: tuple[int, ...] = ()


@functools.cache
def geometry(side: int) -> Geometry:
    """The units and peers of a board. Raises ConfigError unless the side is 4 or 9."""
    if side not in _BOX:
        raise ConfigError(f"sudoku side is {side!r}; give 4 or 9")
    box = _BOX[side]
    rows = [tuple(row * side + col for col in range(side)) for row in range(side)]
    columns = [tuple(row * side + col for row in range(side)) for col in range(side)]
    boxes = [
        tuple((top + row) * side + left + col for row in range(box) for col in range(box))
        for top in range(0, side, box)
        for left in range(0, side, box)
    ]
    units = tuple(rows + columns + boxes)
    kinds = tuple(kind for kind in UNITS for _ in range(side))
    units_of = tuple(tuple(k for k, unit in enumerate(units) if cell in unit) for cell in range(side * side))
    peers = tuple(tuple(sorted({other for k in units_of[cell] for other in units[k]} - {cell})) for cell in range(side * side))
    return Geometry(side, units, kinds, units_of, peers)


def side_of(board: Sequence[int]) -> int:
    """The side of a board. Raises ConfigError for a number of cells that is not 16 or 81."""
    side = {16: 4, 81: 9}.get(len(board))
    if side is None:
        raise ConfigError(f"a sudoku of {len(board)} cells; give 16 (4x4) or 81 (9x9)")
    return side


def blocker(board: Sequence[int], cell: int, value: int) -> int | None:
    """The first filled cell in reading order that keeps `value` out of `cell`, or None."""
    return next((peer for peer in geometry(side_of(board)).peers[cell] if board[peer] == value), None)


def values_for(board: Sequence[int], cell: int) -> list[int]:
    """Values that no filled peer of the cell has, ascending."""
    taken = {board[peer] for peer in geometry(side_of(board)).peers[cell]}
    return [value for value in range(1, side_of(board) + 1) if value not in taken]


def is_consistent(board: Sequence[int]) -> bool:
    """Whether no value stands twice in a unit."""
    return all(not value or blocker(board, cell, value) is None for cell, value in enumerate(board))


def solutions(board: Sequence[int], limit: int, order: Callable[[list[int]], Sequence[int]] | None = None) -> list[Board]:
    """Completed boards that agree with `board`, at most `limit` of them; none for a board that breaks the rules.

    The search fills the cell with the fewest values first. `order` arranges the values tried in a cell (for a random board).
    """
    if not is_consistent(board):
        return []
    search = _Search(list(board), order)
    return list(_first(search.run(), limit))


def has_one_solution(board: Sequence[int]) -> bool:
    """Whether exactly one completed board agrees with this one."""
    return len(solutions(board, 2)) == 1


class _Search:
    """Backtracking over bit masks of the values that each unit already has."""

    def __init__(self, cells: list[int], order: Callable[[list[int]], Sequence[int]] | None) -> None:
        self.cells, self.order = cells, order
        self.geometry = geometry(side_of(cells))
        self.full = (1 << (self.geometry.side + 1)) - 2
        self.used = [sum(1 << cells[cell] for cell in unit if cells[cell]) for unit in self.geometry.units]
        self.empty = [cell for cell, value in enumerate(cells) if not value]

    def run(self) -> Iterator[Board]:
        if not self.empty:
            yield tuple(self.cells)
            return
        place, free = self._narrowest()
        if not free:
            return
        cell = self.empty.pop(place)
        units = self.geometry.units_of[cell]
        values = [value for value in range(1, self.geometry.side + 1) if free >> value & 1]
        for value in values if self.order is None else self.order(values):
            self.cells[cell] = value
            for unit in units:
                self.used[unit] |= 1 << value
            yield from self.run()
            for unit in units:
                self.used[unit] &= ~(1 << value)
        self.cells[cell] = 0
        self.empty.insert(place, cell)

    def _narrowest(self) -> tuple[int, int]:
        """Place in `empty` of the cell with the fewest values, and those values as bits."""
        used, units_of, full = self.used, self.geometry.units_of, self.full
        best, best_free, fewest = 0, 0, self.geometry.side + 1
        for place, cell in enumerate(self.empty):
            row, column, box = units_of[cell]
            free = full & ~(used[row] | used[column] | used[box])
            count = free.bit_count()
            if count < fewest:
                best, best_free, fewest = place, free, count
                if count <= 1:
                    break
        return best, best_free


def _first(found: Iterator[Board], limit: int) -> Iterator[Board]:
    for _, board in zip(range(limit), found, strict=False):
        yield board


def forced_cells(board: Sequence[int]) -> list[Deduction]:
    """Empty cells that take one value only, in reading order."""
    found = []
    for cell, value in enumerate(board):
        if value:
            continue
        free = values_for(board, cell)
        if len(free) == 1:
            others = [other for other in range(1, side_of(board) + 1) if other != free[0]]
            because = tuple(_blocked(board, cell, other) for other in others)
            found.append(Deduction(cell, free[0], "cell", because))
    return found


def forced_places(board: Sequence[int]) -> list[Deduction]:
    """Values that have one place left in a row, column or box: rows first, then by value."""
    shape, found = geometry(side_of(board)), []
    for unit, kind in zip(shape.units, shape.kinds, strict=True):
        empty = [cell for cell in unit if not board[cell]]
        missing = set(range(1, shape.side + 1)) - {board[cell] for cell in unit}
        for value in sorted(missing):
            places = [cell for cell in empty if blocker(board, cell, value) is None]
            if len(places) == 1:
                others = tuple(cell for cell in empty if cell != places[0])
                because = tuple(_blocked(board, cell, value) for cell in others)
                found.append(Deduction(places[0], value, kind, because, others))
    return found


def _blocked(board: Sequence[int], cell: int, value: int) -> int:
    found = blocker(board, cell, value)
    if found is None:
        raise ConfigError(f"sudoku: nothing keeps {value} out of cell {cell}")
    return found
