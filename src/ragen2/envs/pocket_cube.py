"""The pocket cube: a 2x2x2 cube, scrambled so that it is an exact number of moves from solved."""

from __future__ import annotations

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.drawing import Canvas, Colour, Tile, check_render
from ragen2.envs.grid import clean_answer
from ragen2.envs.options import one_of, whole_number
from ragen2.envs.pocket_cube_moves import FACES, MOVES, ROTATIONS, do, is_solved, turn
from ragen2.envs.pocket_cube_table import FARTHEST, cube_at, good_moves, positions_at
from ragen2.envs.pocket_cube_words import tell
from ragen2.envs.splits import check_seed, draw_level
from ragen2.errors import EnvironmentFault

FORMATS = ("net", "faces")

STEP, SOLVED_REWARD = -0.01, 1.0
"""Reward of every answer, and of the move that solves the cube beside it."""

_BY_WORD = {name.casefold(): name for name in MOVES}
_PRIMES = str.maketrans({"\u2019": "'", "\u2032": "'", "\u2018": "'", "`": "'"})
_CORNERS = {"U": (0, 2), "L": (2, 0), "F": (2, 2), "R": (2, 4), "B": (2, 6), "D": (4, 2)}
"""Row and column of each face's first sticker in the net."""

_RGB: dict[str, Colour] = {
    "W": (250, 250, 250), "Y": (250, 215, 60), "O": (240, 140, 40), "R": (200, 45, 45), "G": (40, 150, 80), "B": (45, 90, 190),
}  # fmt: skip


class PocketCube(TextEnv):
    """Solve a 2x2x2 cube. Every answer costs 0.01; the move that solves it, however it is held, gives 1 and ends the episode.

    `scramble` is the exact number of moves from solved at the start (1 to 11, a half turn counting as one), drawn evenly from all
    such positions and all 24 ways to hold the cube. Levels are 24 times 9, 54, 321, 1847 … for 1, 2, 3, 4 …; the same position
    held another way is another level. An answer that is no move changes nothing, costs the same and counts towards `max_steps`,
    after which the episode is truncated. `format` is "net" (the flat net) or "faces" (a line a face). Raises ConfigError for a
    value that cannot be used.
    """

    def __init__(
        self,
        split: str = "train",
        scramble: int = 3,
        format: str = "net",
        max_steps: int = 50,
        render: str | None = None,
    ) -> None:
        super().__init__(split)
        self.scramble = whole_number("scramble", scramble, 1, FARTHEST)
        self.format = one_of("pocket-cube format", format, FORMATS)
        self.max_steps = whole_number("max_steps", max_steps, 1, 1_000_000)
        self.render = check_render("pocket-cube", render)
        self._start: str | None = None
        self._cube = ""
        self._steps = 0
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        colours = "colours W white, O orange, G green, R red, B blue, Y yellow"
        shown = (
            "a line each: left to right, top row first" if self.format == "faces" else "as a net: U on top, then L F R B, D below"
        )
        return "\n".join(
            [
                f"Solve a 2x2x2 cube: bring each face to one colour. It is {self.scramble} moves from solved at the start.",
                f"Faces U up, L left, F front, R right, B back, D down, shown {shown}; {colours}.",
                "Actions: a face letter turns that side clockwise, U' counter-clockwise, U2 by half a turn.",
                f"Reward {SOLVED_REWARD:g} when solved, {STEP:g} an action. At most {self.max_steps} actions.",
            ]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        self._start = self._cube = draw_level(level_seed, self.split, self._generate, _content)
        self._steps, self._last = 0, None
        return self._show()

    def step(self, action: str) -> StepResult:
        cube = self._current()
        if self._last is not None:
            return self._last.again()
        self._steps += 1
        move = parse_turn(action)
        if move is not None:
            self._cube = turn(cube, MOVES[move])
        solved = is_solved(self._cube)
        truncated = not solved and self._steps >= self.max_steps
        info = {"legal": move is not None, **({"success": solved} if solved or truncated else {})}
        result = StepResult(self._show(), STEP + (SOLVED_REWARD if solved else 0.0), solved, truncated, info)
        self._last = result if result.done else None
        return result

    def content(self) -> str:
        if self._start is None:
            raise EnvironmentFault("pocket-cube has no level yet; call reset(level_seed, noise_seed) first")
        return _content(self._start)

    @property
    def cube(self) -> str:
        """The present cube (see `pocket_cube_moves`). Raises EnvironmentFault before the first reset."""
        return self._current()

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The first moves of a shortest solution, or random moves. Raises EnvironmentFault after the end."""
        cube = self._current()
        whole_number("max_actions", max_actions, 1, 1000)
        if self._last is not None:
            raise EnvironmentFault("pocket-cube: no demonstration after the end of an episode; reset first")
        if rng.random() < expertise:
            plan = shortest_solution(cube, rng)
            chosen = plan[:max_actions]
            return Demonstration(tell(cube, plan, chosen, rng), tuple(chosen))
        chosen = []
        while len(chosen) < max_actions and not (chosen and is_solved(do(cube, chosen))):
            chosen.append(_pick(list(MOVES), rng))
        return Demonstration(tell(cube, None, chosen, rng), tuple(chosen))

    def _generate(self, rng: np.random.Generator) -> str:
        numbers = positions_at(self.scramble)
        upright = cube_at(int(numbers[int(rng.integers(len(numbers)))]), self.scramble)
        return turn(upright, ROTATIONS[int(rng.integers(len(ROTATIONS)))])

    def _current(self) -> str:
        if self._start is None:
            raise EnvironmentFault("pocket-cube has no level yet; call reset(level_seed, noise_seed) first")
        return self._cube

    def _show(self) -> Observation:
        text = _net_text(self._cube) if self.format == "net" else _faces_text(self._cube)
        return Observation(text, None if self.render is None else _picture(self._cube))


def parse_turn(action: str) -> str | None:
    """The move that an answer names ("U", "u", "R'", "F2"; typographic primes are read too), or None."""
    answer = clean_answer(action)
    return None if answer is None else _BY_WORD.get(answer.translate(_PRIMES))


def shortest_solution(cube: str, rng: np.random.Generator) -> list[str]:
    """Moves that solve a cube, as few as possible, drawn evenly from the good ones at each step; none for a solved cube."""
    moves: list[str] = []
    while good := good_moves(cube):
        moves.append(_pick(good, rng))
        cube = turn(cube, MOVES[moves[-1]])
    return moves


def _content(cube: str) -> str:
    return f"pocket-cube {cube}"


def _net_text(cube: str) -> str:
    rows = [["."] * 8 for _ in range(6)]
    for k, face in enumerate(FACES):
        top, left = _CORNERS[face]
        for place, colour in enumerate(cube[4 * k : 4 * k + 4]):
            rows[top + place // 2][left + place % 2] = colour
    return "\n".join(" ".join(row).rstrip(" .") for row in rows)


def _faces_text(cube: str) -> str:
    return "\n".join(f"{face} {' '.join(cube[4 * k : 4 * k + 4])}" for k, face in enumerate(FACES))


def _picture(cube: str) -> np.ndarray:
    canvas = Canvas(6, 8)
    for k, face in enumerate(FACES):
        top, left = _CORNERS[face]
        for place, colour in enumerate(cube[4 * k : 4 * k + 4]):
            canvas.tile(top + place // 2, left + place % 2, Tile(_RGB[colour]))
    return canvas.image


def _pick(options: list[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
