"""Sudoku puzzles: drawn from a generator, each with exactly one solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ragen2.envs.sudoku_solver import Board, has_one_solution, solutions

CLUES = {4: (4, 15), 9: (24, 80)}
"""Fewest and most clues by side. Fewer than 17 never suffice for 9x9; below 24 digging rarely gets there."""

_BOARDS = 12
"""Full boards a draw digs into before it gives up."""


@dataclass(frozen=True)
class Puzzle:
    """The clues (0 for an empty cell) and the one board that completes them."""

    clues: Board
    solution: Board

    @property
    def text(self) -> str:
        return "".join(str(value) if value else "." for value in self.clues)


def draw_puzzle(side: int, clues: int, rng: np.random.Generator) -> Puzzle | None:
    """A puzzle with exactly `clues` clues and one solution; None when several full boards could not be dug that far."""
    for _ in range(_BOARDS):
        solution = full_board(side, rng)
        dug = _dig(solution, clues, rng)
        if dug is not None:
            return Puzzle(dug, solution)
    return None


def full_board(side: int, rng: np.random.Generator) -> Board:
    """A completed board. Every one can be drawn; not all equally often."""
    (board,) = solutions((0,) * (side * side), 1, order=lambda values: rng.permutation(values).tolist())
    return board


def relabelled(puzzle: Puzzle, wanted: Callable[[Puzzle], bool], rng: np.random.Generator, tries: int = 64) -> Puzzle | None:
    """The puzzle, values renamed at random until it is a wanted one: far cheaper than another puzzle. None after `tries`."""
    side = max(puzzle.solution)
    for _ in range(tries):
        name = [0, *(rng.permutation(side) + 1).tolist()]
        renamed = Puzzle(tuple(name[v] for v in puzzle.clues), tuple(name[v] for v in puzzle.solution))
        if wanted(renamed):
            return renamed
    return None


def _dig(solution: Board, clues: int, rng: np.random.Generator) -> Board | None:
    """Empty cells in random order, each only while the solution stays the only one."""
    board, left = list(solution), len(solution)
    for cell in rng.permutation(len(solution)).tolist():
        if left == clues:
            break
        board[cell] = 0
        if has_one_solution(board):
            left -= 1
        else:
            board[cell] = solution[cell]
    return tuple(board) if left == clues else None
