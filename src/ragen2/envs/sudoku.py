"""Sudoku, 4x4 and 9x9: fill one cell at a time. Every puzzle has exactly one solution."""

from __future__ import annotations

import re

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.grid import cell_name, render_rows
from ragen2.envs.options import one_of, whole_number
from ragen2.envs.splits import SPLITS, check_seed, draw_level, split_of
from ragen2.envs.sudoku_levels import CLUES, Puzzle, draw_puzzle, relabelled
from ragen2.envs.sudoku_solver import SIDES, blocker, forced_cells, forced_places, values_for
from ragen2.envs.sudoku_words import opening, tell_deduction, tell_guess, tell_search
from ragen2.errors import ConfigError, EnvironmentFault

RIGHT, WRONG, SOLVED = 0.1, -0.1, 1.0
"""Rewards: a right value, anything else, and on top of the last right value the solved board."""

FORMATS = ("grid", "cells")
DEFAULT_CLUES = {4: 8, 9: 40}

MAX_ANSWER = 32
_PLACE = re.compile(r"([a-i])([1-9]) ?= ?([1-9])", re.ASCII)


class Sudoku(TextEnv):
    """Place values one by one: "b3=4" puts 4 into column b, row 3.

    A right value stays and pays 0.1; the last one pays 1 more and ends the episode with success. Everything else costs 0.1 and
    leaves the board as it was: an answer that is no placement, a filled cell, a value that a filled cell of the same row, column
    or box has (these three are not legal), and a value that breaks no rule yet but is not the solution's. A cell once filled
    stays filled, so no reward can be earned twice: an episode pays at most 1 + 0.1 x empty cells. Every action counts, whatever
    it is; after `max_steps` of them (default twice the number of empty cells) the episode is cut off without success.

    `side` is 4 or 9, `clues` the number of given cells (default 8 and 40): fewer is harder. `format` is "grid" (a board with
    letters and numbers at its edges) or "cells" (every cell with its name). Raises ConfigError for a value that cannot be used.
    """

    multi_action = True

    def __init__(
        self, split: str = "train", side: int = 4, clues: int | None = None, max_steps: int | None = None, format: str = "grid"
    ) -> None:
        super().__init__(split)
        if isinstance(side, bool) or side not in SIDES:
            raise ConfigError(f"sudoku side is {side!r}; give 4 or 9")
        self.side = int(side)
        fewest, most = CLUES[self.side]
        self.clues = whole_number("clues", DEFAULT_CLUES[self.side] if clues is None else clues, fewest, most)
        empty = self.side**2 - self.clues
        self.max_steps = whole_number("max_steps", 2 * empty if max_steps is None else max_steps, 1, 10_000)
        self.format = one_of("sudoku format", format, FORMATS)
        self._puzzle: Puzzle | None = None
        self._board: list[int] = []
        self._steps = 0
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        box = {4: "2x2", 9: "3x3"}[self.side]
        return "\n".join(
            [
                f"Fill the {self.side}x{self.side} Sudoku: every row, column and {box} box holds 1 to {self.side} once each.",
                f"Columns are a to {'abcdefghi'[self.side - 1]} from the left, rows 1 to {self.side} from the top. _ is empty.",
                "An action fills one cell: b3=4 puts 4 into column b, row 3.",
                f"Reward {RIGHT} for a right value, {WRONG} for anything else, 1 more for the solved board. "
                f"At most {self.max_steps} actions.",
            ]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        self._puzzle = draw_level(level_seed, self.split, self._generate, self._content)
        self._board = list(self._puzzle.clues)
        self._steps, self._last = 0, None
        return Observation(self._render())

    def step(self, action: str) -> StepResult:
        puzzle = self._current()
        if self._last is not None:
            return self._last.again()
        self._steps += 1
        placed = parse_placement(action, self.side)
        legal, remark = self._judge(placed)
        right = legal and placed is not None and puzzle.solution[placed[0]] == placed[1]
        if right and placed is not None:
            self._board[placed[0]] = placed[1]
        solved = tuple(self._board) == puzzle.solution
        reward = (RIGHT if right else WRONG) + (SOLVED if solved else 0.0)
        truncated = not solved and self._steps >= self.max_steps
        info = {"legal": legal, "remark": remark, **({"success": solved} if solved or truncated else {})}
        text = self._render() if right else f"{self._render()}\n{remark}"
        result = StepResult(Observation(text), reward, solved, truncated, info)
        self._last = result if result.done else None
        return result

    def content(self) -> str:
        return self._content(self._current())

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """Forced cells, then values with one place left, then the solution's; or a random value that breaks no rule.

        Raises EnvironmentFault after the end.
        """
        self._current()
        whole_number("max_actions", max_actions, 1, 1000)
        if self._last is not None:
            raise EnvironmentFault("sudoku: no demonstration after the end of an episode; reset first")
        board, expert = list(self._board), rng.random() < expertise
        told, actions = [opening(board, self._name, rng)], []
        while len(actions) < max_actions and 0 in board:
            cell, value, why = self._deduce(board, rng) if expert else self._guess(board, rng)
            told.append(why)
            actions.append(f"{self._name(cell)}={value}")
            if not expert:
                break
            board[cell] = value
        return Demonstration(" ".join(told), tuple(actions))

    def _deduce(self, board: list[int], rng: np.random.Generator) -> tuple[int, int, str]:
        """Cell, value and reasons of one step of the solver."""
        found = forced_cells(board) or forced_places(board)
        if found:
            chosen = found[int(rng.integers(len(found)))]
            return chosen.cell, chosen.value, tell_deduction(chosen, board, self._name, rng)
        cell = board.index(0)
        value = self._current().solution[cell]
        return cell, value, tell_search(cell, value, self._name, rng)

    def _guess(self, board: list[int], rng: np.random.Generator) -> tuple[int, int, str]:
        empty = [cell for cell, value in enumerate(board) if not value]
        cell = empty[int(rng.integers(len(empty)))]
        free = values_for(board, cell)
        value = free[int(rng.integers(len(free)))]
        return cell, value, tell_guess(cell, value, self._name, rng)

    def _judge(self, placed: tuple[int, int] | None) -> tuple[bool, str]:
        """Whether the placement is legal, and what to say of it."""
        if placed is None:
            return False, "not a placement, write for example b3=4"
        cell, value = placed
        said = f"{self._name(cell)}={value}"
        if self._board[cell]:
            return False, f"{said} is not allowed, {self._name(cell)} is filled"
        against = blocker(self._board, cell, value)
        if against is not None:
            return False, f"{said} is not allowed, {self._name(against)} has {value}"
        return True, "right" if self._current().solution[cell] == value else f"{said} is wrong"

    def _generate(self, rng: np.random.Generator) -> Puzzle | None:
        """A puzzle drawn for this split alone, its values renamed until its content falls in the split."""
        own = np.random.Generator(np.random.PCG64([int(rng.integers(2**63)), SPLITS.index(self.split)]))
        puzzle = draw_puzzle(self.side, self.clues, own)
        if puzzle is None:
            return None
        return relabelled(puzzle, lambda renamed: split_of(self._content(renamed)) == self.split, own)

    def _content(self, puzzle: Puzzle) -> str:
        return f"sudoku {self.side} {puzzle.text}"

    def _current(self) -> Puzzle:
        if self._puzzle is None:
            raise EnvironmentFault("sudoku has no level yet; call reset(level_seed, noise_seed) first")
        return self._puzzle

    def _name(self, cell: int) -> str:
        return cell_name(*divmod(cell, self.side))

    def _render(self) -> str:
        side, shown = self.side, [str(value) if value else "_" for value in self._board]
        rows = [shown[row * side : (row + 1) * side] for row in range(side)]
        if self.format == "cells":
            return "\n".join(
                " ".join(f"{cell_name(row, col)}={value}" for col, value in enumerate(values)) for row, values in enumerate(rows)
            )
        edge = [" ", *(cell_name(0, col)[0] for col in range(side))]
        return render_rows([edge, *([str(row + 1), *values] for row, values in enumerate(rows))])


def parse_placement(action: str, side: int) -> tuple[int, int] | None:
    """Cell (counted row by row from 0) and value of "b3=4", a space beside the = allowed; None for anything else."""
    if len(action) > MAX_ANSWER or not action.isascii():
        return None
    read = _PLACE.fullmatch(action.strip(" \t\r\n").lower())
    if read is None:
        return None
    col, row, value = ord(read[1]) - ord("a"), int(read[2]) - 1, int(read[3])
    return (row * side + col, value) if max(col, row, value - 1) < side else None
