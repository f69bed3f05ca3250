"""FrozenLake: levels, stepping against Gymnasium, slipping, demonstrations, hostile answers."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs.frozen_lake import FrozenLake, slipped_move
from ragen2.envs.grid import MOVES, cell_name
from ragen2.envs.splits import SPLITS, noise_rng
from ragen2.errors import ConfigError, EnvironmentFault

BOARD = ["FHFG", "FFFF", "SFHF"]


def walk(env: FrozenLake, *moves: str) -> list[str]:
    return [env.step(move).observation.text.splitlines()[-1] for move in moves]


def test_what_is_shown() -> None:
    env = FrozenLake(board=BOARD, slip=0.0)
    assert env.reset(0, 0).text == "_ O _ G\n_ _ _ _\nP _ O _\nholes b1 c3\nplayer a3 goal d1"
    assert env.content() == "frozen-lake FHFG/FFFF/SFHF"
    assert FrozenLake(board=BOARD, format="coord").reset(0, 0).text == "holes b1 c3\nplayer a3 goal d1"
    assert FrozenLake(board=BOARD, format="grid").reset(0, 0).text == "_ O _ G\n_ _ _ _\nP _ O _"
    assert FrozenLake(board=["SG"], format="coord").reset(0, 0).text.startswith("holes none\n")
    assert "3 rows and 4 columns" in env.instructions


@pytest.mark.parametrize("size", [2, 4, 10])
@pytest.mark.parametrize("format", ["grid+coord", "grid", "coord"])
def test_instructions_name_the_true_size_in_few_words(size: int, format: str) -> None:
    text = FrozenLake(size=size, format=format).instructions
    assert f"{size} rows and {size} columns" in text
    assert len(text.split()) <= 95
    assert "0.02" in text
    assert "never slip" in FrozenLake(size=size, format=format, slip=0.0).instructions


def test_goal_and_hole_end_the_episode() -> None:
    env = FrozenLake(board=BOARD, slip=0.0)
    env.reset(0, 0)
    assert walk(env, "Left", "Up", "Right", "Right", "Right") == [f"player {at} goal d1" for at in ("a3", "a2", "b2", "c2", "d2")]
    won = env.step("Up")
    assert (won.reward, won.terminated, won.truncated) == (1.0, True, False)
    assert won.info["success"] is True
    assert won.observation.text.startswith("_ O _ V\n")
    after = env.step("Down")
    assert (after.reward, after.terminated, after.info["success"], after.info["legal"]) == (0.0, True, True, False)
    env.reset(0, 0)
    walk(env, "Right")
    lost = env.step("Right")
    assert (lost.reward, lost.terminated, lost.info["success"]) == (0.0, True, False)
    assert lost.observation.text.splitlines()[2] == "_ _ X _"


def test_bumping_into_a_wall_is_legal_and_an_illegal_answer_changes_nothing() -> None:
    env = FrozenLake(board=BOARD, slip=0.0)
    start = env.reset(0, 0).text
    bump = env.step("Down")
    assert bump.info["legal"] is True
    assert bump.info["moved"] is False
    assert bump.observation.text == start
    wrong = env.step("Up.")
    assert wrong.info["legal"] is False
    assert wrong.reward == 0.0
    assert not wrong.done
    assert wrong.observation.text == start


def test_illegal_answers_draw_no_chance() -> None:
    env = FrozenLake(board=["SFFFFFFF", "FFFFFFFF", "FFFFFFFG"], slip=0.5)
    moves = ["Right", "Down", "Right", "Up"] * 2
    env.reset(0, 3)
    plain = walk(env, *moves)
    env.reset(0, 3)
    mixed = [(walk(env, "nonsense"), walk(env, move)[0])[1] for move in moves]
    assert mixed == plain


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"size": 1}, "from 2 to 10"),
        ({"size": 11}, "from 2 to 10"),
        ({"size": True}, "from 2 to 10"),
        ({"size": 4.0}, "from 2 to 10"),
        ({"p_frozen": 1.5}, "from 0 to 1"),
        ({"slip": -0.1}, "from 0 to 1"),
        ({"slip": float("nan")}, "from 0 to 1"),
        ({"slip": "0.1"}, "from 0 to 1"),
        ({"format": "gird"}, "Did you mean 'grid'"),
        ({"min_distance": 7}, "from 1 to 6"),
        ({"board": "SFFG"}, "list of rows"),
        ({"board": []}, "list of rows"),
        ({"board": ["SF", "G"]}, "same length"),
        ({"board": ["S" + "F" * 10 + "G"]}, "at most 10 x 10"),
        ({"board": ["SX", "FG"]}, "'X' at b1"),
        ({"board": ["sf", "fg"]}, "'s' at a1"),
        ({"board": ["SS", "FG"]}, "2 S and 1 G"),
        ({"board": ["SF", "FF"]}, "1 S and 0 G"),
        ({"board": ["SH", "HG"]}, "cannot be reached"),
    ],
)
def test_values_that_cannot_be_used(config: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ragen2.make("frozen-lake", **config)


def test_unreachable_configuration_is_bounded() -> None:
    with pytest.raises(EnvironmentFault, match="in 200 draws: 200 were no usable level"):
        FrozenLake(p_frozen=0.0, min_distance=3).reset(0, 0)
    with pytest.raises(EnvironmentFault, match="step before reset"):
        FrozenLake().step("Up")
    with pytest.raises(EnvironmentFault, match="no level yet"):
        FrozenLake().content()


def test_splits_share_no_level_over_two_thousand_seeds() -> None:
    contents: dict[str, set[str]] = {}
    for split in SPLITS:
        env = FrozenLake(split)
        contents[split] = set()
        for seed in range(2000):
            env.reset(seed, 0)
            contents[split].add(env.content())
    assert not contents["train"] & contents["validation"]
    assert not contents["train"] & contents["test"]
    assert not contents["validation"] & contents["test"]
    assert len(contents["train"]) > 1000
    assert len(contents["validation"]) > 500


def test_level_statistics_and_minimum_distance() -> None:
    env = FrozenLake()
    hole_free = next_to_goal = 0
    for seed in range(1000):
        env.reset(seed, 0)
        hole_free += "H" not in env.content()
        next_to_goal += _apart(env) == 1
    # .9^14 = .229 have no hole and 48/240 = .2 are side by side; both rise a little, since such lakes can always be solved
    assert 180 < hole_free < 300
    assert 150 < next_to_goal < 270
    far = FrozenLake(min_distance=4)
    distances = []
    for seed in range(200):
        far.reset(seed, 0)
        distances.append(_apart(far))
    assert min(distances) == 4
    assert max(distances) == 6


def _apart(env: FrozenLake) -> int:
    rows = env.content().split()[1].split("/")
    place = {letter: (r, c) for r, row in enumerate(rows) for c, letter in enumerate(row) if letter in "SG"}
    return abs(place["S"][0] - place["G"][0]) + abs(place["S"][1] - place["G"][1])


def test_every_level_can_be_solved() -> None:
    for size, p_frozen in ((4, 0.9), (6, 0.6), (10, 0.8)):
        env = FrozenLake(size=size, p_frozen=p_frozen, slip=0.0)
        for seed in range(60):
            env.reset(seed, 0)
            rng, result = np.random.default_rng(seed), None
            while result is None or not result.done:
                for action in env.demonstrate(rng, 1.0, 3).actions:
                    result = env.step(action)
            assert result.info["success"] is True
            assert result.reward == 1.0


def test_validation_seeds_give_distinct_levels() -> None:
    env = FrozenLake("validation")
    seeds = validation_seeds(env, 512)
    contents = set()
    for seed in seeds:
        env.reset(seed, 0)
        contents.add(env.content())
    assert len(seeds) == len(contents) == 512
    with pytest.raises(ConfigError, match="distinct"):
        validation_seeds(FrozenLake("validation", size=3, p_frozen=1.0), 60)
    with pytest.raises(EnvironmentFault, match="0 were no usable level, 200 belong to other splits"):
        validation_seeds(FrozenLake("validation", size=2, p_frozen=1.0), 5)


def test_slip_shares() -> None:
    for slip in (0.02, 0.2, 2 / 3):
        noise = noise_rng(5)
        counts = Counter(slipped_move("Up", slip, noise) for _ in range(20_000))
        assert counts["Down"] == 0
        for move, share in (("Up", 1 - slip), ("Left", slip / 2), ("Right", slip / 2)):
            deviation = (20_000 * share * (1 - share)) ** 0.5
            assert abs(counts[move] - 20_000 * share) < 4 * deviation, (slip, move)
    assert {slipped_move("Left", 0.0, noise_rng(1)) for _ in range(100)} == {"Left"}


def test_slips_come_from_the_noise_seed_alone() -> None:
    board = ["FFFFFFFF", "FFFFFFFF", "SFFFFFFF", "FFFFFFFF", "FFFFFFFG"]
    env = FrozenLake(board=board, slip=0.5)

    def path(level_seed: int, noise_seed: int) -> tuple[str, ...]:
        env.reset(level_seed, noise_seed)
        return tuple(walk(env, *["Right"] * 6))

    assert len({path(level_seed, 11) for level_seed in range(20)}) == 1
    assert len({path(0, noise_seed) for noise_seed in range(20)}) > 10


def test_stepping_agrees_with_gymnasium() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    board, slip = ["FFHF", "FHFF", "FFFF", "HFFG"], 0.6
    free = [(r, c) for r in range(4) for c in range(4) if board[r][c] == "F"]
    names = ["Left", "Down", "Right", "Up"]
    oracle = gymnasium.make("FrozenLake-v1", desc=["S" + board[0][1:], *board[1:]], success_rate=1 - slip).unwrapped
    for row, col in free:
        rows = [list(line) for line in board]
        rows[row][col] = "S"
        env = FrozenLake(board=["".join(line) for line in rows], slip=slip)
        for number, name in enumerate(names):
            expected: Counter[tuple[str, float, bool]] = Counter()
            for share, state, reward, ended in oracle.P[row * 4 + col][number]:
                expected[cell_name(*divmod(int(state), 4)), float(reward), bool(ended)] += share
            seen: Counter[tuple[str, float, bool]] = Counter()
            for noise_seed in range(150):
                env.reset(0, noise_seed)
                result = env.step(name)
                seen[result.observation.text.split()[-3], result.reward, result.terminated] += 1
            assert set(seen) == set(expected), (row, col, name)
            assert all(abs(seen[outcome] / 150 - share) < 0.17 for outcome, share in expected.items())


def test_contract() -> None:
    configs: tuple[dict[str, Any], ...] = ({}, {"size": 8, "format": "coord"}, {"slip": 0.0, "format": "grid"}, {"board": BOARD})
    for config in configs:
        report = check_env(ragen2.make("frozen-lake", **config))
        assert report.ok, str(report)


def _facts(env: FrozenLake) -> tuple[str, str, set[str]]:
    """Player, goal and hole cells that the prompt shows."""
    lines = env.step("show").observation.text.splitlines()
    _, player, _, goal = lines[-1].split()
    return player, goal, set(lines[-2].split()[1:]) - {"none"}


@pytest.mark.parametrize("expertise", [0.0, 1.0])
def test_reasoning_is_true_of_this_level_and_agrees_with_the_actions(expertise: float) -> None:
    env = FrozenLake(slip=0.0, p_frozen=0.75)
    rng = np.random.default_rng(3)
    for seed in range(150):
        env.reset(seed, seed)
        player, goal, holes = _facts(env)
        reasoning, actions = (demo := env.demonstrate(rng, expertise, 2)).reasoning, demo.actions
        words = re.findall(r"[A-Za-z0-9]+", reasoning)
        cells = re.findall(r"\b[a-j][0-9]\b", reasoning)
        assert {player, goal} <= set(cells), reasoning
        assert 10 <= len(words) <= 32, reasoning
        directions = {word for word in words if word in ("up", "down", "left", "right")}
        assert directions == _way(player, goal), reasoning
        assert set(re.findall(r"(?:hole at|avoid|keep off|not into) ([a-j]\d(?: and [a-j]\d)*)", reasoning)) == _beside(
            player, holes
        )
        told = re.findall(r"(Up|Down|Left|Right) (?:to|onto|into|and)\D*? ([a-j][0-9])", reasoning)
        assert tuple(move for move, _ in told) == actions, reasoning
        for move, cell in told:
            result = env.step(move)
            at = result.observation.text.split()[-3]
            assert (at, result.info["legal"]) == (cell, True), reasoning
            assert (f"hole {cell}" in reasoning.split(". ")[-1]) == (cell in holes)
            if result.done:
                break
        if expertise == 1.0:
            assert not any(cell in holes for _, cell in told)


def _beside(player: str, holes: set[str]) -> set[str]:
    near = [hole for hole in holes if abs(ord(hole[0]) - ord(player[0])) <= 1 and abs(int(hole[1]) - int(player[1])) <= 1]
    return {" and ".join(sorted(near, key=lambda hole: (hole[1], hole[0])))} - {""}


def _way(player: str, goal: str) -> set[str]:
    way = set()
    if player[0] != goal[0]:
        way.add("right" if goal[0] > player[0] else "left")
    if player[1] != goal[1]:
        way.add("down" if goal[1] > player[1] else "up")
    return way


def test_reasoning_depends_on_the_level_and_varies() -> None:
    env = FrozenLake()
    env.reset(0, 0)
    same_level = {env.demonstrate(np.random.default_rng(seed), 1.0, 2).reasoning for seed in range(60)}
    assert len(same_level) > 40
    first = set()
    for seed in range(60):
        env.reset(seed, 0)
        first.add(env.demonstrate(np.random.default_rng(0), 1.0, 2).reasoning)
    assert len(first) > 45


def test_demonstrations_repeat_and_follow_expertise() -> None:
    env = FrozenLake(min_distance=3, slip=0.0)
    closer = {0.0: 0, 1.0: 0}
    for expertise in closer:
        for seed in range(100):
            env.reset(seed, 0)
            demo = env.demonstrate(np.random.default_rng(seed), expertise, 1)
            assert demo == env.demonstrate(np.random.default_rng(seed), expertise, 1)
            closer[expertise] += demo.actions[0].lower() in _way(*_facts(env)[:2])
    assert closer[1.0] > 90
    assert closer[0.0] < 65
    env = FrozenLake(board=["SG"], slip=0.0)
    env.reset(0, 0)
    env.step("Right")
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.demonstrate(np.random.default_rng(0), 1.0, 2)


SHARED_LAKE = FrozenLake(slip=0.3)


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from([*MOVES, "up", "Up."])), max_size=12), st.integers(0, 50))
def test_hostile_answers_never_raise_or_pay(answers: list[str], seed: int) -> None:
    SHARED_LAKE.reset(seed, seed)
    for answer in answers:
        result = SHARED_LAKE.step(answer)
        assert isinstance(result.info["legal"], bool)
        assert result.reward in (0.0, 1.0)
        if not result.info["legal"]:
            assert result.reward == 0.0
        if result.reward == 1.0:
            assert answer.strip().casefold() in ("up", "down", "left", "right")
