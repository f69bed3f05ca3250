"""Replaying recorded trajectories: same seeds, same frames; differences are said; hostile text stays text."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import ragen2
from ragen2.cli import app
from ragen2.envs.base import TextEnv
from ragen2.errors import ConfigError, UnknownName
from ragen2.reports.png import png_uri
from ragen2.reports.replay import last_picture, options_of_run, pick, recorded_environment, replay
from ragen2.reports.replay_page import SAME, replay_html, replay_text
from ragen2.reports.run_data import read_run
from ragen2.reports.run_report import report_html
from ragen2.trajectory import RolloutBatch, Trajectory, Turn, as_ids

EVIL = '<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31m \u202e & "quoted"'


def turn(index: int, observation: str, actions: tuple[str, ...], reward: float, reply: str) -> Turn:
    return Turn(
        index, as_ids([]), as_ids([]), np.zeros(0, np.float32), observation, reply, None, actions, reward, 0.0, "ok", True, False
    )


def record(id: str, options: dict[str, Any], level: int = 3, noise: int = 5, split: str = "train", turns: int = 6) -> Trajectory:
    """A trajectory played by the demonstrator, recorded as the collector records."""
    env = ragen2.make(id, split, **options)
    rng, shown, said = np.random.default_rng(0), env.reset(level, noise), []
    result = None
    while len(said) < turns and not (result is not None and result.done):
        demo = env.demonstrate(rng, 0.7, 2)
        # The collector records all actions of a reply, those after the end too.
        actions, rewards, before = (*demo.actions, "Up"), [], shown
        for action in actions:
            result = env.step(action)
            rewards.append(result.reward)
            shown = result.observation
            if result.done:
                break
        reply = f"{demo.reasoning} {EVIL}</think><answer>{' || '.join(actions)}</answer>"
        said.append(turn(len(said), before.text, actions, math.fsum(rewards), reply))
    assert result is not None
    success, reason = bool(result.info.get("success")), "terminated" if result.done else "turns"
    return Trajectory(
        f"{id}/{split}/{level}", level, noise, id, tuple(said), success, True, reason, None, final_observation=shown.text
    )


CASES: list[tuple[str, dict[str, Any]]] = [
    ("frozen-lake", {"slip": 0.4, "size": 6}),
    ("sokoban", {"size": 6}),
    ("2048", {"size": 3, "target": 32}),
    ("pocket-cube", {"scramble": 4}),
    ("spatial", {"rows": 2}),
    ("countdown", {}),
    ("bandit", {}),
]


@pytest.mark.parametrize(("id", "options"), CASES)
@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_replay_repeats_the_record(id: str, options: dict[str, Any], split: str) -> None:
    trajectory = record(id, options, split=split)
    replayed = replay(trajectory, recorded_environment(trajectory, options))
    assert replayed.differences == ()
    shown = [frame.text for frame in replayed.frames if frame.action is None]
    assert shown == [item.observation for item in trajectory.turns]
    assert replayed.frames[-1].text == trajectory.final_observation
    assert math.fsum(frame.reward for frame in replayed.frames) == pytest.approx(trajectory.task_return)
    draws = id not in ("countdown", "bandit")
    assert len(replayed.pictures) == (len(replayed.frames) if draws else 0)
    assert (last_picture(trajectory, options) is not None) is draws


def test_differences_are_said() -> None:
    trajectory = record("frozen-lake", {"slip": 0.0, "size": 8})
    other = replay(trajectory, ragen2.make("frozen-lake", size=8, slip=1.0))
    assert any("observation" in difference for difference in other.differences)
    assert last_picture(trajectory, {"size": 4}) is None
    first = trajectory.turns[0]
    paid = replace(trajectory, turns=(replace(first, reward=first.reward + 0.5), *trajectory.turns[1:]))
    same_env = ragen2.make("frozen-lake", size=8, slip=0.0)
    assert replay(paid, same_env).differences[0] == f"turn 1: reward {first.reward:g} here, {first.reward + 0.5:g} in the record"
    claimed = replay(replace(trajectory, success=not trajectory.success), same_env)
    assert claimed.differences == (f"success is {trajectory.success} here, {not trajectory.success} in the record",)
    assert SAME not in replay_text(claimed)
    assert "differs from the record" in replay_html(claimed)


def test_a_turn_that_broke_is_not_compared() -> None:
    trajectory = record("frozen-lake", {"slip": 0.0, "size": 8})
    broken = replace(trajectory, fault="step hung", valid=False, success=False, stop_reason="fault")
    last = replace(broken.turns[-1], reward=0.0, actions=("Up",))
    replayed = replay(replace(broken, turns=(*broken.turns[:-1], last)), recorded_environment(broken, {"slip": 0.0, "size": 8}))
    assert replayed.differences == ()
    assert replayed.frames[-1].action is None
    assert "left out: step hung" in replay_text(replayed)


def test_the_page_shows_hostile_text_as_text_and_runs_its_own_script_alone() -> None:
    trajectory = record("frozen-lake", {})
    page = replay_html(replay(trajectory, recorded_environment(trajectory, {})))
    assert page.count("<script>") == 1
    assert "<img src=x" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page and "\u202e" not in page
    assert page.count('src="data:image/png;base64,') == page.count('class="frame"') > 2
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=\"(?!data:)|https?://", page)
    text = replay_text(replay(trajectory, recorded_environment(trajectory, {})))
    assert "\x1b" not in text and "\u202e" not in text
    assert text.endswith(SAME)


def test_environment_and_options_are_found(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "rollouts").mkdir(parents=True)
    file = run / "rollouts" / "train-000001.jsonl"
    assert options_of_run(file, "frozen-lake") == {}
    (run / "config.yaml").write_text("env:\n  id: frozen-lake\n  groups: 4\n  size: 6\n  slip: 0.4\n")
    assert options_of_run(file, "frozen-lake") == {"size": 6, "slip": 0.4}
    assert options_of_run(file, "sokoban") == {}
    (run / "config.yaml").write_text("environments:\n- {id: sokoban, size: 7}\n- frozen-lake\n")
    assert options_of_run(file, "sokoban") == {"size": 7}
    assert options_of_run(file, "frozen-lake") == {}
    (run / "config.yaml").write_text("environments: [")
    with pytest.raises(ConfigError, match="not YAML"):
        options_of_run(file, "sokoban")
    trajectory = record("countdown", {}, split="validation")
    env: TextEnv = recorded_environment(trajectory, {})
    assert env.split == "validation"
    assert recorded_environment(trajectory, {}, "test").split == "test"
    with pytest.raises(UnknownName, match="sizes"):
        recorded_environment(trajectory, {"sizes": 3})
    with pytest.raises(ConfigError, match="index is 1"):
        pick((trajectory,), 1)


def test_the_run_report_shows_the_last_picture_of_grid_environments(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "config.yaml").write_text("environments:\n- {id: frozen-lake, size: 6}\n- countdown\n")
    drawn, other = record("frozen-lake", {"size": 6}), record("countdown", {})
    RolloutBatch((drawn, other), (0, 1), 1, {}).to_jsonl(tmp_path / "rollouts" / "train-000001.jsonl")
    page = report_html(read_run(tmp_path))
    image = last_picture(drawn, {"size": 6})
    assert image is not None
    assert page.count("<img") == page.count(png_uri(image)) == 1
    (tmp_path / "config.yaml").write_text("environments: [")
    assert "<img" not in report_html(read_run(tmp_path))


def run_command(*words: object) -> Any:
    return CliRunner().invoke(app, ["replay", *(str(word) for word in words)])


def test_the_command(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "rollouts").mkdir(parents=True)
    (run / "config.yaml").write_text("env: {id: frozen-lake, size: 6, slip: 0.4}\n")
    file = run / "rollouts" / "train-000001.jsonl"
    trajectories = (record("frozen-lake", {"size": 6, "slip": 0.4}), record("countdown", {}))
    RolloutBatch(trajectories, (0, 1), 1, {}).to_jsonl(file)
    done = run_command(file)
    assert done.exit_code == 0, done.output
    page = (run / "rollouts" / "train-000001-0.html").read_text()
    assert SAME in page
    done = run_command(file, "--out", tmp_path / "a.gif")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.gif").read_bytes().startswith(b"GIF89a")
    assert SAME in run_command(file, "--text").output
    assert "differs from the record" in run_command(file, "slip=1.0", "--out", tmp_path / "b.html").output
    assert SAME in run_command(file, "--index", 1, "--text").output
    for words, match in (
        ((file, "--index", 1, "--out", tmp_path / "c.gif"), "draws no pictures"),
        ((file, "--index", 7), "index is 7"),
        ((file, "--out", tmp_path / "c.mp4"), "ends in .html or .gif"),
    ):
        wrong = run_command(*words)
        assert isinstance(wrong.exception, ConfigError)
        assert match in str(wrong.exception)
