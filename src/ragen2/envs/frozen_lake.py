"""FrozenLake: walk over slippery ice from a random start to a random goal, around the holes (RAGEN-2, arXiv 2604.06268)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.drawing import Tile, check_render, draw_symbols
from ragen2.envs.frozen_lake_words import Stride, tell
from ragen2.envs.grid import MAX_SIDE, MOVES, SIDES, Cell, ahead, cell_name, distances_to, parse_move, render_rows
from ragen2.envs.options import number, one_of, whole_number
from ragen2.envs.splits import draw_level, noise_rng
from ragen2.errors import ConfigError, EnvironmentFault

FORMATS = ("grid+coord", "grid", "coord")

_ICE = (214, 234, 246)
_TILES = {
    "_": Tile(_ICE),
    "O": Tile(_ICE, disc=(28, 60, 110)),
    "G": Tile(_ICE, disc=(60, 160, 90), word="G", ink=(255, 255, 255)),
    "P": Tile(_ICE, disc=(220, 110, 40), word="P", ink=(255, 255, 255)),
    "X": Tile(_ICE, disc=(28, 60, 110), word="X", ink=(240, 90, 80)),
    "V": Tile(_ICE, disc=(60, 160, 90), frame=(220, 110, 40), word="V", ink=(255, 255, 255)),
}


@dataclass(frozen=True)
class Lake:
    """One level. `distance` holds the steps to the goal from every cell that reaches it around the holes."""

    rows: int
    cols: int
    start: Cell
    goal: Cell
    holes: frozenset[Cell]
    distance: dict[Cell, int] = field(compare=False, repr=False)

    def inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.rows and 0 <= cell[1] < self.cols

    def after(self, cell: Cell, move: str) -> Cell:
        """Where a move that does not slip leads; a wall leaves the cell."""
        target = ahead(cell, move)
        return target if self.inside(target) else cell

    @property
    def text(self) -> str:
        """Canonical form: S start, G goal, H hole, F frozen, rows joined by "/"."""
        letters = [["H" if (row, col) in self.holes else "F" for col in range(self.cols)] for row in range(self.rows)]
        letters[self.start[0]][self.start[1]] = "S"
        letters[self.goal[0]][self.goal[1]] = "G"
        return "/".join("".join(row) for row in letters)


def build_lake(rows: int, cols: int, start: Cell, goal: Cell, holes: frozenset[Cell]) -> Lake | None:
    """The level, or None when its goal cannot be reached around the holes."""
    free = {(row, col) for row in range(rows) for col in range(cols)} - holes
    distance = distances_to(goal, free)
    return Lake(rows, cols, start, goal, holes, distance) if start in distance else None


def read_board(board: Sequence[str]) -> Lake:
    """The level that rows of S, F, H and G describe. Raises ConfigError naming what is wrong with them."""
    if isinstance(board, str) or not board or not all(isinstance(row, str) for row in board):
        raise ConfigError(f"board is {board!r}; give a list of rows, for example ['SFFF', 'FHFH', 'FFFH', 'HFFG']")
    if len({len(row) for row in board}) != 1 or not 1 <= len(board[0]) <= MAX_SIDE or len(board) > MAX_SIDE:
        sizes = [len(row) for row in board]
        raise ConfigError(f"board has rows of {sizes} cells; all rows need the same length, at most {MAX_SIDE} x {MAX_SIDE}")
    cells: dict[str, list[Cell]] = {letter: [] for letter in "SFHG"}
    for row, letters in enumerate(board):
        for col, letter in enumerate(letters):
            if letter not in cells:
                raise ConfigError(f"board has {letter!r} at {cell_name(row, col)}; allowed: S start, F frozen, H hole, G goal")
            cells[letter].append((row, col))
    if len(cells["S"]) != 1 or len(cells["G"]) != 1:
        raise ConfigError(f"board has {len(cells['S'])} S and {len(cells['G'])} G; it needs exactly one start and one goal")
    lake = build_lake(len(board), len(board[0]), cells["S"][0], cells["G"][0], frozenset(cells["H"]))
    if lake is None:
        raise ConfigError(f"board {list(board)!r} has a goal that cannot be reached around the holes; open a way")
    return lake


class FrozenLake(TextEnv):
    """Reach the goal over ice. Reward 1.0 at the goal, else 0.0; the goal and a hole end the episode.

    A move goes where it is meant to with probability 1 - slip; the rest is split evenly over its two sides (never backwards),
    drawn from the noise seed alone. A move into a wall is legal and stays. An answer that is not exactly one direction changes
    nothing.

    `size` is the side of the square lake (2 to 10 cells), `p_frozen` the probability that a cell other than start and goal is
    ice, `min_distance` the least number of moves between them on a lake without holes. A `board` (rows of S, F, H, G) fixes the
    level for every seed and split, and replaces those three. `format` is "grid+coord", "grid" or "coord"; with
    `render="rgb_array"` observations carry a picture too. Raises ConfigError for a value that cannot be used.
    """

    moves = tuple(MOVES)

    def __init__(
        self,
        split: str = "train",
        size: int = 4,
        p_frozen: float = 0.9,
        slip: float = 0.02,
        format: str = "grid+coord",
        min_distance: int = 1,
        board: Sequence[str] | None = None,
        render: str | None = None,
    ) -> None:
        super().__init__(split)
        self.size = whole_number("size", size, 2, MAX_SIDE)
        self.p_frozen = number("p_frozen", p_frozen, 0.0, 1.0)
        self.slip = number("slip", slip, 0.0, 1.0)
        self.format = one_of("frozen-lake format", format, FORMATS)
        self.min_distance = whole_number("min_distance", min_distance, 1, 2 * (self.size - 1))
        self.render = check_render("frozen-lake", render)
        self._fixed = None if board is None else read_board(board)
        self.split_by_content = self._fixed is None
        self._ends = _ends(self.size, self.min_distance)
        self._lake: Lake | None = self._fixed
        self._at: Cell = (0, 0)
        self._noise: np.random.Generator | None = None
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        rows, cols = (self.size, self.size) if self._fixed is None else (self._fixed.rows, self._fixed.cols)
        lines = [f"Walk over a frozen lake of {rows} rows and {cols} columns from the player to the goal."]
        if self.format != "coord":
            lines.append("Symbols: P player, G goal, O hole, _ ice, X player in a hole, V player on the goal.")
        if self.format != "grid":
            tenth = " The tenth row is 0." if rows == MAX_SIDE else ""
            lines.append(f"A cell is a column letter and a row digit; a1 is the top left, b1 right of it.{tenth}")
        slips = f"With chance {self.slip:g} a move slips to one of its two sides." if self.slip else "Moves never slip."
        lines.append(f"Actions: {', '.join(MOVES)}. {slips}")
        lines.append("Reward 1 at the goal, else 0. The goal or a hole ends the walk.")
        return "\n".join(lines)

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        noise = noise_rng(noise_seed)
        self._lake = self._fixed or draw_level(level_seed, self.split, self._generate, _content)
        self._at, self._noise, self._last = self._lake.start, noise, None
        return self._show(self._lake)

    def step(self, action: str) -> StepResult:
        lake, noise = self._lake, self._noise
        if lake is None or noise is None:
            raise EnvironmentFault("frozen-lake: step before reset; call reset(level_seed, noise_seed) first")
        if self._last is not None:
            return self._last.again()
        intended = parse_move(action)
        if intended is None:
            return StepResult(self._show(lake), 0.0, False, False, {"legal": False})
        done_move = slipped_move(intended, self.slip, noise)
        before, self._at = self._at, lake.after(self._at, done_move)
        info = {"legal": True, "moved": self._at != before, "slipped": done_move != intended}
        success, ended = self._at == lake.goal, self._at == lake.goal or self._at in lake.holes
        if ended:
            info["success"] = success
        result = StepResult(self._show(lake), float(success), ended, False, info)
        self._last = result if ended else None
        return result

    def content(self) -> str:
        return _content(self._current())

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The first moves of a shortest way around the holes, or random directions, and short reasoning that names cells.

        Slipping is not planned for. Random moves stop where they would end the episode. Raises EnvironmentFault after the end.
        """
        lake = self._current()
        if self._last is not None:
            raise EnvironmentFault("frozen-lake: no demonstration after the end of an episode; reset first")
        whole_number("max_actions", max_actions, 1, 1000)
        expert = bool(rng.random() < expertise)
        strides: list[Stride] = []
        at = self._at
        while len(strides) < max_actions and at != lake.goal and at not in lake.holes:
            move = _pick(self._good_moves(lake, at) if expert else list(MOVES), rng)
            to = lake.after(at, move)
            strides.append(Stride(move, to, "goal" if to == lake.goal else "hole" if to in lake.holes else _kept(at, to)))
            at = to
        reasoning = tell(self._at, lake.goal, lake.holes, strides, expert, rng)
        return Demonstration(reasoning, tuple(stride.move for stride in strides))

    def _generate(self, rng: np.random.Generator) -> Lake | None:
        start, goal = self._ends[int(rng.integers(len(self._ends)))]
        draws = rng.random(self.size * self.size).tolist()
        melted = {divmod(index, self.size) for index, draw in enumerate(draws) if draw >= self.p_frozen}
        return build_lake(self.size, self.size, start, goal, frozenset(melted - {start, goal}))

    def _current(self) -> Lake:
        if self._lake is None:
            raise EnvironmentFault("frozen-lake has no level yet; call reset(level_seed, noise_seed) first")
        return self._lake

    @staticmethod
    def _good_moves(lake: Lake, at: Cell) -> list[str]:
        return [move for move in MOVES if lake.distance.get(ahead(at, move), MAX_SIDE**2) < lake.distance[at]]

    def _show(self, lake: Lake) -> Observation:
        image = None if self.render is None else draw_symbols(self._symbols(lake), _TILES)
        return Observation(self._text(lake), image)

    def _symbols(self, lake: Lake) -> list[list[str]]:
        symbols = [["O" if (row, col) in lake.holes else "_" for col in range(lake.cols)] for row in range(lake.rows)]
        symbols[lake.goal[0]][lake.goal[1]] = "G"
        symbols[self._at[0]][self._at[1]] = "V" if self._at == lake.goal else "X" if self._at in lake.holes else "P"
        return symbols

    def _text(self, lake: Lake) -> str:
        lines: list[str] = []
        if self.format != "coord":
            lines.append(render_rows(self._symbols(lake)))
        if self.format != "grid":
            lines.append("holes " + (" ".join(cell_name(*cell) for cell in sorted(lake.holes)) or "none"))
            lines.append(f"player {cell_name(*self._at)} goal {cell_name(*lake.goal)}")
        return "\n".join(lines)


def slipped_move(intended: str, slip: float, noise: np.random.Generator) -> str:
    """The move that happens: the intended one with probability 1 - slip, else either side with slip / 2 each."""
    draw = noise.random()
    if draw >= slip:
        return intended
    return SIDES[intended][0] if draw < slip / 2 else SIDES[intended][1]


def _content(lake: Lake) -> str:
    return f"frozen-lake {lake.text}"


def _ends(size: int, min_distance: int) -> list[tuple[Cell, Cell]]:
    """All pairs of start and goal at least `min_distance` moves apart."""
    cells = [(row, col) for row in range(size) for col in range(size)]
    return [(s, g) for s in cells for g in cells if abs(s[0] - g[0]) + abs(s[1] - g[1]) >= min_distance]


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]


def _kept(before: Cell, after: Cell) -> str:
    return "wall" if before == after else "ice"
