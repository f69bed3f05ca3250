"""Sokoban levels: drawn by playing backwards from a solved room, or read from a file of levels that people made (XSB)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragen2.envs.grid import MAX_SIDE
from ragen2.envs.sokoban_room import SYMBOLS, Level, level_from_lines, on_border
from ragen2.envs.sokoban_solver import cells_of, flood, mask_of, shift, shortest_at_least, solution_length
from ragen2.errors import ConfigError, StorageError

TRIES = 10
"""Rooms drawn before one draw gives up."""

MAX_FILE_BYTES = 4_000_000

MAX_FILE_SIDE = 100
"""Most rows and columns of a level in a file."""

_XSB_SYMBOLS = frozenset("#@+$*. _-")
_XSB_NAMES = {"#": "wall", "@": "player", "+": "player on target", "$": "box", "*": "box on target", ".": "target"}


@dataclass(frozen=True)
class LevelShape:
    """What a drawn level must look like. `rows` and `cols` count the outer walls; lengths are in moves."""

    rows: int
    cols: int
    boxes: int
    min_solution: int = 2
    max_solution: int | None = None

    def __post_init__(self) -> None:
        for name, side in (("rows", self.rows), ("cols", self.cols)):
            if not 3 <= side <= MAX_SIDE + 2:
                raise ConfigError(f"Sokoban {name} is {side}, outer walls included: allowed are 3 to {MAX_SIDE + 2}")
        inside = (self.rows - 2) * (self.cols - 2)
        if self.boxes < 1 or 2 * self.boxes + 1 > inside:
            raise ConfigError(
                f"Sokoban with {self.boxes} boxes in a {self.rows}x{self.cols} room, which has {inside} cells inside its walls: "
                "needs at least 1 box and a cell for every box, every target and the player. Enlarge the room or use fewer boxes."
            )
        if self.min_solution < 1 or (self.max_solution is not None and self.max_solution < self.min_solution):
            raise ConfigError(
                f"Sokoban min_solution is {self.min_solution} and max_solution {self.max_solution} moves: "
                "min_solution must be at least 1 and max_solution not below it"
            )


def generate_level(rng: np.random.Generator, shape: LevelShape) -> Level | None:
    """A random solvable level in which no box starts on a target; None when TRIES rooms gave none of this shape."""
    for _ in range(TRIES):
        level = _play_backwards(rng, shape)
        if level is not None and _long_enough(level, shape):
            return level
    return None


def _long_enough(level: Level, shape: LevelShape) -> bool:
    if not shortest_at_least(level, shape.min_solution):
        return False
    if shape.max_solution is None:
        return True
    length = solution_length(level)
    return length is not None and length <= shape.max_solution


def _play_backwards(rng: np.random.Generator, shape: LevelShape) -> Level | None:
    """Boxes are put on the targets and pulled about at random, so the level that results can be solved by pushing back."""
    offsets = (-shape.cols, shape.cols, -1, 1)
    floor = _random_floor(rng, shape, offsets)
    cells = list(cells_of(floor))
    if len(cells) < 2 * shape.boxes + 1:
        return None
    spots = [cells[index] for index in rng.permutation(len(cells))[: shape.boxes + 1]]
    player, targets = spots[0], mask_of(spots[1:])
    boxes = targets
    least = int(rng.integers(1, shape.boxes * (shape.rows + shape.cols)))
    last = (-1, 0)
    reach = flood(player, floor & ~boxes, offsets)
    for pulled in range(4 * least + 20):
        if pulled >= least and not boxes & targets:
            break
        pulls = _pulls(boxes, reach, floor & ~boxes, offsets)
        if not pulls:
            break
        box, offset = last if last in pulls and rng.random() < 0.5 else pulls[int(rng.integers(len(pulls)))]
        boxes ^= (1 << box) | (1 << (box + offset))
        reach = flood(box + 2 * offset, floor & ~boxes, offsets)
        last = (box + offset, offset)
    if boxes & targets:
        return None
    standing = list(cells_of(reach))
    walls = frozenset(cell for cell in range(shape.rows * shape.cols) if not floor >> cell & 1)
    start = standing[int(rng.integers(len(standing)))]
    return Level(shape.rows, shape.cols, walls, frozenset(cells_of(targets)), frozenset(cells_of(boxes)), start)


def _random_floor(rng: np.random.Generator, shape: LevelShape, offsets: tuple[int, int, int, int]) -> int:
    """Mask of the floor: the inside minus some random walls, the largest connected part of what is left."""
    inside = [cell for cell in range(shape.rows * shape.cols) if not on_border(cell, shape.rows, shape.cols)]
    walls = int(rng.integers(0, len(inside) // 4 + 1))
    free = mask_of(inside[index] for index in rng.permutation(len(inside))[walls:])
    largest = 0
    while free:
        part = flood((free & -free).bit_length() - 1, free, offsets)
        if part.bit_count() > largest.bit_count():
            largest = part
        free &= ~part
    return largest


def _pulls(boxes: int, reach: int, free: int, offsets: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    """Every pull open to a player who can stand anywhere in `reach`: (the box's cell, the offset it moves by)."""
    return [
        (box, offset)
        for offset in offsets
        for box in cells_of(boxes & shift(reach, -offset) & shift(shift(free, -offset), -offset))
    ]


def read_levels(path: str | Path) -> list[Level]:
    """The levels of an XSB file, in order.

    Raises StorageError for a file that cannot be read, and ConfigError for a broken level or where there is none.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"cannot read Sokoban levels from {path}: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise StorageError(f"{path} has more than {MAX_FILE_BYTES} bytes: give a smaller file of Sokoban levels")
    levels = parse_levels(text)
    if not levels:
        raise ConfigError(f"{path} holds no Sokoban level: rooms are written with # @ + $ * . and spaces, one blank line between")
    return levels


def parse_levels(text: str) -> list[Level]:
    """Levels written in XSB: runs of lines of `# @ + $ * .` and floor (space, - or _) with a wall in them; others are ignored.

    Raises ConfigError naming the number of a level that is open, unbalanced or without exactly one player.
    """
    levels: list[Level] = []
    room: list[str] = []
    for line in [*text.expandtabs().splitlines(), ""]:
        if "#" in line and _XSB_SYMBOLS.issuperset(line):
            room.append(line.rstrip())
        elif room:
            try:
                levels.append(_from_xsb(room))
            except ConfigError as error:
                raise ConfigError(f"Sokoban level {len(levels) + 1} of the file: {error}") from error
            room = []
    return levels


def _from_xsb(lines: list[str]) -> Level:
    indent = min(len(line) - len(line.lstrip(" -_")) for line in lines)
    width = max(len(line) for line in lines) - indent
    if len(lines) > MAX_FILE_SIDE or width > MAX_FILE_SIDE:
        raise ConfigError(f"a room of {len(lines)} rows and {width} columns is too large: at most {MAX_FILE_SIDE} of each")
    names = [[_XSB_NAMES.get(symbol, "floor") for symbol in line[indent:].ljust(width)] for line in lines]
    starts = [(row, col) for row, line in enumerate(names) for col, name in enumerate(line) if name.startswith("player")]
    if len(starts) != 1:
        raise ConfigError(f"a Sokoban room needs exactly one player, this one has {len(starts)}")
    inside = _enclosed(names, starts[0])
    for row, line in enumerate(names):
        for col, name in enumerate(line):
            if (row, col) not in inside:
                if name in ("box", "target"):
                    raise ConfigError(f"the {name} in row {row + 1}, column {col + 1} is outside the room of the player")
                line[col] = "wall"
    return level_from_lines(["".join(SYMBOLS[name] for name in line) for line in names])


def _enclosed(names: list[list[str]], start: tuple[int, int]) -> set[tuple[int, int]]:
    """Cells that connect to the player, boxes being passable. Raises ConfigError when they lead out of the room."""
    found = {start}
    frontier = [start]
    for row, col in frontier:
        for near in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
            if not (0 <= near[0] < len(names) and 0 <= near[1] < len(names[0])):
                raise ConfigError(f"the room is open in row {row + 1}, column {col + 1}: close it with walls")
            if near not in found and names[near[0]][near[1]] != "wall":
                found.add(near)
                frontier.append(near)
    return found
