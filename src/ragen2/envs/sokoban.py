"""Sokoban: push every box onto a target. Rewards and room size as in RAGEN-2 (arXiv 2604.06268); engine and levels are ours."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.drawing import Tile, check_render, draw_symbols
from ragen2.envs.grid import MAX_SIDE, MOVES, cell_name, parse_move, render_rows, towards
from ragen2.envs.options import one_of, whole_number
from ragen2.envs.sokoban_levels import LevelShape, generate_level, read_levels
from ragen2.envs.sokoban_room import DIRECTIONS, SYMBOLS, Level, move
from ragen2.envs.sokoban_solver import Plan, solve
from ragen2.envs.sokoban_words import Facts, Stride, tell
from ragen2.envs.splits import check_seed, draw_level
from ragen2.errors import ConfigError, EnvironmentFault

FORMATS = ("grid+coord", "grid", "coord")

_FLOOR, _TARGET, _BOX, _PLAYER = (238, 230, 210), (200, 70, 60), (170, 115, 60), (60, 110, 200)
_TILES = {
    SYMBOLS["wall"]: Tile((96, 84, 78)),
    SYMBOLS["floor"]: Tile(_FLOOR),
    SYMBOLS["target"]: Tile(_FLOOR, frame=_TARGET),
    SYMBOLS["box"]: Tile(_BOX, word="X"),
    SYMBOLS["player"]: Tile(_FLOOR, disc=_PLAYER),
    SYMBOLS["box on target"]: Tile((110, 160, 80), frame=_TARGET, word="X"),
    SYMBOLS["player on target"]: Tile(_FLOOR, disc=_PLAYER, frame=_TARGET),
}

STEP, BOX, SOLVED = -0.1, 1.0, 10.0
"""Reward of every move, of a box pushed onto a target (off it: the negative), and of the last box."""


class Sokoban(TextEnv):
    """Push every box onto a target. A move costs 0.1, a box pushed onto a target gives 1, off it takes 1, solving gives 10 more.

    A move against a wall or a box that cannot move is legal, costs the same and changes nothing. An answer that is not exactly
    one direction changes nothing and is free, yet counts towards `max_steps`, after which the episode is truncated.

    `size` (or `rows` and `cols`) counts the outer walls: the paper's 6x6 room has 4x4 cells inside. With `border=False` the outer
    walls are neither drawn nor counted, so size 5 is 5x5 cells to walk on. A 5x5 room with its border (3x3 inside) has some 1,170
    levels of one box, 113 of them in the validation split: too few for 512; 5x6 has over 12,000 and 1,250, larger ones far more.
    Generated levels have a shortest solution of `min_solution` to `max_solution` moves and no box on a target at the start.

    `human_levels` is an XSB file: level seed s plays level s modulo their number, in any split but "train" (they are for
    evaluation); levels larger than 10x10 cells are left out and counted in `levels_left_out`. `format` is "grid+coord", "grid" or
    "coord"; with `render="rgb_array"` observations carry a picture too. Raises ConfigError for a value that cannot be used.
    """

    moves = tuple(MOVES)

    def __init__(
        self,
        split: str = "train",
        size: int = 6,
        rows: int | None = None,
        cols: int | None = None,
        boxes: int = 1,
        min_solution: int = 2,
        max_solution: int | None = None,
        border: bool = True,
        format: str = "grid+coord",
        max_steps: int = 100,
        human_levels: str | Path | None = None,
        render: str | None = None,
    ) -> None:
        super().__init__(split)
        self.format = one_of("sokoban format", format, FORMATS)
        if not isinstance(border, bool):
            raise ConfigError(f"sokoban border is {border!r}; give True (outer walls drawn and counted) or False")
        self.border = border
        self.render = check_render("sokoban", render)
        self.max_steps = whole_number("max_steps", max_steps, 1, 1_000_000)
        self._margin = 0 if self.border else 1
        least = 3 if self.border else 1
        self.rows = whole_number("rows" if rows is not None else "size", size if rows is None else rows, least, MAX_SIDE)
        self.cols = whole_number("cols" if cols is not None else "size", size if cols is None else cols, least, MAX_SIDE)
        self._shape = LevelShape(
            self.rows + 2 * self._margin,
            self.cols + 2 * self._margin,
            whole_number("boxes", boxes, 1, 20),
            whole_number("min_solution", min_solution, 1, 1000),
            None if max_solution is None else whole_number("max_solution", max_solution, 1, 1000),
        )
        self.levels_left_out = 0
        self._human = self._read_human(human_levels)
        self.split_by_content = not self._human
        self._start: Level | None = None
        self._level: Level | None = None
        self._plan: Plan | None = None
        self._steps = 0
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        room = "a room" if self._human else f"a room of {self.rows} rows and {self.cols} columns"
        lines = [f"Push every box onto a target in {room}."]
        if not self.border:
            lines[0] += " Its edge is wall."
        if self.format != "coord":
            lines.append("Symbols: " + ", ".join(f"{symbol} {name}" for name, symbol in SYMBOLS.items()) + ".")
        if self.format != "grid":
            listed = " The outer walls are not listed." if self.border else ""
            lines.append(f"A cell is a column letter and a row digit; a1 is top left, b1 right of it.{listed}")
        lines.append(f"Actions: {', '.join(DIRECTIONS)}. Walk into a box to push it; you push only one and never pull.")
        lines.append("Reward -0.1 a move, 1 for a box on a target, -1 for a box off it, 10 when solved.")
        return "\n".join(lines)

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        if self._human:
            level = self._human[check_seed("level_seed", level_seed) % len(self._human)]
        else:
            level = draw_level(level_seed, self.split, lambda rng: generate_level(rng, self._shape), _content, attempts=300)
        self._start = self._level = level
        self._plan, self._steps, self._last = None, 0, None
        return self._show(level)

    def step(self, action: str) -> StepResult:
        level = self._current()
        if self._last is not None:
            return self._last.again()
        self._steps += 1
        direction = parse_move(action)
        after = level if direction is None else move(level, direction)
        reward = 0.0
        if direction is not None:
            gained = len(after.boxes & level.targets) - len(level.boxes & level.targets)
            reward = math.fsum((STEP, BOX * gained, SOLVED if after.solved else 0.0))
            self._plan = _rest(self._plan, direction, changed=after is not level)
        self._level = after
        truncated = self._steps >= self.max_steps and not after.solved
        info = {"legal": direction is not None, "moved": after is not level}
        if after.solved or truncated:
            info["success"] = after.solved
        result = StepResult(self._show(after), reward, after.solved, truncated, info)
        self._last = result if result.done else None
        return result

    def content(self) -> str:
        if self._start is None:
            raise EnvironmentFault("sokoban has no level yet; call reset(level_seed, noise_seed) first")
        return _content(self._start)

    @property
    def level(self) -> Level:
        """The present position. Raises EnvironmentFault before the first reset."""
        return self._current()

    def plan(self) -> Plan:
        """A solution from the present position (see `sokoban_solver.solve`), found once and followed while it is played."""
        level = self._current()
        if self._plan is None:
            self._plan = solve(level)
        return self._plan

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The first moves of a solution, or random directions, and short reasoning that names cells.

        Where no solution is found the moves are random too, and said to be. Raises EnvironmentFault after the end.
        """
        level = self._current()
        if self._last is not None:
            raise EnvironmentFault("sokoban: no demonstration after the end of an episode; reset first")
        whole_number("max_actions", max_actions, 1, 1000)
        expert = bool(rng.random() < expertise)
        solution = self.plan().moves if expert else None
        chosen = self._random_moves(level, rng, max_actions) if solution is None else list(solution[:max_actions])
        facts, push = self._facts(level, solution)
        reasoning = tell(facts, push, self._strides(level, chosen), not expert or solution is not None, solution is not None, rng)
        return Demonstration(reasoning, tuple(chosen))

    @staticmethod
    def _random_moves(level: Level, rng: np.random.Generator, count: int) -> list[str]:
        chosen: list[str] = []
        while len(chosen) < count and not level.solved:
            chosen.append(DIRECTIONS[int(rng.integers(len(DIRECTIONS)))])
            level = move(level, chosen[-1])
        return chosen

    def _facts(self, level: Level, solution: tuple[str, ...] | None) -> tuple[Facts, tuple[str, str] | None]:
        """What the reasoning names: the box that the plan pushes next and the target it ends on, or the first box still off."""
        box, goal = min(level.boxes - level.targets), min(level.targets - level.boxes)
        push = None
        if solution is not None:
            first, push = self._next_push(level, solution)
            box, goal = first, _end_of(level, first, solution)
        way = towards(level.position(box), level.position(goal))
        return Facts(self._name(level.player), self._name(box), self._name(goal), way or ["here"]), push

    def _next_push(self, level: Level, solution: tuple[str, ...]) -> tuple[int, tuple[str, str]]:
        at = level.player
        for direction in solution:
            to = at + level.offset(direction)
            if to in level.boxes:
                return to, (direction, self._name(at))
            at = to
        raise EnvironmentFault("sokoban: the solver's plan pushes no box, though the level is not solved")

    def _strides(self, level: Level, moves: list[str]) -> list[Stride]:
        strides: list[Stride] = []
        for direction in moves:
            after = move(level, direction)
            ahead = level.player + level.offset(direction)
            if after is level:
                stuck = ahead in level.boxes
                strides.append(Stride(direction, "stuck" if stuck else "wall", self._name(ahead if stuck else level.player)))
            elif ahead in level.boxes:
                (box,) = after.boxes - level.boxes
                strides.append(Stride(direction, "score" if box in level.targets else "push", self._name(box)))
            else:
                strides.append(Stride(direction, "walk", self._name(ahead)))
            level = after
        return strides

    def _current(self) -> Level:
        if self._level is None:
            raise EnvironmentFault("sokoban has no level yet; call reset(level_seed, noise_seed) first")
        return self._level

    def _read_human(self, path: str | Path | None) -> list[Level]:
        if path is None:
            return []
        if self.split == "train":
            raise ConfigError("sokoban human_levels are for evaluation: use them with split 'validation' or 'test', not 'train'")
        levels = read_levels(path)
        most = MAX_SIDE + 2 * self._margin
        fitting = [level for level in levels if level.rows <= most and level.cols <= most and not level.solved]
        self.levels_left_out = len(levels) - len(fitting)
        if not fitting:
            raise ConfigError(f"none of the {len(levels)} levels of {path} is unsolved and at most {MAX_SIDE}x{MAX_SIDE} cells")
        return fitting

    def _name(self, cell: int) -> str:
        row, col = divmod(cell, self._current().cols)
        return cell_name(row - self._margin, col - self._margin)

    def _show(self, level: Level) -> Observation:
        return Observation(self._text(level), None if self.render is None else draw_symbols(self._drawn(level), _TILES))

    def _drawn(self, level: Level) -> list[str]:
        return level.lines() if self.border else [line[1:-1] for line in level.lines()[1:-1]]

    def _text(self, level: Level) -> str:
        lines: list[str] = []
        if self.format != "coord":
            lines.append(render_rows(self._drawn(level)))
        if self.format != "grid":
            several = "es" if len(level.boxes) > 1 else "", "s" if len(level.boxes) > 1 else ""
            lines.append(f"walls {self._names(level.inner_walls) or 'none'}")
            lines.append(
                f"player {self._name(level.player)} box{several[0]} {self._names(sorted(level.boxes))} "
                f"target{several[1]} {self._names(sorted(level.targets))}"
            )
        return "\n".join(lines)

    def _names(self, cells: list[int]) -> str:
        return " ".join(self._name(cell) for cell in cells)


def _content(level: Level) -> str:
    return f"sokoban {'/'.join(level.lines())}"


def _rest(plan: Plan | None, direction: str, *, changed: bool) -> Plan | None:
    """What is left of a plan after a move: its rest when followed; a proof that there is none stays; else None."""
    if plan is None or not changed:
        return plan
    if plan.moves is None:
        return plan if plan.proven else None
    return Plan(plan.moves[1:], plan.proven, max(plan.at_least - 1, 0), plan.nodes) if plan.moves[:1] == (direction,) else None


def _end_of(level: Level, box: int, solution: tuple[str, ...]) -> int:
    """The cell on which a box stands after the solution."""
    for direction in solution:
        after = move(level, direction)
        moved = level.boxes - after.boxes
        if box in moved:
            (box,) = after.boxes - level.boxes
        level = after
    return box
