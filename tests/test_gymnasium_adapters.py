"""gymnasium both ways: its environments behind our interface, ours behind its."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import ragen2
from ragen2.envs import check_env
from ragen2.envs.adapters.gymnasium_text import GymnasiumText
from ragen2.errors import ConfigError, EnvironmentFault, UnknownName

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")


class Words(gymnasium.Env[str, str]):
    """Say the shown word; texts in and out."""

    def __init__(self, limit: int = 3) -> None:
        self.observation_space = gymnasium.spaces.Text(20)
        self.action_space = gymnasium.spaces.Text(8, charset="abc")
        self.limit, self.left, self.word = limit, limit, ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.word, self.left = "".join("abc"[i] for i in self.np_random.integers(3, size=8)), self.limit
        return self.word, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        right = action == self.word
        return self.word, float(right), right, not right and self.left == 0, {}


@pytest.fixture(autouse=True)
def words() -> None:
    if "ragen2-test/Words-v0" not in gymnasium.registry:
        gymnasium.register("ragen2-test/Words-v0", Words)


def make(env_id: str, split: str = "train", **options: Any) -> GymnasiumText:
    env = ragen2.make(f"gymnasium/{env_id}", split, **options)
    assert isinstance(env, GymnasiumText)
    return env


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "CliffWalking-v1", "Blackjack-v1"])
def test_contract_of_numbered_actions(env_id: str) -> None:
    env = make(env_id)
    report = check_env(env, seeds=(0, 1, 2), steps=20, actions=env._actions)
    assert report.ok, str(report)


def test_contract_of_text_actions_split_by_content() -> None:
    report = check_env(make("ragen2-test/Words-v0", split_by_content=True), seeds=(0, 1, 2, 3), actions=("abc",))
    assert report.ok, str(report)


def test_actions_by_name_and_the_goal_is_success() -> None:
    env = make("FrozenLake-v1", options={"is_slippery": False})
    assert "Actions: left, down, right, up." in env.instructions
    assert env.reset(0, 0).text.startswith("[S]FFF")
    assert env.step("Right ").info == {"legal": True}
    assert env.step("jump").info == {"legal": False}
    results = [env.step(move) for move in ("right", "down", "down", "down", "right")]
    assert results[-1].terminated and results[-1].reward == 1.0 and results[-1].info["success"] is True
    assert env.step("up").reward == 0.0


def test_chance_follows_the_noise_seed() -> None:
    env = make("FrozenLake-v1")

    def play(noise: int) -> list[str]:
        env.reset(0, noise)
        return [env.step("left").observation.text for _ in range(12)]

    assert play(1) == play(1)
    assert len({tuple(play(noise)) for noise in range(6)}) > 1


def test_the_time_limit_is_a_truncation_without_success() -> None:
    env = make("ragen2-test/Words-v0")
    word = env.reset(0, 0).text
    assert env.step("xyz").info == {"legal": False}
    results = [env.step("abc") for _ in range(3)]
    assert results[-1].truncated and not results[-1].terminated and results[-1].info["success"] is False
    env.reset(0, 0)
    assert env.step(word).info == {"legal": True, "success": True}


def test_falling_over_is_no_success_though_it_pays() -> None:
    env = make("CartPole-v1")
    assert env.reset(1, 1).text.count(",") == 3
    result = env.step("left")
    while not result.done:
        result = env.step("left")
    assert result.reward == 1.0 and result.info["success"] is False
    low = make("CartPole-v1", success_return=5)
    low.reset(1, 1)
    result = low.step("left")
    while not result.done:
        result = low.step("left")
    assert result.info["success"] is True


def test_a_function_renders() -> None:
    env = make("CartPole-v1", render=lambda observation: f"{len(observation)} numbers", actions=("west", "east"))
    assert env.reset(0, 0).text == "4 numbers"
    assert env.step("east").info == {"legal": True}


@pytest.mark.parametrize(
    ("env_id", "options", "match"),
    [
        ("Nope-v0", {}, "cannot be made"),
        ("FrozenLake-v1", {"options": {"colour": 3}}, "cannot be made"),
        ("Pendulum-v1", {}, "Discrete or Text"),
        ("FrozenLake-v1", {"actions": ("a", "b")}, "give 4 different names"),
        ("FrozenLake-v1", {"actions": ("a", "A", "b", "c")}, "give 4 different names"),
    ],
)
def test_what_cannot_be_used_is_named(env_id: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make(env_id, **options)


def test_unknown_renderers_and_steps_before_reset_are_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'ansi'"):
        make("FrozenLake-v1", render="ansy")
    with pytest.raises(EnvironmentFault, match="call reset"):
        make("FrozenLake-v1").step("up")


@pytest.mark.parametrize("id", ["frozen-lake", "countdown", "bandit"])
def test_ours_pass_the_check_of_gymnasium(id: str) -> None:
    from gymnasium.utils.env_checker import check_env as check

    from ragen2.envs.adapters.to_gymnasium import to_gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        check(to_gymnasium(ragen2.make(id)))


def test_ours_behind_gymnasium_play_the_same_episode() -> None:
    from ragen2.envs.adapters.to_gymnasium import to_gymnasium

    ours, theirs = ragen2.make("frozen-lake"), to_gymnasium(ragen2.make("frozen-lake"), render_mode="ansi")
    shown, info = theirs.reset(seed=3, options={"level_seed": 4, "noise_seed": 5})
    assert shown == ours.reset(4, 5).text == theirs.render()
    assert info == {"level_seed": 4, "noise_seed": 5, "instructions": ours.instructions}
    for move in ("Up", "Right", "nonsense \u221a", "Down"):
        result = ours.step(move)
        assert theirs.step(move) == (
            result.observation.text,
            result.reward,
            result.terminated,
            result.truncated,
            dict(result.info),
        )
        assert result.observation.text in theirs.observation_space and move in theirs.action_space
    assert theirs.reset(seed=9)[1] == theirs.reset(seed=9)[1] != theirs.reset(seed=10)[1]
    theirs.close()
