"""Sudoku's solver against brute force, and the reasons of its deductions."""

from __future__ import annotations

import numpy as np
import pytest
from small_sudoku import all_small_boards

from ragen2.envs.sudoku_levels import draw_puzzle
from ragen2.envs.sudoku_solver import forced_cells, forced_places, geometry, has_one_solution, is_consistent, solutions
from ragen2.errors import ConfigError


@pytest.fixture(scope="module")
def small_boards() -> tuple[tuple[int, ...], ...]:
    return all_small_boards()


def test_the_solver_finds_the_288_small_boards(small_boards: tuple[tuple[int, ...], ...]) -> None:
    assert len(small_boards) == 288
    assert set(solutions((0,) * 16, 1000)) == set(small_boards)
    assert len(solutions((0,) * 16, 7)) == 7


def test_solutions_agree_with_brute_force(small_boards: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(3)
    counts = []
    for _ in range(150):
        board = np.array(small_boards[int(rng.integers(288))])
        board[rng.permutation(16)[: int(rng.integers(5, 14))]] = 0
        truth = {full for full in small_boards if all(clue in (0, value) for clue, value in zip(board, full, strict=True))}
        assert set(solutions(board.tolist(), 1000)) == truth
        assert has_one_solution(board.tolist()) is (len(truth) == 1)
        counts.append(len(truth))
    assert min(counts) == 1
    assert max(counts) > 2


def test_a_board_against_the_rules_has_no_solution() -> None:
    twice = [0] * 16
    twice[0] = twice[5] = 3
    assert not is_consistent(twice)
    assert solutions(twice, 5) == []
    stuck = [1, 2, 3, 0, 0, 0, 0, 4, *[0] * 8]
    assert is_consistent(stuck)
    assert solutions(stuck, 5) == []


def test_a_known_hard_puzzle() -> None:
    text = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
    (solution,) = solutions([0 if char == "." else int(char) for char in text], 2)
    assert "".join(map(str, solution)) == "812753649943682175675491283154237896369845721287169534521974368438526917796318452"


@pytest.mark.parametrize("size", [15, 25, 0])
def test_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(ConfigError, match="16"):
        solutions([0] * size, 1)
    with pytest.raises(ConfigError):
        geometry(5)


@pytest.mark.parametrize(("side", "clues"), [(4, 6), (9, 34)])
def test_deductions_are_true_and_their_reasons_stand_on_the_board(side: int, clues: int) -> None:
    seen = set()
    for seed in range(12):
        puzzle = draw_puzzle(side, clues, np.random.default_rng(seed))
        assert puzzle is not None
        for found in [*forced_cells(puzzle.clues), *forced_places(puzzle.clues)]:
            seen.add(found.why)
            assert puzzle.solution[found.cell] == found.value
            assert all(puzzle.clues[place] for place in found.because)
            peers = geometry(side).peers
            if found.why == "cell":
                assert sorted(puzzle.clues[place] for place in found.because) == sorted({*range(1, side + 1)} - {found.value})
                assert all(place in peers[found.cell] for place in found.because)
            else:
                for other, place in zip(found.others, found.because, strict=True):
                    assert puzzle.clues[place] == found.value
                    assert place in peers[other]
    assert seen == {"cell", "row", "column", "box"}
