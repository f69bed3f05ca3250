"""A player of 2048: expectimax over its next two moves with a simple value of a board."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from ragen2.envs.game_2048_board import FOUR, Board, empty_cells, legal_moves, shift, with_tile

CELLS_TRIED = 4
"""Cells of a new tile that are looked at after a move: evenly spread over the empty ones, so that a move costs a bounded time."""

_EMPTY, _ORDER, _EDGE = 3.0, 1.0, 1.0


def best_move(board: Board, depth: int = 2) -> str | None:
    """The legal move with the highest expected value `depth` moves ahead; the first of equals. None when nothing moves."""
    scored = [(_after(shift(board, move)[0], depth - 1), move) for move in legal_moves(board)]
    return max(scored, key=lambda pair: pair[0])[1] if scored else None


def _after(board: Board, depth: int) -> float:
    """Expected value of a board that waits for its new tile."""
    if depth == 0:
        return value_of(board)
    empty = empty_cells(board)
    step = -(-len(empty) // CELLS_TRIED)
    tried = empty[::step]
    total = 0.0
    for cell in tried:
        total += (1 - FOUR) * _best(with_tile(board, cell, 2), depth)
        total += FOUR * _best(with_tile(board, cell, 4), depth)
    return total / len(tried)


def _best(board: Board, depth: int) -> float:
    return max((_after(shift(board, move)[0], depth - 1) for move in legal_moves(board)), default=-1000.0)


def value_of(board: Board) -> float:
    """Worth of a board: empty cells, lines in order of size, and the largest tiles at the edge."""
    columns = tuple(zip(*board, strict=True))
    return sum(_line(line) for line in board) + sum(_line(line) for line in columns)


@lru_cache(maxsize=65536)
def _line(line: tuple[int, ...]) -> float:
    sizes = [value.bit_length() for value in line]
    steps = [b - a for a, b in pairwise(sizes)]
    out_of_order = min(sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0))
    top = max(sizes)
    at_edge = top if top in (sizes[0], sizes[-1]) else 0
    return _EMPTY * line.count(0) - _ORDER * out_of_order**1.5 + _EDGE * at_edge * 0.5
