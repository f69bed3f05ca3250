"""ALFWorld: generated homes, game files, ends, demonstrations, the child process."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import outputs_under_hash_seeds

import ragen2
from ragen2.envs import alfworld_play, check_env, split_of
from ragen2.envs.alfworld_env import AlfWorld
from ragen2.envs.alfworld_games import TASKS, World, generate, read_game
from ragen2.errors import ConfigError, EnvironmentFault, UnknownName

MISSING = [name for name in ("alfworld", "textworld", "fast_downward") if importlib.util.find_spec(name) is None]
needs_alfworld = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

HOME = World(
    plans={
        "1": {
            "classes": ["Cabinet", "Fridge", "Microwave", "SinkBasin", "Desk", "Mug", "Egg", "DeskLamp"],
            "openable": ["Cabinet"] * 9,
        }
    },
    fits={
        "Cabinet": ["Mug"],
        "Fridge": ["Egg", "Mug"],
        "Microwave": ["Egg", "Mug"],
        "SinkBasin": ["Mug"],
        "Desk": ["Mug"],
        "Mug": ["Egg"],
    },
    can={"Heatable": ["Mug"], "Coolable": ["Egg", "Mug"], "Cleanable": ["Mug"], "Toggleable": ["DeskLamp"], "Sliceable": []},
    openable=["Cabinet", "Fridge", "Microwave"],
    movable=["Mug"],
    goals={name: {"pddl": "(:goal ({obj} # {recep}{toggle})))", "words": ["do {obj} {recep}"]} for name in TASKS.values()},
    domain="",
    grammar="UNKNOWN GOAL",
)


def make(split: str = "train", **options: Any) -> AlfWorld:
    env = ragen2.make("alfworld", split, **options)
    assert isinstance(env, AlfWorld)
    return env


@pytest.mark.parametrize("task", sorted(TASKS))
def test_generated_problems_are_well_formed(task: str) -> None:
    games = [generate(HOME, (task,), np.random.default_rng(seed)) for seed in range(40)]
    found = [game for game in games if game is not None]
    assert len(found) >= 10
    for game in found:
        assert game.problem.count("(") == game.problem.count(")")
        assert game.task in game.content and game.problem in game.content and game.grammar == game.task
        places = {line.split()[0] for line in game.problem.splitlines() if line.endswith("- receptacle")}
        lying = [line.strip("()").split() for line in game.problem.splitlines() if line.startswith("(inReceptacle")]
        assert lying and all(place in places for _, _, place in lying)
        wanted = [thing for _, thing, _ in lying if thing.lower().startswith(game.task.split()[1])]
        assert len(wanted) >= (2 if task == "two" else 1)
        if task != "light":
            assert all(
                not place.lower().startswith(game.task.split()[2].removesuffix("basin"))
                for _, thing, place in lying
                if thing in wanted
            )


def test_generation_is_a_function_of_its_generator() -> None:
    first, again = (generate(HOME, tuple(TASKS), np.random.default_rng(4)) for _ in range(2))
    assert first == again


def test_bad_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'place'"):
        AlfWorld(tasks="plase")
    with pytest.raises(ConfigError, match="tasks are empty"):
        AlfWorld(tasks=())
    with pytest.raises(ConfigError, match="max_steps"):
        AlfWorld(max_steps=0)
    if not MISSING:
        with pytest.raises(ConfigError, match="holds no game"):
            AlfWorld(path=tmp_path)


@needs_alfworld
def test_contract() -> None:
    report = check_env(make(), seeds=(0,), steps=2)
    assert report.ok, str(report)


@pytest.mark.slow
@needs_alfworld
def test_contract_over_more_levels() -> None:
    report = check_env(make(), seeds=(0, 1, 2), steps=8)
    assert report.ok, str(report)


@needs_alfworld
def test_the_plan_reaches_the_goal_and_only_that_is_success() -> None:
    env = make(tasks="heat")
    text = env.reset(1, 0).text
    assert "Your task is to: " in text and "Commands: " in text
    rng, rewards = np.random.default_rng(0), []
    result = None
    while result is None or not result.done:
        shown = env.demonstrate(rng, 1.0, 2)
        assert shown.actions[0] in shown.reasoning
        for action in shown.actions:
            result = env.step(f" {action.upper()}")
            rewards.append(result.reward)
    assert result.terminated and not result.truncated and result.info == {"legal": True, "success": True}
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert env.step("look").reward == 0.0


@needs_alfworld
def test_the_limit_on_steps_is_a_truncation_without_success() -> None:
    env = make(max_steps=2)
    env.reset(0, 0)
    assert not env.step("look").done
    assert not env.step("fly away").done, "an illegal action is no step"
    result = env.step("inventory")
    assert result.truncated and not result.terminated and result.info == {"legal": True, "success": False}
    assert result.reward == 0.0


@needs_alfworld
def test_a_game_that_the_child_lost_goes_on() -> None:
    env = make()
    env.reset(0, 0)
    before = env.step("look").observation.text
    alfworld_play._child(os.getpid()).close()
    assert env.step("look").observation.text == before
    with pytest.raises(EnvironmentFault, match="call reset"):
        make().step("look")


@needs_alfworld
def test_game_files_are_read_by_path(tmp_path: Path) -> None:
    made = make()
    made.reset(0, 0)
    game = made._game
    assert game is not None
    for number in range(30):
        folder = tmp_path / "train" / f"task-{number}" / "trial_1"
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text(json.dumps({**game.as_textworld(), "solvable": True}))
    env = make(path=str(tmp_path))
    assert env.reset(0, 0).text == made.reset(0, 0).text
    assert split_of(env.content()) == "train" and env._game is not None and env._game.task == game.task
    other = tmp_path / "train" / "task-0" / "trial_1" / "other.tw-pddl"
    other.write_text("{}")
    with pytest.raises(ConfigError, match="no game of ALFWorld"):
        read_game(other)


@needs_alfworld
def test_a_broken_game_makes_the_episode_invalid(tmp_path: Path) -> None:
    for number in range(30):
        folder = tmp_path / f"task-{number}" / "trial_1"
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text(json.dumps({"pddl_domain": "(", "grammar": "", "pddl_problem": "("}))
    with pytest.raises(EnvironmentFault, match="invalid"):
        make(path=str(tmp_path)).reset(0, 0)


@pytest.mark.slow
@needs_alfworld
def test_levels_are_the_same_under_any_hash_seed() -> None:
    code = (
        "import ragen2\n"
        "env = ragen2.make('alfworld', 'validation')\n"
        "for seed in (0, 1): print(env.reset(seed, 0).text, env.content()); print(env.step('look').observation.text)"
    )
    assert len(outputs_under_hash_seeds(code)) == 1


HOSTILE = (
    "",
    "\x00",
    "\ud800",
    "look || look",
    "LOOK\u200b",
    "go to cabinet ١",
    "look;help",
    "{o.name}",
    "#task#",
    "x" * 100_000,
    "look" * 60,
)


@needs_alfworld
def test_hostile_commands_do_nothing() -> None:
    env = make()
    first = env.reset(0, 0).text
    for command in HOSTILE:
        result = env.step(command)
        assert result.info == {"legal": False} and result.reward == 0.0 and first in result.observation.text, command[:20]


@pytest.mark.slow
@needs_alfworld
@pytest.mark.parametrize("task", sorted(TASKS))
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_every_kind_of_task_is_solved_by_its_plan(task: str, split: str) -> None:
    env = make(split, tasks=task)
    for seed in range(3):
        env.reset(seed, 0)
        plan = env._playing().plan()
        assert plan
        results = [env.step(command) for command in plan]
        assert results[-1].info["success"] is True and sum(result.reward for result in results) == 1.0
