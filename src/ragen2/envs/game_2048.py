"""2048: slide tiles over a board, merge equal ones, reach the target tile."""

from __future__ import annotations

import math

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.drawing import Tile, check_render, draw_symbols
from ragen2.envs.game_2048_board import Board, add_tile, empty_cells, highest, legal_moves, opening_board, shift
from ragen2.envs.game_2048_search import best_move
from ragen2.envs.game_2048_words import tell
from ragen2.envs.grid import MOVES, cell_name, parse_move, render_rows
from ragen2.envs.options import one_of, whole_number
from ragen2.envs.splits import draw_level, noise_rng
from ragen2.errors import ConfigError, EnvironmentFault

REWARDS = ("score", "progress")
REACHED = 1.0
"""Reward of the target tile beside what its move earns."""


class Game2048(TextEnv):
    """Reach the `target` tile. A move that changes nothing is illegal, costs nothing and brings no new tile.

    With `reward="score"` a move earns the tiles it makes divided by `target` (the game's own score, scaled); with "progress" it
    earns the growth of log2 of the largest tile divided by log2 of `target`, which sums to at most 1. The target adds 1 and
    ends the episode, as does a board on which nothing moves (no success). After `max_steps` answers, illegal ones included, the
    episode is truncated.

    The level seed draws the first board: two tiles, then `opening` random moves, so that levels are many (two tiles alone on a
    4x4 board make 480). New tiles come from the noise seed: 2, or 4 with chance 0.1, in a random empty cell. `size` is 3 to 5;
    `target` a power of two from 8 to 2 to the number of cells, 65536 at most. Raises ConfigError for a value that cannot be used.
    """

    moves = tuple(MOVES)

    def __init__(
        self,
        split: str = "train",
        size: int = 4,
        target: int = 2048,
        opening: int = 8,
        reward: str = "score",
        max_steps: int = 2000,
        render: str | None = None,
    ) -> None:
        super().__init__(split)
        self.size = whole_number("size", size, 3, 5)
        most = min(2 ** (self.size * self.size), 65536)
        self.target = whole_number("target", target, 8, most)
        if self.target & (self.target - 1):
            raise ConfigError(f"target is {target!r}; give a power of two from 8 to {most}")
        self.opening = whole_number("opening", opening, 0, 100)
        self.reward = one_of("2048 reward", reward, REWARDS)
        self.max_steps = whole_number("max_steps", max_steps, 1, 1_000_000)
        self.render = check_render("2048", render)
        self._start: Board | None = None
        self._board: Board = ()
        self._noise: np.random.Generator | None = None
        self._steps = 0
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        earns = "the tiles it makes" if self.reward == "score" else "growth of the largest tile"
        return "\n".join(
            [
                f"Play 2048 on {self.size} rows and {self.size} columns: make a tile of {self.target}.",
                "All tiles slide one way. Two equal tiles that meet merge into their sum, each tile once a move. _ is empty.",
                "Then a new 2, or rarely 4, appears in a random empty cell. A move that changes nothing is not allowed.",
                f"Actions: {', '.join(MOVES)}. A move earns {earns}, scaled; {self.target} gives {REACHED:g} more and ends it.",
            ]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        noise = noise_rng(noise_seed)
        board = draw_level(level_seed, self.split, self._generate, _content)
        self._start = self._board = board
        self._noise, self._steps, self._last = noise, 0, None
        return self._show()

    def step(self, action: str) -> StepResult:
        board, noise = self._current(), self._noise
        if self._last is not None:
            return self._last.again()
        assert noise is not None, "reset sets the board and the chance together"
        self._steps += 1
        move = parse_move(action)
        after, made = (board, ()) if move is None else shift(board, move)
        legal = after != board
        reached = highest(after) >= self.target
        reward = self._earned(board, after, made) + (REACHED if reached else 0.0)
        if legal:
            self._board = after if reached else add_tile(after, noise)
        terminated = reached or not legal_moves(self._board)
        truncated = not terminated and self._steps >= self.max_steps
        info = {"legal": legal, "merged": made, **({"success": reached} if terminated or truncated else {})}
        result = StepResult(self._show(), reward, terminated, truncated, info)
        self._last = result if result.done else None
        return result

    def content(self) -> str:
        if self._start is None:
            raise EnvironmentFault("2048 has no level yet; call reset(level_seed, noise_seed) first")
        return _content(self._start)

    @property
    def board(self) -> Board:
        """The present board. Raises EnvironmentFault before the first reset."""
        return self._current()

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """One move (the next board is not known): of an expectimax search, or a random legal one.

        Raises EnvironmentFault after the end.
        """
        board = self._current()
        whole_number("max_actions", max_actions, 1, 1000)
        if self._last is not None:
            raise EnvironmentFault("2048: no demonstration after the end of an episode; reset first")
        legal = legal_moves(board)
        expert = bool(rng.random() < expertise)
        move = (best_move(board) if expert else None) or legal[int(rng.integers(len(legal)))]
        other = [name for name in legal if name != move]
        spoken = [other[int(rng.integers(len(other)))], move] if other and expert else [move]
        top = highest(board)
        where = next(cell_name(r, c) for r, line in enumerate(board) for c, value in enumerate(line) if value == top)
        merges = [(name, shift(board, name)[1]) for name in spoken]
        return Demonstration(tell(top, where, len(empty_cells(board)), merges, move, expert, rng), (move,))

    def _earned(self, board: Board, after: Board, made: tuple[int, ...]) -> float:
        if self.reward == "score":
            return sum(made) / self.target
        return (math.log2(highest(after)) - math.log2(highest(board))) / math.log2(self.target)

    def _generate(self, rng: np.random.Generator) -> Board | None:
        board = opening_board(self.size, self.opening, rng)
        return board if legal_moves(board) and highest(board) < self.target else None

    def _current(self) -> Board:
        if self._start is None:
            raise EnvironmentFault("2048 has no level yet; call reset(level_seed, noise_seed) first")
        return self._board

    def _show(self) -> Observation:
        shown = [[str(value) if value else "_" for value in line] for line in self._board]
        wide = max(len(word) for line in shown for word in line)
        text = render_rows([[word.rjust(wide) for word in line] for line in shown])
        image = None if self.render is None else draw_symbols(shown, {word: _tile(word) for line in shown for word in line})
        return Observation(text, image)


def _content(board: Board) -> str:
    return "2048 " + "/".join(" ".join(str(value) for value in line) for line in board)


def _tile(word: str) -> Tile:
    """Lighter for small tiles, redder for large ones."""
    if word == "_":
        return Tile((205, 193, 180))
    share = min(math.log2(int(word)), 11.0) / 11.0
    colour = (238 - int(20 * share), 228 - int(140 * share), 218 - int(190 * share))
    return Tile(colour, word=word, ink=(119, 110, 101) if share < 0.25 else (249, 246, 242))
