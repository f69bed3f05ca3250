"""Spatial: maps, exact answers, partial views, exploration, hostile answers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import outputs_under_hash_seeds

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs.grid import cell_name
from ragen2.envs.spatial import RIGHT, STEP, WRONG, Spatial, read_action
from ragen2.envs.spatial_map import (
    COMPASS,
    DIRECTIONS,
    OBJECTS,
    QUESTIONS,
    House,
    Question,
    answer_of,
    answers_to,
    direction_from,
    draw_house,
)
from ragen2.errors import ConfigError, EnvironmentFault

HOUSE = House(
    2,
    3,
    (0, 0),
    frozenset({((0, 0), (0, 1)), ((0, 1), (0, 2)), ((0, 1), (1, 1)), ((1, 0), (1, 1))}),
    (("lamp", (0, 2)), ("vase", (1, 0))),
    Question("direction", "vase", "lamp"),
)
r"""a1 - b1 - c1 lamp
          |
   a2 - b2   c2        (a2: vase; c2 cannot be reached, which drawn houses never have)"""


class OneHouse(Spatial):
    """Always HOUSE."""

    def _generate(self, rng: np.random.Generator) -> House | None:
        return HOUSE


def reset(max_steps: int = 30) -> Spatial:
    split = next(split for split in ("train", "validation", "test") if split_is(split))
    env = OneHouse(split, max_steps=max_steps)
    env.reset(0, 0)
    return env


def split_is(split: str) -> bool:
    try:
        OneHouse(split).reset(0, 0)
    except EnvironmentFault:
        return False
    return True


@pytest.mark.parametrize(
    ("reference", "subject", "direction"),
    [
        ((1, 0), (0, 2), "north-east"),
        ((0, 2), (1, 0), "south-west"),
        ((0, 0), (0, 2), "east"),
        ((2, 1), (0, 1), "north"),
        ((0, 0), (5, 1), "south-east"),
        ((3, 3), (2, 0), "north-west"),
        ((1, 1), (1, 1), ""),
    ],
)
def test_directions(reference: tuple[int, int], subject: tuple[int, int], direction: str) -> None:
    assert direction_from(reference, subject) == direction
    assert direction in (*DIRECTIONS, "")


def test_walking_and_looking() -> None:
    env = reset()
    assert env.content() == (
        "spatial 2x3 from a1 doors a1b1 b1c1 b1b2 a2b2 objects lamp=c1 vase=a2 in which direction is the lamp from the vase?"
    )
    looked = env.step("look east")
    assert looked.observation.text.splitlines() == [
        "question: in which direction is the lamp from the vase?",
        "you are in a1. here: empty. doors: east.",
        "east of here: b1 empty, c1 lamp, then a wall",
    ]
    assert (looked.reward, looked.info["legal"]) == (STEP, True)
    blocked = env.step("move south")
    assert (blocked.reward, blocked.info["legal"]) == (STEP, False)
    assert "no door to the south" in blocked.observation.text
    env.step("move east")
    env.step("MOVE south")
    there = env.step("move west")
    assert "you are in a2. here: vase. doors: east." in there.observation.text
    right = env.step("answer[ North-East ]")
    assert (right.reward, right.terminated, right.info["success"]) == (RIGHT, True, True)
    again = env.step("answer[north-east]")
    assert (again.reward, again.info["legal"]) == (0.0, False)


def test_a_wrong_answer_ends_and_pays_nothing_and_another_kind_of_answer_does_not_end() -> None:
    env = reset()
    for given_ in ("answer[lamp]", "answer[3]", "answer[]", "answer[north east]", "answer[north-east or east]"):
        result = env.step(given_)
        assert (result.info["legal"], result.done, result.reward) == (False, False, STEP), given_
    wrong = env.step("answer[east]")
    assert (wrong.terminated, wrong.info["success"], wrong.reward) == (True, False, WRONG)


def test_too_many_actions_are_truncated() -> None:
    env = reset(max_steps=2)
    env.step("look east")
    late = env.step("look east")
    assert (late.truncated, late.terminated, late.info["success"]) == (True, False, False)


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 6), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_every_drawn_house_is_joined_and_its_question_has_one_answer(seed: int, rows: int, cols: int, openness: float) -> None:
    house = draw_house(rows, cols, min(5, rows * cols), openness, QUESTIONS, np.random.default_rng(seed))
    if house is None:
        return
    reached, waiting = {house.start}, [house.start]
    while waiting:
        room = waiting.pop()
        for direction, step in COMPASS.items():
            near = house.door(room, direction)
            if near is None:
                continue
            assert near == (room[0] + step[0], room[1] + step[1])
            if near not in reached:
                reached.add(near)
                waiting.append(near)
    assert len(reached) == rows * cols
    assert len(house.doors) >= rows * cols - 1
    objects = dict(house.objects)
    assert len(set(objects.values())) == len(objects)
    answer = answer_of(house.question, objects)
    assert answer in answers_to(house.question, house)
    question = house.question
    reference = objects[question.reference]
    if question.kind == "object":
        there = [name for name, at in objects.items() if direction_from(reference, at) == question.direction]
        assert there == [answer]
    elif question.kind == "distance":
        at = objects[question.subject]
        assert answer == str(abs(at[0] - reference[0]) + abs(at[1] - reference[1]))
    # What is not seen settles nothing: without the reference there is no answer.
    assert answer_of(question, {name: at for name, at in objects.items() if name != question.reference}) is None


@pytest.mark.parametrize("config", [{}, {"rows": 5, "cols": 5, "openness": 0.0, "max_steps": 100}, {"openness": 1.0}])
def test_oracle_play_answers_right_from_what_it_saw(config: dict[str, Any]) -> None:
    env, kinds = Spatial(**config), set()
    for seed in range(60):
        shown = env.reset(seed, 0).text
        rng, result = np.random.default_rng(seed), None
        while result is None or not result.done:
            demo = env.demonstrate(rng, 1.0, 2)
            known = set(re.findall(r"([a-z]+) (?:is )?at ([a-j]\d)", demo.reasoning))
            objects = {name: cell_name(*at) for name, at in env.house.objects}
            assert all(objects[name] == cell for name, cell in known if name in OBJECTS), demo.reasoning
            (action,) = demo.actions
            if action.startswith("answer"):
                # Every object that the reasoning places was in an observation.
                assert all(name in shown for name, _ in known if name in OBJECTS)
            result = env.step(action)
            shown += result.observation.text
        kinds.add(env.house.question.kind)
        assert (result.info["success"], result.reward) == (True, RIGHT)
    assert kinds == set(QUESTIONS)


def test_guessing_at_once_is_seldom_right() -> None:
    env, right = Spatial(), 0
    for seed in range(200):
        env.reset(seed, 0)
        options = answers_to(env.house.question, env.house)
        right += env.step(f"answer[{options[seed % len(options)]}]").info["success"]
    assert right < 60


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("move north", ("move", "north")),
        (" Look West ", ("look", "west")),
        ("answer[lamp]", ("answer", "lamp")),
        ("move  north", ("", "")),
        ("move up", ("", "")),
        ("north", ("", "")),
        ("answer lamp", ("", "")),
    ],
)
def test_actions_are_read(text: str, read: tuple[str, str]) -> None:
    assert read_action(text) == read


HOSTILE = [
    "",
    "||",
    "move",
    "move north-east",
    "move north south",
    "move north || look north",
    "look",
    "answer",
    "answer[",
    "answer]",
    "answer[[north-east]]",
    "answer[north-east",
    "answer[north-east] answer[east]",
    "answer[ｎorth-east\u0301]",
    "answer[north‐east]",
    "answer[north\u2212east]",
    "answer[٣]",
    "answer[1e0]",
    "answer[*]",
    "answer[.*]",
    "answer[success]",
    "answer[None]",
    "answer[True]",
    "<answer>north-east</answer>",
    "answer[" + "(a+)+" * 9 + "]",
    "answer[" + "north-east" * 100_000 + "]",
    "\x00answer[north-east]",
    "\u202eanswer[north-east]",
    "eval('answer')",
    "answer['north-east']",
    "answer[north-east\u200b]",
    "move\tnorth",
    "answer[9**9**9]",
]


@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_answers_earn_nothing(answer: str) -> None:
    env = reset()
    result = env.step(answer)
    assert (result.info["legal"], result.done, result.reward) == (False, False, STEP)
    assert result.observation.text.startswith("question: in which direction is the lamp from the vase?\nyou are in a1.")


SHARED = Spatial(rows=2, cols=2, objects=3)
words = st.sampled_from(
    [*(f"{verb} {way}" for verb in ("move", "look") for way in COMPASS), "answer[north]", "answer[lamp]", "answer[1]"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=30), words), max_size=12), st.integers(0, 30))
def test_any_answers(answers: list[str], seed: int) -> None:
    SHARED.reset(seed, 0)
    truth = answer_of(SHARED.house.question, dict(SHARED.house.objects))
    for answer in answers:
        result = SHARED.step(answer)
        assert (result.reward == RIGHT) is (result.info["legal"] and read_action(answer) == ("answer", truth))


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"rows": 1}, "from 2 to 10"),
        ({"rows": 2, "cols": 2, "objects": 5}, "from 2 to 4"),
        ({"openness": 2}, "from 0 to 1"),
        ({"questions": "direction"}, "give a list"),
        ({"questions": []}, "give a list"),
        ({"questions": ["directions"]}, "Did you mean 'direction'"),
    ],
)
def test_values_that_cannot_be_used(config: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ragen2.make("spatial", **config)


def test_contract_and_levels() -> None:
    for config in ({}, {"rows": 6, "cols": 4, "objects": 8, "questions": ["object"]}):
        report = check_env(ragen2.make("spatial", **config))
        assert report.ok, str(report)
    assert len(set(validation_seeds(Spatial("validation"), 512))) == 512
    with pytest.raises(EnvironmentFault, match="no level yet"):
        Spatial().step("look east")


def test_same_levels_under_any_hash_seed() -> None:
    code = (
        "import numpy as np\nfrom ragen2.envs.spatial import Spatial\nenv = Spatial()\nfor s in range(20):\n"
        "    print(env.reset(s, s).text, env.content(), env.demonstrate(np.random.default_rng(s), 0.5, 1))"
    )
    assert len(outputs_under_hash_seeds(code)) == 1
