"""The pocket cube: moves that are cube moves, the size of its group, exact scrambles, solutions, hostile answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs.pocket_cube import PocketCube, parse_turn, shortest_solution
from ragen2.envs.pocket_cube_moves import (
    FACES,
    IDENTITY,
    MOVES,
    ROTATIONS,
    SOLVED,
    Permutation,
    do,
    inverse,
    is_solved,
    then,
    turn,
    upright,
)
from ragen2.envs.pocket_cube_table import POSITIONS, cube_at, distance, distances, position
from ragen2.errors import ConfigError, EnvironmentFault

OPPOSITE = {"U": "D", "L": "R", "F": "B", "D": "U", "R": "L", "B": "F"}
sequences = st.lists(st.sampled_from(list(MOVES)), max_size=25)


def order(permutation: Permutation) -> int:
    power, count = permutation, 1
    while power != IDENTITY:
        power, count = then(power, permutation), count + 1
    return count


# The moves


@pytest.mark.parametrize("face", FACES)
def test_every_quarter_turn_has_order_four(face: str) -> None:
    assert order(MOVES[face]) == order(MOVES[f"{face}'"]) == 4
    assert order(MOVES[f"{face}2"]) == 2
    assert then(MOVES[face], MOVES[f"{face}'"]) == IDENTITY
    # A face turn moves its own four stickers and two of each neighbour: twelve, none of the opposite face.
    moved = [k for k in range(24) if MOVES[face][k] != k]
    assert len(moved) == 12
    assert not {FACES[k // 4] for k in moved} & {OPPOSITE[face]}


@pytest.mark.parametrize("first", FACES)
@pytest.mark.parametrize("second", FACES)
def test_commutators_have_the_orders_of_a_cube(first: str, second: str) -> None:
    if first == second:
        return
    commutator = then(then(MOVES[first], MOVES[second]), then(MOVES[f"{first}'"], MOVES[f"{second}'"]))
    assert order(commutator) == (1 if OPPOSITE[first] == second else 6)


def test_the_group_with_one_corner_held_has_3674160_elements() -> None:
    combinatorics = pytest.importorskip("sympy.combinatorics", reason="sympy counts the group independently")
    group = combinatorics.PermutationGroup([combinatorics.Permutation(list(MOVES[face])) for face in "URF"])
    assert group.order() == 3_674_160
    whole = combinatorics.PermutationGroup([combinatorics.Permutation(list(MOVES[face])) for face in FACES])
    assert whole.order() == 24 * 3_674_160


def test_opposite_faces_turned_together_turn_the_cube() -> None:
    assert len(ROTATIONS) == len(set(ROTATIONS)) == 24
    for face, against in OPPOSITE.items():
        both = then(MOVES[face], MOVES[f"{against}'"])
        assert both in ROTATIONS
        assert is_solved(turn(SOLVED, both))


def test_random_sequences_agree_with_magiccube() -> None:
    magiccube = pytest.importorskip("magiccube", reason="magiccube is the oracle of the moves")
    colours = str.maketrans("YRGOBW", "WOGRBY")
    rng = np.random.default_rng(0)
    for length in [1] * 18 + [20] * 100:
        moves = [list(MOVES)[int(k)] for k in rng.integers(18, size=length)]
        oracle = magiccube.Cube(2)
        oracle.rotate(" ".join(moves))
        faces = {face.name: rows for face, rows in oracle.get_all_faces().items()}
        stickers = "".join(sticker.name for face in FACES for row in faces[face] for sticker in row)
        assert stickers.translate(colours) == do(SOLVED, moves), moves


@settings(deadline=None)
@given(sequences)
def test_inverses_undo(moves: list[str]) -> None:
    assert do(do(SOLVED, moves), [inverse(move) for move in reversed(moves)]) == SOLVED


# Distances


def test_the_table_has_the_known_distribution() -> None:
    counts = np.bincount(distances())
    assert counts.tolist() == [1, 9, 54, 321, 1847, 9992, 50136, 227536, 870072, 1887748, 623800, 2644]
    assert counts.sum() == POSITIONS == 3_674_160
    assert np.array_equal(distances(5), np.where(distances() <= 5, distances(), -1))


@settings(deadline=None)
@given(sequences, st.sampled_from(range(24)), st.sampled_from(list(MOVES)))
def test_positions_ignore_how_the_cube_is_held(moves: list[str], rotation: int, move: str) -> None:
    cube = do(SOLVED, moves)
    held = turn(cube, ROTATIONS[rotation])
    assert upright(held) == upright(cube)
    assert position(held) == position(cube)
    assert cube_at(position(cube)) == upright(cube)
    assert distance(held) <= len(moves)
    assert abs(distance(turn(held, MOVES[move])) - distance(held)) <= 1
    assert (distance(held) == 0) is is_solved(held)


def test_the_table_agrees_with_a_search_of_its_own() -> None:
    reached, frontier = {upright(SOLVED): 0}, [SOLVED]
    for depth in range(1, 4):
        frontier = [turn(cube, move) for cube in frontier for move in MOVES.values()]
        frontier = [cube for cube in {upright(cube) for cube in frontier} if cube not in reached]
        reached |= dict.fromkeys(frontier, depth)
    assert len(reached) == 1 + 9 + 54 + 321
    assert all(distance(cube) == depth for cube, depth in reached.items())


@pytest.mark.parametrize("scramble", [1, 2, 3, 5, 8, 11])
def test_scrambles_are_exact_and_solutions_as_long(scramble: int) -> None:
    env = PocketCube(scramble=scramble)
    shown = set()
    for seed in range(40):
        env.reset(seed, 0)
        shown.add(env.cube)
        assert distance(env.cube) == scramble
        assert not is_solved(env.cube)
        solution = shortest_solution(env.cube, np.random.default_rng(seed))
        assert len(solution) == scramble
        results = [env.step(move) for move in solution]
        assert [result.done for result in results] == [False] * (scramble - 1) + [True]
        assert results[-1].info["success"] is True
        assert sum(result.reward for result in results) == pytest.approx(1 - 0.01 * scramble)
    assert len(shown) > 25


def test_no_shorter_sequence_solves_a_depth_three_scramble() -> None:
    env = PocketCube(scramble=3)
    for seed in range(5):
        env.reset(seed, 0)
        once = [turn(env.cube, move) for move in MOVES.values()]
        assert not any(is_solved(cube) for cube in once)
        assert not any(is_solved(turn(cube, move)) for cube in once for move in MOVES.values())


# The environment


def test_what_is_shown() -> None:
    net, faces = PocketCube(), PocketCube(format="faces")
    shown = net.reset(0, 0).text.splitlines()
    letters = "".join(re.findall("[WOGRBY]", "".join(shown)))
    assert [len(re.findall("[WOGRBY]", line)) for line in shown] == [2, 2, 8, 8, 2, 2]
    assert sorted(letters) == sorted(SOLVED)
    lines = faces.reset(0, 0).text.splitlines()
    assert [line[0] for line in lines] == list(FACES)
    assert "".join(line[2:].replace(" ", "") for line in lines) == faces.cube == net.cube
    # The front face is the second block of the middle rows.
    front = faces.cube[8:12]
    assert [line.split()[2:4] for line in shown[2:4]] == [list(front[:2]), list(front[2:])]


def test_end_and_truncation() -> None:
    env = PocketCube(scramble=1, max_steps=3)
    env.reset(0, 0)
    (good, *_) = shortest_solution(env.cube, np.random.default_rng(0))
    wrong = env.step("nonsense")
    assert (wrong.info["legal"], wrong.reward, wrong.done) == (False, -0.01, False)
    assert env.step(good).terminated
    again = env.step(good)
    assert (again.reward, again.info["legal"], again.terminated) == (0.0, False, True)
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.demonstrate(np.random.default_rng(0), 1.0, 1)
    env.reset(0, 0)
    results = [env.step("U" if good != "U" else "F") for _ in range(3)]
    assert results[-1].truncated or results[-1].terminated
    env = PocketCube(scramble=5, max_steps=2)
    env.reset(0, 0)
    env.step("U")
    late = env.step("R")
    assert (late.truncated, late.terminated, late.info["success"]) == (True, False, False)


@pytest.mark.parametrize("expertise", [0.0, 1.0])
def test_demonstrations(expertise: float) -> None:
    env = PocketCube(scramble=3)
    rng = np.random.default_rng(1)
    solved = 0
    for seed in range(40):
        env.reset(seed, 0)
        demo = env.demonstrate(rng, expertise, 2)
        for face, stickers in re.findall(r"([ULFRBD]) (?:is|shows|has) ([WOGRBY] [WOGRBY] [WOGRBY] [WOGRBY])", demo.reasoning):
            at = 4 * FACES.index(face)
            assert env.cube[at : at + 4] == stickers.replace(" ", "")
        assert len(demo.actions) == 2
        before = distance(env.cube)
        assert (before - distance(do(env.cube, list(demo.actions))) == 2) or expertise == 0.0
        result = None
        for action in (*demo.actions, *env.demonstrate(rng, expertise, 1).actions):
            result = env.step(action) if result is None or not result.done else result
        if expertise == 1.0:
            result = env.step(env.demonstrate(rng, 1.0, 1).actions[0]) if result is not None and not result.done else result
            solved += bool(result is not None and result.info.get("success"))
    assert expertise == 0.0 or solved > 0


def test_oracle_play_solves_every_level() -> None:
    for scramble in (1, 4, 9):
        env = PocketCube("validation", scramble=scramble)
        for seed in range(15):
            env.reset(seed, 0)
            rng, steps, result = np.random.default_rng(seed), 0, None
            while result is None or not result.done:
                for action in env.demonstrate(rng, 1.0, 2).actions:
                    result, steps = env.step(action), steps + 1
            assert result.info["success"] is True
            assert steps == scramble


@pytest.mark.parametrize(
    ("text", "move"),
    [("U", "U"), (" r' ", "R'"), ("R\u2019", "R'"), ("F\u2032", "F'"), ("b2", "B2"), ("D`", "D'")],
)
def test_moves_are_read(text: str, move: str) -> None:
    assert parse_turn(text) == move


HOSTILE = [
    "", "X", "U3", "U2'", "U''", "'U", "2U", "UU", "U R", "U||R", "U.", "<answer>U</answer>", "R\u00b3", "Ū", "U\u0000",
    "\u202eU", "M", "x", "F٢", "solved", "success=True", "__import__('os').system('id')", "9**9**9", "U" * 1_000_000,
]  # fmt: skip


@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_answers_are_no_moves(answer: str) -> None:
    env = PocketCube()
    shown = env.reset(0, 0).text
    result = env.step(answer)
    assert (result.info["legal"], result.done, result.observation.text) == (False, False, shown)
    assert result.reward < 0


SHARED = PocketCube(scramble=1, max_steps=20)


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(max_size=10), st.sampled_from([*MOVES, "u", "U3"])), max_size=12), st.integers(0, 30))
def test_any_answers(answers: list[str], seed: int) -> None:
    SHARED.reset(seed, 0)
    for answer in answers:
        done_before = is_solved(SHARED.cube)
        result = SHARED.step(answer)
        assert (result.reward > 0) is (is_solved(SHARED.cube) and not done_before)
        assert result.info["legal"] is (parse_turn(answer) is not None and not done_before)


@pytest.mark.parametrize(
    ("config", "match"),
    [({"scramble": 0}, "from 1 to 11"), ({"scramble": 12}, "from 1 to 11"), ({"format": "nets"}, "Did you mean 'net'")],
)
def test_values_that_cannot_be_used(config: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ragen2.make("pocket-cube", **config)


def test_contract_and_levels() -> None:
    configs: list[dict[str, Any]] = [{}, {"scramble": 1, "format": "faces"}, {"scramble": 11}]
    for config in configs:
        report = check_env(ragen2.make("pocket-cube", **config), seeds=range(4))
        assert report.ok, str(report)
    assert len(set(validation_seeds(PocketCube("validation"), 512))) == 512
    with pytest.raises(EnvironmentFault, match="no level yet"):
        PocketCube().step("U")


def test_same_levels_under_any_hash_seed() -> None:
    code = "from ragen2.envs.pocket_cube import PocketCube\nenv = PocketCube()\nprint([env.reset(s, s).text for s in range(20)])"
    shown = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1")
    ]
    assert all(before == after for before, after in pairwise(shown))
    assert "W" in shown[0]
