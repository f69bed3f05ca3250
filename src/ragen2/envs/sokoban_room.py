"""A Sokoban position and the rule of one move. Cells are numbered row * cols + col."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ragen2.errors import ConfigError

DIRECTIONS = ("Up", "Down", "Left", "Right")

SYMBOLS = {"wall": "#", "floor": "_", "target": "O", "box": "X", "player": "P", "box on target": "*", "player on target": "+"}
"""ASCII symbols of a cell in observations."""


@dataclass(frozen=True)
class Level:
    """One position: `walls`, `targets` and `boxes` are sets of cells, `player` a cell. The border is always wall."""

    rows: int
    cols: int
    walls: frozenset[int]
    targets: frozenset[int]
    boxes: frozenset[int]
    player: int

    @property
    def solved(self) -> bool:
        """Whether every box stands on a target."""
        return self.boxes <= self.targets

    @property
    def inner_walls(self) -> list[int]:
        """Wall cells that are not on the border, in order."""
        return [cell for cell in sorted(self.walls) if not on_border(cell, self.rows, self.cols)]

    def offset(self, direction: str) -> int:
        """What one move in `direction` adds to a cell's number."""
        return {"Up": -self.cols, "Down": self.cols, "Left": -1, "Right": 1}[direction]

    def position(self, cell: int) -> tuple[int, int]:
        """Row and column of a cell, from 0."""
        return divmod(cell, self.cols)

    def symbol(self, cell: int) -> str:
        """The character that shows a cell."""
        if cell in self.walls:
            return SYMBOLS["wall"]
        target = cell in self.targets
        if cell in self.boxes:
            return SYMBOLS["box on target" if target else "box"]
        if cell == self.player:
            return SYMBOLS["player on target" if target else "player"]
        return SYMBOLS["target" if target else "floor"]

    def lines(self) -> list[str]:
        """The room as one string a row."""
        return ["".join(self.symbol(row * self.cols + col) for col in range(self.cols)) for row in range(self.rows)]


def on_border(cell: int, rows: int, cols: int) -> bool:
    """Whether a cell is on the outermost ring of the room."""
    row, col = divmod(cell, cols)
    return row in (0, rows - 1) or col in (0, cols - 1)


def move(level: Level, direction: str) -> Level:
    """The position after one move; the same object when a wall or a box that cannot move is in the way."""
    offset = level.offset(direction)
    to = level.player + offset
    if to in level.walls:
        return level
    if to not in level.boxes:
        return replace(level, player=to)
    beyond = to + offset
    if beyond in level.walls or beyond in level.boxes:
        return level
    return replace(level, player=to, boxes=level.boxes - {to} | {beyond})


def replay(level: Level, moves: Iterable[str]) -> Level:
    """The position after a list of moves."""
    for direction in moves:
        level = move(level, direction)
    return level


def level_from_lines(lines: Iterable[str]) -> Level:
    """The inverse of `Level.lines`. Raises ConfigError for unknown symbols, ragged rows or a border that is open."""
    rows = list(lines)
    names = {symbol: name for name, symbol in SYMBOLS.items()}
    cells: dict[str, set[int]] = {name: set() for name in SYMBOLS}
    cols = len(rows[0]) if rows else 0
    for row, line in enumerate(rows):
        if len(line) != cols:
            raise ConfigError(f"row {row} of a Sokoban room has {len(line)} cells, the first row {cols}: make the rows equal")
        for col, symbol in enumerate(line):
            if symbol not in names:
                raise ConfigError(f"{symbol!r} is no Sokoban symbol; known: {' '.join(names)}")
            cells[names[symbol]].add(row * cols + col)
    players = cells["player"] | cells["player on target"]
    if len(players) != 1:
        raise ConfigError(f"a Sokoban room needs exactly one player, this one has {len(players)}")
    level = Level(
        rows=len(rows),
        cols=cols,
        walls=frozenset(cells["wall"]),
        targets=frozenset(cells["target"] | cells["box on target"] | cells["player on target"]),
        boxes=frozenset(cells["box"] | cells["box on target"]),
        player=players.pop(),
    )
    _check(level)
    return level


def _check(level: Level) -> None:
    for cell in range(level.rows * level.cols):
        if on_border(cell, level.rows, level.cols) and cell not in level.walls:
            raise ConfigError(
                f"row {cell // level.cols}, column {cell % level.cols} of a Sokoban room's border is open: put a wall"
            )
    if not level.boxes or len(level.boxes) != len(level.targets):
        raise ConfigError(
            f"a Sokoban room has {len(level.boxes)} boxes and {len(level.targets)} targets: make them equal, at least 1"
        )
