"""Pictures of boards, drawn with numpy alone: coloured cells, discs, frames and short words in a tiny bitmap font."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragen2.envs.options import one_of

Colour = tuple[int, int, int]

RENDERS = ("rgb_array",)
"""Values of an environment's `render` option beside None."""

CELL = 32
"""Side of a cell in pixels."""

INK: Colour = (40, 44, 52)
PAPER: Colour = (246, 244, 238)
LINE: Colour = (206, 202, 192)

GLYPH_ROWS, GLYPH_COLS = 5, 3

_GLYPHS = {
    " ": "000000000000000", "0": "111101101101111", "1": "010110010010111", "2": "111001111100111", "3": "111001111001111",
    "4": "101101111001001", "5": "111100111001111", "6": "111100111101111", "7": "111001010010010", "8": "111101111101111",
    "9": "111101111001111", "A": "010101111101101", "B": "110101110101110", "C": "011100100100011", "D": "110101101101110",
    "E": "111100110100111", "F": "111100110100100", "G": "011100101101011", "H": "101101111101101", "I": "111010010010111",
    "J": "001001001101010", "K": "101101110101101", "L": "100100100100111", "M": "101111111101101", "N": "110101101101101",
    "O": "010101101101010", "P": "110101110100100", "Q": "010101101111011", "R": "110101110101101", "S": "011100010001110",
    "T": "111010010010010", "U": "101101101101111", "V": "101101101101010", "W": "101101111111101", "X": "101101010101101",
    "Y": "101101010010010", "Z": "111001010100111", "?": "110001010000010", "-": "000000111000000", "'": "010010000000000",
    ".": "000000000000010", "/": "001001010100100", "+": "000010111010000", "=": "000111000111000",
}  # fmt: skip
"""Five rows of three pixels, row by row. What has no glyph is drawn as a question mark."""


@dataclass(frozen=True)
class Tile:
    """How one kind of cell is drawn: its background, then a disc or a frame in `mark`, then a word in `ink`."""

    background: Colour = PAPER
    disc: Colour | None = None
    frame: Colour | None = None
    word: str = ""
    ink: Colour = INK


class Canvas:
    """A picture of `rows` x `cols` cells of `CELL` pixels; `image` is its (rows * CELL) x (cols * CELL) x 3 uint8 array."""

    def __init__(self, rows: int, cols: int, background: Colour = PAPER) -> None:
        self.image = np.empty((rows * CELL, cols * CELL, 3), dtype=np.uint8)
        self.image[:] = background

    def tile(self, row: int, col: int, tile: Tile) -> None:
        """Draw one cell with a thin line at its edge."""
        part = self._cell(row, col)
        part[:] = LINE
        part[1:-1, 1:-1] = tile.background
        if tile.frame is not None:
            inner = part[5:-5, 5:-5].copy()
            part[3:-3, 3:-3] = tile.frame
            part[5:-5, 5:-5] = inner
        if tile.disc is not None:
            part[_DISC] = tile.disc
        if tile.word:
            write(part, tile.word, tile.ink)

    def bar(self, row: int, col: int, side: str, colour: Colour = INK) -> None:
        """A thick line (a wall) along the "north", "south", "west" or "east" side of a cell."""
        part = self._cell(row, col)
        strip = {"north": part[:2], "south": part[-2:], "west": part[:, :2], "east": part[:, -2:]}[side]
        strip[:] = colour

    def _cell(self, row: int, col: int) -> np.ndarray:
        return self.image[row * CELL : (row + 1) * CELL, col * CELL : (col + 1) * CELL]


def write(part: np.ndarray, word: str, ink: Colour) -> None:
    """Write a word into the middle of an image (H x W x 3), as large as fits, at most 3 pixels a dot; what is too long is cut."""
    height, width = part.shape[:2]
    word = word.upper()[: (width - 2) // (GLYPH_COLS + 1)]
    across = len(word) * (GLYPH_COLS + 1) - 1
    if not word:
        return
    scale = max(1, min(3, (width - 4) // across, (height - 4) // GLYPH_ROWS))
    dots = np.kron(_dots(word), np.ones((scale, scale), dtype=bool))
    top, left = (height - dots.shape[0]) // 2, (width - dots.shape[1]) // 2
    part[top : top + dots.shape[0], left : left + dots.shape[1]][dots] = ink


def draw_symbols(lines: Sequence[Sequence[str]], tiles: Mapping[str, Tile]) -> np.ndarray:
    """A board of symbols as a picture, each symbol drawn as its tile. Raises KeyError for a symbol without one."""
    canvas = Canvas(len(lines), len(lines[0]))
    for row, line in enumerate(lines):
        for col, symbol in enumerate(line):
            canvas.tile(row, col, tiles[symbol])
    return canvas.image


def check_render(environment: str, render: object) -> str | None:
    """`render` itself: None or "rgb_array". Raises UnknownName for anything else."""
    return None if render is None else one_of(f"{environment} render", render, RENDERS)


def _dots(word: str) -> np.ndarray:
    glyphs = [
        np.array([bit == "1" for bit in _GLYPHS.get(letter, _GLYPHS["?"])]).reshape(GLYPH_ROWS, GLYPH_COLS) for letter in word
    ]
    space = np.zeros((GLYPH_ROWS, 1), dtype=bool)
    parts = [part for glyph in glyphs for part in (glyph, space)]
    return np.concatenate(parts[:-1], axis=1)


def _disc_mask() -> np.ndarray:
    rows, cols = np.mgrid[:CELL, :CELL] - (CELL - 1) / 2
    return rows**2 + cols**2 <= (0.34 * CELL) ** 2


_DISC = _disc_mask()
