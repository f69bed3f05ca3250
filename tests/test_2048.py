"""2048: the merge rule, chance from the noise seed, rewards, the player, hostile answers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import outputs_under_hash_seeds

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs.base import StepResult
from ragen2.envs.game_2048 import Game2048
from ragen2.envs.game_2048_board import Board, add_tile, empty_cells, highest, legal_moves, shift, slide
from ragen2.envs.game_2048_search import best_move
from ragen2.envs.grid import MOVES
from ragen2.errors import ConfigError, EnvironmentFault

lines = st.lists(st.sampled_from([0, 0, 2, 4, 8, 16]), min_size=3, max_size=5).map(tuple)
boards = st.integers(3, 5).flatmap(
    lambda side: st.lists(
        st.lists(st.sampled_from([0, 0, 2, 4, 8]), min_size=side, max_size=side).map(tuple), min_size=side, max_size=side
    ).map(tuple)
)


@pytest.mark.parametrize(
    ("line", "after", "merged"),
    [
        ((2, 2, 2, 2), (4, 4, 0, 0), (4, 4)),
        ((4, 2, 2, 0), (4, 4, 0, 0), (4,)),
        ((2, 2, 4, 8), (4, 4, 8, 0), (4,)),
        ((2, 2, 2, 0), (4, 2, 0, 0), (4,)),
        ((2, 0, 0, 2), (4, 0, 0, 0), (4,)),
        ((0, 0, 0, 2), (2, 0, 0, 0), ()),
        ((2, 4, 2, 4), (2, 4, 2, 4), ()),
        ((0, 0, 0, 0), (0, 0, 0, 0), ()),
    ],
)
def test_a_tile_merges_once_a_move(line: tuple[int, ...], after: tuple[int, ...], merged: tuple[int, ...]) -> None:
    assert slide(line) == (after, merged)


@settings(deadline=None)
@given(lines)
def test_sliding_keeps_the_sum_and_leaves_no_gap(line: tuple[int, ...]) -> None:
    after, merged = slide(line)
    assert (sum(after), len(after)) == (sum(line), len(line))
    assert len([v for v in after if v]) == len([v for v in line if v]) - len(merged)
    assert list(after) == sorted(after, key=lambda value: value == 0)
    assert all(value in after for value in merged)


@settings(deadline=None)
@given(boards)
def test_the_four_moves_are_one_rule_turned(board: Board) -> None:
    def turned(rows: Board) -> Board:
        return tuple(tuple(line) for line in zip(*rows[::-1], strict=True))

    # Clockwise, what was left is up, what was up is right, what was right is down.
    for move, then in (("Left", "Up"), ("Up", "Right"), ("Right", "Down"), ("Down", "Left")):
        after, merged = shift(board, move)
        assert shift(turned(board), then)[0] == turned(after)
        assert sorted(shift(turned(board), then)[1]) == sorted(merged)
        assert (move in legal_moves(board)) is (after != board)


def test_new_tiles() -> None:
    rng = np.random.default_rng(0)
    board: Board = ((2, 0, 2), (4, 8, 2), (0, 2, 0))
    cells, fours = set(), 0
    for _ in range(3000):
        after = add_tile(board, rng)
        (cell,) = set(empty_cells(board)) - set(empty_cells(after))
        cells.add(cell)
        fours += after[cell[0]][cell[1]] == 4
    assert cells == {(0, 1), (2, 0), (2, 2)}
    assert 240 < fours < 360


def test_tiles_come_from_the_noise_seed_alone() -> None:
    env = Game2048()

    def played(level: int, noise: int) -> list[str]:
        env.reset(level, noise)
        return [env.step(move).observation.text for move in [*MOVES, *MOVES]]

    assert played(3, 5) == played(3, 5)
    assert len({tuple(played(3, noise)) for noise in range(20)}) > 10


def test_a_move_that_changes_nothing_is_illegal_and_draws_no_tile() -> None:
    env = Game2048()
    for seed in range(200):
        shown = env.reset(seed, 1).text
        for move in set(MOVES) - set(legal_moves(env.board)):
            result = env.step(move)
            assert (result.info["legal"], result.reward, result.done, result.observation.text) == (False, 0.0, False, shown)


def play(env: Game2048, seed: int, expertise: float = 1.0) -> tuple[list[StepResult], list[Board]]:
    rng = np.random.default_rng(seed)
    env.reset(seed, seed)
    results, boards_seen = [], [env.board]
    while not results or not results[-1].done:
        (action,) = env.demonstrate(rng, expertise, 3).actions
        results.append(env.step(action))
        boards_seen.append(env.board)
    return results, boards_seen


def test_the_player_reaches_the_target_and_the_score_adds_up() -> None:
    env = Game2048(target=128)
    for seed in range(6):
        results, shown = play(env, seed)
        assert results[-1].info["success"] is True
        assert results[-1].terminated
        assert highest(shown[-1]) == 128
        merged = [value for result in results for value in result.info["merged"]]
        assert math.fsum(result.reward for result in results) == pytest.approx(sum(merged) / 128 + 1)
        assert all(result.info["legal"] for result in results)
        # Tiles that were not merged away came from merges or chance: sums grow by the new tile alone.
        for before, after in pairwise(shown[:-1]):
            assert sum(map(sum, after)) - sum(map(sum, before)) in (2, 4)


def test_progress_reward_sums_to_the_share_reached() -> None:
    env = Game2048(size=3, target=64, reward="progress")
    ends = set()
    for seed in range(12):
        results, shown = play(env, seed, expertise=0.0)
        success = results[-1].info["success"]
        ends.add(success)
        gained = (math.log2(highest(shown[-1])) - math.log2(highest(shown[0]))) / 6
        assert math.fsum(result.reward for result in results) == pytest.approx(gained + success)
    assert False in ends


def test_a_stuck_board_ends_without_success_and_pays_nothing_more() -> None:
    env = Game2048(size=3, target=512)
    results, shown = play(env, 1, expertise=0.0)
    assert not legal_moves(shown[-1])
    assert best_move(shown[-1]) is None
    last = results[-1]
    assert (last.terminated, last.truncated, last.info["success"]) == (True, False, False)
    after = env.step("Up")
    assert (after.done, after.reward, after.info["legal"]) == (True, 0.0, False)
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.demonstrate(np.random.default_rng(0), 1.0, 1)


def test_too_many_answers_are_truncated() -> None:
    env = Game2048(max_steps=3)
    env.reset(0, 0)
    results = [env.step("nonsense") for _ in range(3)]
    assert [result.truncated for result in results] == [False, False, True]
    assert results[-1].info["success"] is False


def test_expert_beats_chance() -> None:
    env = Game2048(size=3, target=64)
    wins = {expertise: sum(play(env, seed, expertise)[0][-1].info["success"] for seed in range(8)) for expertise in (0.0, 1.0)}
    assert wins[1.0] >= 7
    assert wins[0.0] <= 4


def test_reasoning_is_true_of_the_board() -> None:
    env = Game2048()
    for seed in range(60):
        env.reset(seed, 0)
        demo = env.demonstrate(np.random.default_rng(seed), 1.0, 1)
        assert str(highest(env.board)) in demo.reasoning
        assert f"{len(empty_cells(env.board))} " in demo.reasoning
        made = shift(env.board, demo.actions[0])[1]
        assert all(f"={value}" in demo.reasoning for value in made[:3])


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"size": 2}, "from 3 to 5"),
        ({"size": 6}, "from 3 to 5"),
        ({"target": 100}, "power of two"),
        ({"size": 3, "target": 1024}, "from 8 to 512"),
        ({"reward": "scroe"}, "Did you mean 'score'"),
        ({"opening": -1}, "from 0 to 100"),
        ({"render": "rgb"}, "rgb_array"),
    ],
)
def test_values_that_cannot_be_used(config: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ragen2.make("2048", **config)


def test_contract_and_levels() -> None:
    configs: list[tuple[dict[str, Any], int]] = [({}, 8), ({"size": 3, "target": 16}, 40), ({"size": 5, "reward": "progress"}, 8)]
    for config, steps in configs:
        report = check_env(ragen2.make("2048", **config), seeds=range(4), steps=steps)
        assert report.ok, str(report)
    assert len(set(validation_seeds(Game2048("validation"), 512))) == 512
    with pytest.raises(EnvironmentFault, match="no level yet"):
        Game2048().step("Up")


HOSTILE = [
    "Up.", "Up Down", "Up||Down", "UP;DOWN", "<answer>Up</answer>", "Uр", "Up\u200b", "\u202eUp", "2048", "Up\n\nUp", "up" * 40,
    "__import__('os')", "move Up", "٢", "−1", "(" * 5000, "a" * 1_000_000,
]  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_answers_earn_nothing(answer: str) -> None:
    env = Game2048()
    shown = env.reset(0, 0).text
    result = env.step(answer)
    assert (result.info["legal"], result.reward, result.observation.text) == (False, 0.0, shown)


SHARED = Game2048(size=3, target=32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=20), st.sampled_from([*MOVES, "up", "Up."])), max_size=30), st.integers(0, 40))
def test_any_answers(answers: list[str], seed: int) -> None:
    SHARED.reset(seed, seed)
    for answer in answers:
        result = SHARED.step(answer)
        assert 0.0 <= result.reward <= 1 + 9 * 32 / 32
        if not result.info["legal"]:
            assert result.reward == 0.0


def test_same_levels_under_any_hash_seed() -> None:
    code = (
        "from ragen2.envs.game_2048 import Game2048\nenv = Game2048()\n"
        "print([(env.reset(s, s).text, env.step('Up').observation.text) for s in range(20)])"
    )
    assert len(outputs_under_hash_seeds(code)) == 1
