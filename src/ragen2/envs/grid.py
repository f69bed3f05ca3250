"""What grid worlds share: cell names, directions, the answer that names a direction, distances, and drawing a board.

A cell is named by one letter and one digit, so that a tokenizer can keep each name whole: the column a to j from the left, the
row 1 to 9 from the top, then 0 for a tenth row. "b3" is the second column of the third row.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Collection, Iterable, Sequence

Cell = tuple[int, int]
"""Row and column, counted from 0 at the top left."""

MAX_SIDE = 10
_COLUMNS = "abcdefghij"
_ROWS = "1234567890"

CELL_NAMES = tuple(column + row for row in _ROWS for column in _COLUMNS)
"""All names a cell can have (100)."""

MOVES: dict[str, Cell] = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
"""Action name to step (row, column)."""

SIDES: dict[str, tuple[str, str]] = {
    "Up": ("Left", "Right"),
    "Down": ("Left", "Right"),
    "Left": ("Up", "Down"),
    "Right": ("Up", "Down"),
}
"""The two directions perpendicular to a direction."""

MAX_ANSWER = 64
"""An answer with more characters is not read at all."""

_BY_WORD = {name.casefold(): name for name in MOVES}


def cell_name(row: int, col: int) -> str:
    """Name of a cell, as "b3". Raises IndexError outside the 10 x 10 cells that have names."""
    if not (0 <= row < MAX_SIDE and 0 <= col < MAX_SIDE):
        raise IndexError(f"cell row {row} column {col} is outside {MAX_SIDE} x {MAX_SIDE}")
    return _COLUMNS[col] + _ROWS[row]


def clean_answer(text: str) -> str | None:
    """The answer normalised (NFKC), stripped and case-folded; None when it is longer than MAX_ANSWER characters."""
    if len(text) > MAX_ANSWER:
        return None
    return unicodedata.normalize("NFKC", text).strip(" \t\r\n").casefold()


def parse_move(text: str) -> str | None:
    """The direction ("Up", "Down", "Left", "Right") that an answer names, or None. "Up." names none."""
    answer = clean_answer(text)
    return None if answer is None else _BY_WORD.get(answer)


def ahead(cell: Cell, move: str) -> Cell:
    """The cell one step from `cell` in a direction, walls ignored."""
    step = MOVES[move]
    return cell[0] + step[0], cell[1] + step[1]


def towards(start: Cell, target: Cell) -> list[str]:
    """Lower-case words for where `target` lies seen from `start`: sideways first, empty when they are the same cell."""
    words = []
    if start[1] != target[1]:
        words.append("right" if target[1] > start[1] else "left")
    if start[0] != target[0]:
        words.append("down" if target[0] > start[0] else "up")
    return words


def distances_to(target: Cell, free: Collection[Cell]) -> dict[Cell, int]:
    """Steps to `target` from every cell that reaches it over `free` cells (breadth first, slipping ignored)."""
    found = {target: 0}
    queue = deque([target])
    while queue:
        cell = queue.popleft()
        steps = found[cell] + 1
        for row_step, col_step in MOVES.values():
            near = (cell[0] + row_step, cell[1] + col_step)
            if near in free and near not in found:
                found[near] = steps
                queue.append(near)
    return found


def render_rows(symbols: Iterable[Sequence[str]]) -> str:
    """A board as text: one line a row, symbols separated by one space (so that each stays a token of its own)."""
    return "\n".join(" ".join(row) for row in symbols)
