"""How Sudoku's demonstrations talk: which cells are empty, and for each chosen cell the filled cells that leave one value.

Every sentence is true of the board shown. Cells and values stand side by side, "b3=4", as in the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ragen2.envs.sudoku_solver import Deduction

_NAMED = 3
"""Empty cells that the opening names: the first in reading order."""

_OPEN = ("empty: {cells}.", "still empty {cells}.", "open cells {cells}.", "to fill: {cells}.")
_CELL = ("look at {cell}. it sees {seen}. so {cell}={value}.", "{cell} sees {seen}. only {value} is left, {cell}={value}.")
_UNIT = (
    "where is {value} in the {unit} of {cell}? {ruled_out}. so {cell}={value}.",
    "{unit} of {cell} needs {value}: {ruled_out}. so {cell}={value}.",
)
_LAST = ("{value} is the last of its {unit}, {cell}={value}.", "the {unit} of {cell} lacks only {value}, {cell}={value}.")
_RULED_OUT = "not {other}, {because}"
_SEARCH = ("no cell is forced. trying the rest, only {cell}={value} works out.", "nothing is forced. by search {cell}={value}.")
_GUESS = ("try {cell}={value}.", "maybe {cell}={value}.", "guess {cell}={value}.", "perhaps {cell}={value}.")

Name = Callable[[int], str]


def opening(board: Sequence[int], name: Name, rng: np.random.Generator) -> str:
    """The first empty cells of the board."""
    empty = [name(cell) for cell, value in enumerate(board) if not value]
    return _pick(_OPEN, rng).format(cells=" ".join(empty[:_NAMED]))


def tell_deduction(found: Deduction, board: Sequence[int], name: Name, rng: np.random.Generator) -> str:
    """Why the cell has that value: the filled cells that rule the other values, or the other places, out."""
    filled = [f"{name(cell)}={board[cell]}" for cell in found.because]
    words = {"cell": name(found.cell), "value": found.value, "unit": found.why}
    if found.why == "cell":
        return _pick(_CELL, rng).format(seen=" ".join(filled), **words)
    if not found.others:
        return _pick(_LAST, rng).format(**words)
    ruled_out = "; ".join(
        _RULED_OUT.format(other=name(other), because=because) for other, because in zip(found.others, filled, strict=True)
    )
    return _pick(_UNIT, rng).format(ruled_out=ruled_out, **words)


def tell_search(cell: int, value: int, name: Name, rng: np.random.Generator) -> str:
    """A value that only a search finds."""
    return _pick(_SEARCH, rng).format(cell=name(cell), value=value)


def tell_guess(cell: int, value: int, name: Name, rng: np.random.Generator) -> str:
    """A value that nothing was asked about."""
    return _pick(_GUESS, rng).format(cell=name(cell), value=value)


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
