"""The board of 2048 and its rule: tiles slide to one side, and two equal ones that meet merge, each tile once a move."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ragen2.envs.grid import MOVES, Cell

Board = tuple[tuple[int, ...], ...]
"""Rows of tile values, 0 where a cell is empty."""

FOUR = 0.1
"""Chance that a new tile is a 4, else it is a 2."""


@lru_cache(maxsize=65536)
def slide(line: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A line after its tiles slid to its start, and the merged tiles in order. A tile made by a merge does not merge again."""
    kept: list[int] = []
    merged: list[int] = []
    whole = False
    for value in line:
        if not value:
            continue
        if kept and kept[-1] == value and not whole:
            kept[-1] = 2 * value
            merged.append(2 * value)
            whole = True
        else:
            kept.append(value)
            whole = False
    return tuple(kept) + (0,) * (len(line) - len(kept)), tuple(merged)


def shift(board: Board, move: str) -> tuple[Board, tuple[int, ...]]:
    """The board after a move ("Up", "Down", "Left", "Right"), before the new tile, and all merged tiles. Unchanged: illegal."""
    lines = board if move in ("Left", "Right") else tuple(zip(*board, strict=True))
    back = move in ("Right", "Down")
    results = [slide(line[::-1] if back else line) for line in lines]
    merged = tuple(value for _, found in results for value in found)
    moved = tuple(line[::-1] if back else line for line, _ in results)
    return (moved if move in ("Left", "Right") else tuple(zip(*moved, strict=True))), merged


def legal_moves(board: Board) -> list[str]:
    """Moves that change the board."""
    return [move for move in MOVES if shift(board, move)[0] != board]


def empty_cells(board: Board) -> list[Cell]:
    """Empty cells in reading order."""
    return [(row, col) for row, line in enumerate(board) for col, value in enumerate(line) if not value]


def with_tile(board: Board, cell: Cell, value: int) -> Board:
    """The board with one more tile."""
    row, col = cell
    line = board[row]
    return (*board[:row], (*line[:col], value, *line[col + 1 :]), *board[row + 1 :])


def add_tile(board: Board, rng: np.random.Generator) -> Board:
    """The board with a new 2, or 4 with chance FOUR, in a random empty cell."""
    empty = empty_cells(board)
    cell = empty[int(rng.integers(len(empty)))]
    return with_tile(board, cell, 4 if rng.random() < FOUR else 2)


def highest(board: Board) -> int:
    """The largest tile, 0 on an empty board."""
    return max(max(line) for line in board)


def opening_board(size: int, moves: int, rng: np.random.Generator) -> Board:
    """Two tiles on an empty board, then `moves` random legal moves with the tiles that follow them."""
    board: Board = ((0,) * size,) * size
    board = add_tile(add_tile(board, rng), rng)
    for _ in range(moves):
        legal = legal_moves(board)
        if not legal:
            break
        board = add_tile(shift(board, legal[int(rng.integers(len(legal)))])[0], rng)
    return board
