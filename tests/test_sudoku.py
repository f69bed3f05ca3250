"""Sudoku: unique puzzles, rewards that cannot be farmed, demonstrations, hostile answers."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import outputs_under_hash_seeds
from small_sudoku import all_small_boards

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs.splits import SPLITS, split_of
from ragen2.envs.sudoku import RIGHT, SOLVED, WRONG, Sudoku, parse_placement
from ragen2.envs.sudoku_levels import full_board
from ragen2.envs.sudoku_solver import geometry, is_consistent, solutions
from ragen2.errors import ConfigError, EnvironmentFault


def reset(env: Sudoku, seed: int = 0) -> list[int]:
    """The clues, read from the content."""
    env.reset(seed, 0)
    return [0 if char == "." else int(char) for char in env.content().split()[-1]]


def cell(place: int, side: int = 4) -> str:
    return "abcdefghi"[place % side] + str(place // side + 1)


@pytest.fixture(scope="module")
def small_boards() -> tuple[tuple[int, ...], ...]:
    return all_small_boards()


# Puzzles


@pytest.mark.parametrize("clues", [4, 5, 8, 12])
def test_small_puzzles_are_unique_by_brute_force(clues: int, small_boards: tuple[tuple[int, ...], ...]) -> None:
    env = Sudoku(clues=clues)
    for seed in range(40):
        given_clues = reset(env, seed)
        assert sum(map(bool, given_clues)) == clues
        fitting = [full for full in small_boards if all(c in (0, v) for c, v in zip(given_clues, full, strict=True))]
        assert len(fitting) == 1


@pytest.mark.parametrize(("clues", "count"), [(44, 5), (34, 2)])
def test_large_puzzles_are_unique_by_an_independent_solver(clues: int, count: int) -> None:
    sudoku = pytest.importorskip("reasoning_gym.games.sudoku", reason="the independent solver is reasoning-gym's")
    judge = sudoku.SudokuDataset(sudoku.SudokuConfig(seed=1, size=1))
    env = Sudoku(side=9, clues=clues)
    for seed in range(count):
        given_clues = reset(env, seed)
        assert sum(map(bool, given_clues)) == clues
        assert judge._count_solutions([given_clues[row * 9 : row * 9 + 9] for row in range(9)], limit=2) == 1


def test_small_puzzles_are_unique_by_an_independent_solver() -> None:
    mini = pytest.importorskip("reasoning_gym.games.mini_sudoku", reason="the independent solver is reasoning-gym's")
    judge = mini.MiniSudokuDataset(mini.MiniSudokuConfig(seed=1, size=1))
    env = Sudoku(clues=6)
    for seed in range(30):
        clues = reset(env, seed)
        assert judge._count_solutions([clues[row * 4 : row * 4 + 4] for row in range(4)], limit=2) == 1


def test_full_boards_vary() -> None:
    assert len({full_board(4, np.random.default_rng(seed)) for seed in range(200)}) > 100
    for seed in range(5):
        board = full_board(9, np.random.default_rng(seed))
        assert is_consistent(board)
        assert 0 not in board


def test_puzzles_belong_to_their_split_and_groups_share_them() -> None:
    contents: dict[str, set[str]] = {}
    for split in SPLITS:
        env, twin = Sudoku(split), Sudoku(split)
        contents[split] = set()
        for seed in range(100):
            assert env.reset(seed, 0).text == twin.reset(seed, 9).text
            assert split_of(env.content()) == split
            contents[split].add(env.content())
    assert not contents["train"] & (contents["validation"] | contents["test"])
    assert not contents["validation"] & contents["test"]


def test_no_split_shows_the_renamed_puzzles_of_another() -> None:
    def pattern(env: Sudoku, seed: int) -> str:
        names: dict[str, str] = {".": "."}
        env.reset(seed, 0)
        return "".join(names.setdefault(char, chr(96 + len(names))) for char in env.content().split()[-1])

    patterns = {split: {pattern(Sudoku(split, side=9), seed) for seed in range(15)} for split in SPLITS}
    assert not patterns["train"] & patterns["validation"]
    assert all(len(found) == 15 for found in patterns.values())


def test_512_distinct_validation_puzzles() -> None:
    assert len(validation_seeds(Sudoku("validation"), 512)) == 512


_DIGEST = """
import hashlib, numpy as np
from ragen2.envs.sudoku import Sudoku
seen = hashlib.sha256()
for options in ({}, {"clues": 5, "format": "cells"}, {"side": 9}):
    env = Sudoku(**options)
    for seed in range(8):
        seen.update(env.reset(seed, 0).text.encode())
        seen.update(repr(env.demonstrate(np.random.default_rng(seed), 0.7, 2)).encode())
print(seen.hexdigest())
"""


def test_puzzles_and_demonstrations_are_the_same_in_any_process() -> None:
    assert len(outputs_under_hash_seeds(_DIGEST)) == 1


# Rewards


def solution_of(clues: list[int]) -> tuple[int, ...]:
    (board,) = solutions(clues, 2)
    return board


def test_a_solved_board_ends_the_episode() -> None:
    env = Sudoku()
    clues = reset(env)
    solution = solution_of(clues)
    empty = [place for place, clue in enumerate(clues) if not clue]
    for place in empty[:-1]:
        result = env.step(f"{cell(place)}={solution[place]}")
        assert (result.reward, result.done, result.info["legal"]) == (RIGHT, False, True)
        assert "success" not in result.info
    result = env.step(f"{cell(empty[-1])}={solution[empty[-1]]}")
    assert (result.reward, result.terminated, result.truncated) == (RIGHT + SOLVED, True, False)
    assert result.info["success"] is True
    assert "_" not in result.observation.text
    after = env.step("a1=1")
    assert (after.reward, after.terminated, after.info["legal"]) == (0.0, True, False)


def test_a_cell_pays_once_however_it_is_toggled() -> None:
    env = Sudoku(max_steps=40)
    clues = reset(env)
    solution = solution_of(clues)
    place = clues.index(0)
    right = f"{cell(place)}={solution[place]}"
    wrong = f"{cell(place)}={solution[place] % 4 + 1}"
    paid = [env.step(action).reward for action in [right, right, wrong, right, f"{cell(place)}=0", right, wrong]]
    assert paid == [RIGHT, *[WRONG] * 6]


def test_a_wrong_value_costs_and_leaves_the_board() -> None:
    kinds = set()
    for seed in range(10):
        env = Sudoku(clues=5)
        clues = reset(env, seed)
        solution = solution_of(clues)
        first = env.reset(seed, 0).text
        for place, value in itertools.product(range(16), range(1, 5)):
            if value == solution[place] and not clues[place]:
                continue
            env.reset(seed, 0)
            result = env.step(f"{cell(place)}={value}")
            assert result.reward == WRONG
            assert result.observation.text.startswith(first + "\n")
            against = [peer for peer in geometry(4).peers[place] if clues[peer] == value]
            assert result.info["legal"] is (not clues[place] and not against)
            kinds.add((bool(clues[place]), bool(against)))
    assert len(kinds) == 4


def test_invalid_answers_reach_the_end() -> None:
    env = Sudoku()
    reset(env)
    results = [env.step("nonsense") for _ in range(env.max_steps)]
    assert env.max_steps == 16
    assert [result.done for result in results] == [False] * 15 + [True]
    assert (results[-1].truncated, results[-1].terminated, results[-1].info["success"]) == (True, False, False)
    assert sum(result.reward for result in results) == pytest.approx(16 * WRONG)
    assert env.step("nonsense").reward == 0.0


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.integers(0, 5), st.integers(0, 5)).map(lambda t: f"{t[0]}{t[1]}={t[2]}"),
        max_size=60,
    )
)
def test_no_sequence_of_actions_earns_more_than_the_bound(actions: list[str]) -> None:
    env = Sudoku(max_steps=50)
    clues = reset(env)
    results = [env.step(action) for action in actions]
    total = sum(result.reward for result in results)
    assert total <= SOLVED + RIGHT * clues.count(0) + 1e-9
    assert sum(result.reward > 0 for result in results) <= clues.count(0)
    board = results[-1].observation.text.splitlines() if results else []
    for row, line in enumerate(board[1:5]):
        for col, shown in enumerate(line.split()[1:]):
            assert not clues[row * 4 + col] or shown == str(clues[row * 4 + col])


# Answers


@pytest.mark.parametrize(
    ("text", "place"),
    [("a1=1", (0, 1)), ("d4=4", (15, 4)), ("B3=4", (9, 4)), (" c2 = 3 \n", (6, 3)), ("a2= 1", (4, 1))],
)
def test_placements(text: str, place: tuple[int, int]) -> None:
    assert parse_placement(text, 4) == place


HOSTILE = (
    *("", " ", "=", "a1", "a1=", "=1", "a1=12", "a11=1", "aa=1", "a1==1", "a1=1=1", "1a=1", "a1:1", "a1 1", "a1=-1", "a1=+1"),
    *(
        "a0=1",
        "a5=1",
        "e1=1",
        "a1=0",
        "a1=5",
        "a1=9",
        "i9=9",
        "a1=1.0",
        "a1=1e0",
        "a1=0x1",
        "a1=1;b1=2",
        "a1=1 b1=2",
        "a1=1, b1=2",
    ),
    *("a1=1\nb1=2", "a1=1||b1=2", "format 1,2,3", "place 1 at row 1", "1,2,3", "a1=_", "a1=x", "__import__('os')", "a1=9**9**9"),
    *(
        "\u0061\uff11=1",
        "a1=\u0661",
        "a1=\u00b2",
        "a1\uff1d1",
        "\u0430" + "1=1",
        "a1=1\x00",
        "\ud800",
        "\u202ea1=1",
        "a1=1\u200b",
    ),
    *(
        "a1=1" * 250_000,
        " " * 1_000_000 + "a1=1",
        "a1=" + "9" * 6000,
        "a" * 100_000,
        "<answer>a1=1</answer>",
        "<think>a1=1</think>",
    ),
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:24]))
def test_hostile_answers_are_no_placements(text: str) -> None:
    assert parse_placement(text, 4) is None
    env = Sudoku()
    reset(env)
    result = env.step(text)
    assert result.reward == WRONG
    assert result.info["legal"] is False


@given(st.text(max_size=40) | st.text(alphabet="abcd1234= \n", max_size=8))
def test_any_text_is_a_placement_or_none(text: str) -> None:
    found = parse_placement(text, 4)
    if found is not None:
        assert re.fullmatch(r"\s*[a-dA-D][1-4] ?= ?[1-4]\s*", text)
        assert 0 <= found[0] < 16
        assert 1 <= found[1] <= 4


# The environment as a whole


@pytest.mark.parametrize("options", [{}, {"clues": 5}, {"format": "cells", "clues": 10}, {"side": 9, "clues": 50}])
def test_registered_and_sound(options: dict[str, Any]) -> None:
    env = ragen2.make("sudoku", **options)
    report = check_env(env, seeds=range(3))
    assert report.ok, str(report)
    assert len(env.instructions.split()) <= 100


@pytest.mark.parametrize(
    "options",
    [{"side": 5}, {"side": True}, {"clues": 3}, {"clues": 16}, {"side": 9, "clues": 20}, {"max_steps": 0}, {"format": "csv"}],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Sudoku(**options)


def test_before_a_level_and_after_the_end_it_says_so() -> None:
    env = Sudoku(max_steps=1)
    for call in (env.content, lambda: env.step("a1=1"), lambda: env.demonstrate(np.random.default_rng(0), 1.0, 1)):
        with pytest.raises(EnvironmentFault, match="reset"):
            call()
    reset(env)
    env.step("x")
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.demonstrate(np.random.default_rng(0), 1.0, 1)


@pytest.mark.parametrize(("options", "levels"), [({}, 60), ({"clues": 4}, 40), ({"side": 9, "clues": 36}, 5)])
def test_the_demonstrator_solves_every_puzzle(options: dict[str, Any], levels: int) -> None:
    env, rng = Sudoku(**options), np.random.default_rng(5)
    for seed in range(levels):
        empty = reset(env, seed).count(0)
        results = []
        while len(results) < empty:
            results += [env.step(action) for action in env.demonstrate(rng, 1.0, 2).actions]
        assert results[-1].info["success"] is True
        assert sum(result.reward for result in results) == pytest.approx(SOLVED + empty * RIGHT)


def test_demonstrations_state_what_the_board_shows() -> None:
    env, rng = Sudoku(format="cells"), np.random.default_rng(8)
    reasons = set()
    for seed in range(40):
        shown = env.reset(seed, 0).text
        demonstration = env.demonstrate(rng, 1.0, 1)
        stated = re.findall(r"[a-d][1-4]=[1-4]", demonstration.reasoning)
        assert stated[-1] == demonstration.actions[0]
        for fact in stated:
            assert fact in shown.split() or fact == demonstration.actions[0]
        reasons.add(demonstration.reasoning)
    assert len(reasons) == 40
