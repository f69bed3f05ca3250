"""Sokoban levels a second, and the time to solve one, beside gym-sokoban's generator where that is installed.

`pip install --no-deps gym-sokoban==0.0.6`, then `python benchmarks/bench_sokoban_levels.py [seconds a row]`. Only its room
generator is loaded, which needs numpy alone; it draws from the global generators, so they are seeded here. Ours is measured as it
is and once more with every solution at least as long as theirs are on average; the ratio is of those.
"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from ragen2.envs.sokoban_levels import LevelShape, generate_level
from ragen2.envs.sokoban_room import Level, level_from_lines
from ragen2.envs.sokoban_solver import solution_length
from ragen2.envs.splits import level_rng

SHAPES = ((6, 1), (8, 2), (10, 4))
"""Side of the room, outer walls included, and boxes."""

THEIR_SYMBOLS = "#_O*XP"
"""Ours for gym-sokoban's cell numbers: wall, floor, target, box on target, box, player."""


@dataclass(frozen=True)
class Measured:
    """Levels drawn, the milliseconds of each draw (failed ones too), moves of the solutions of up to 30 of them."""

    levels: int
    drawing_ms: list[float]
    moves: list[int]

    @property
    def per_level_ms(self) -> float:
        return sum(self.drawing_ms) / max(1, self.levels)


def measure(draw: Callable[[int], Level | None], seconds: float) -> Measured:
    """Draw levels by number for `seconds` (at least one draw)."""
    levels, drawing = [], []
    start = time.perf_counter()
    while not drawing or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        level = draw(len(drawing))
        drawing.append(1e3 * (time.perf_counter() - before))
        if level is not None:
            levels.append(level)
    solved = [length for level in levels[:30] if (length := solution_length(level, 20_000)) is not None]
    return Measured(len(levels), drawing, solved)


def their_generator() -> Callable[..., tuple[np.ndarray, np.ndarray, dict]] | None:
    """gym-sokoban's `generate_room`, None where the package is not installed."""
    spec = importlib.util.find_spec("gym_sokoban")
    if spec is None or not spec.submodule_search_locations:
        return None
    place = Path(spec.submodule_search_locations[0]) / "envs" / "room_utils.py"
    rooms = importlib.util.spec_from_file_location("their_rooms", place)
    assert rooms is not None and rooms.loader is not None
    module = importlib.util.module_from_spec(rooms)
    rooms.loader.exec_module(module)
    return module.generate_room


def their_level(generate: Callable[..., tuple[np.ndarray, np.ndarray, dict]], side: int, boxes: int, seed: int) -> Level | None:
    """A level of gym-sokoban with the number of generation steps its own environments take; None where it gave up."""
    random.seed(seed)
    np.random.seed(seed)
    try:
        structure, state, _ = generate(dim=(side, side), num_steps=int(1.7 * 2 * side), num_boxes=boxes)
    except (RuntimeError, RuntimeWarning):
        return None
    cells = np.where((structure == 2) & (state == 5), 6, state)
    return level_from_lines(["".join((THEIR_SYMBOLS + "+")[cell] for cell in row) for row in cells])


def main() -> None:
    """Print three lines a shape: ours, theirs, ours with solutions as long, and the ratio of the last two."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    theirs = their_generator()
    print(f"{'room':>7} {'boxes':>5} {'generator':>15} {'ms a level':>11} {'slowest':>9} {'moves to solve':>15} {'ratio':>7}")
    for side, boxes in SHAPES:
        _show(side, boxes, "ragen2", _ours(side, boxes, seconds))
        if theirs is not None:
            other = measure(lambda seed, s=side, b=boxes: their_level(theirs, s, b, seed), seconds)
            _show(side, boxes, "gym-sokoban", other)
            if other.moves:
                long = _ours(side, boxes, seconds, math.ceil(fmean(other.moves)))
                _show(side, boxes, "ragen2 as long", long, other.per_level_ms / long.per_level_ms)
    if theirs is None:
        print("gym-sokoban is not installed: no comparison")


def _ours(side: int, boxes: int, seconds: float, min_solution: int = 2) -> Measured:
    shape = LevelShape(side, side, boxes, min_solution)
    return measure(lambda seed: generate_level(level_rng(seed), shape), seconds)


def _show(side: int, boxes: int, name: str, found: Measured, ratio: float | None = None) -> None:
    moves = f"{fmean(found.moves):.1f}" if found.moves else "none solved"
    print(
        f"{f'{side}x{side}':>7} {boxes:>5} {name:>15} {found.per_level_ms:>11.2f} {max(found.drawing_ms):>9.1f} {moves:>15} "
        f"{'' if ratio is None else f'{ratio:.0f}x':>7}"
    )


if __name__ == "__main__":
    main()
