"""Sokoban levels a second, and the time to solve one: `python benchmarks/bench_sokoban_levels.py [seconds a row]`."""

from __future__ import annotations

import sys
import time

from ragen2.envs.sokoban_levels import LevelShape, generate_level
from ragen2.envs.sokoban_solver import solve
from ragen2.envs.splits import level_rng

SHAPES = ((6, 1), (8, 2), (10, 4))
"""Side of the room, outer walls included, and boxes."""


def measure(shape: LevelShape, seconds: float) -> tuple[int, list[float], list[float]]:
    """Levels drawn within `seconds`, the milliseconds each took to draw and, for up to 30 of them, to solve."""
    levels, drawing, solving = [], [], []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        before = time.perf_counter()
        level = generate_level(level_rng(len(drawing)), shape)
        drawing.append(1e3 * (time.perf_counter() - before))
        if level is not None:
            levels.append(level)
    for level in levels[:30]:
        before = time.perf_counter()
        solve(level)
        solving.append(1e3 * (time.perf_counter() - before))
    return len(levels), drawing, solving


def main() -> None:
    """Print one line a shape."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    print(f"{'room':>8} {'boxes':>5} {'levels/s':>9} {'draw ms':>8} {'worst':>7} {'solve ms':>9} {'worst':>7}")
    for side, boxes in SHAPES:
        count, drawing, solving = measure(LevelShape(side, side, boxes), seconds)
        mean, solve_mean = sum(drawing) / len(drawing), sum(solving) / len(solving)
        print(
            f"{f'{side}x{side}':>8} {boxes:>5} {1e3 * count / sum(drawing):>9.0f} {mean:>8.2f} {max(drawing):>7.1f} "
            f"{solve_mean:>9.2f} {max(solving):>7.1f}"
        )


if __name__ == "__main__":
    main()
