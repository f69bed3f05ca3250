"""OpenEnv both ways: a served environment plays as the local one, and a broken server costs its episode only."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openenv_fakes import failed, observed, our_server, scripted_server

from ragen2.envs import check_env, make
from ragen2.envs.adapters import openenv_session
from ragen2.envs.base import StepResult, TextEnv
from ragen2.errors import ConfigError, EnvironmentFault
from ragen2.prompting import reply as reply_module

pytest.importorskip("websockets", reason="the client of OpenEnv servers speaks by the package websockets")

MOVES = ("Up", "Down", "Left", "Right", "nonsense", "Up || Down", "\ud800", "\x00", "x" * 30_000)
SLIPPERY: dict[str, Any] = {"slip": 0.2}


def play(env: TextEnv, seed: int, noise: int, steps: int = 25) -> list[tuple[object, ...]]:
    shown: list[tuple[object, ...]] = [(env.reset(seed, noise).text,)]
    for index in range(steps):
        result = env.step(MOVES[(seed + 5 * index) % len(MOVES)])
        shown.append(seen(result))
        if result.done:
            shown.append(seen(env.step("Up")))
            break
    return shown


def seen(result: StepResult) -> tuple[object, ...]:
    flags = result.info["legal"], result.info.get("success")
    return result.observation.text, result.reward, result.terminated, result.truncated, flags


class TestRoundTrip:
    @pytest.fixture(autouse=True)
    def needs_openenv(self) -> None:
        pytest.importorskip("openenv", reason="serving needs openenv-core (extra openenv)")

    @pytest.mark.parametrize(
        "id, options",
        [("frozen-lake", SLIPPERY), ("bandit", {}), ("countdown", {}), ("sudoku", {})],
        ids=lambda value: str(value),
    )
    def test_a_served_environment_plays_as_the_local_one(self, id: str, options: dict[str, Any]) -> None:
        for split in ("train", "test"):
            with our_server(id, options=options) as url:
                remote, local = make("openenv", split, url=url), make(id, split, **options)
                assert remote.instructions == local.instructions
                assert remote.multi_action == local.multi_action
                for seed in range(6):
                    assert play(remote, seed, seed + 50) == play(local, seed, seed + 50)
                remote.close()

    def test_episodes_at_once_do_not_mix(self) -> None:
        local = make("frozen-lake", **SLIPPERY)
        alone = [play(local, seed, seed) for seed in range(8)]
        with our_server("frozen-lake", options=SLIPPERY) as url:
            envs = [make("openenv", url=url) for _ in range(8)]
            with ThreadPoolExecutor(8) as pool:
                assert list(pool.map(play, envs, range(8), range(8))) == alone
            for env in envs:
                env.close()

    def test_the_contract_is_kept(self) -> None:
        with our_server("bandit") as url:
            report = check_env(make("openenv", url=url), seeds=(0, 1, 2))
        assert report.ok, str(report)

    def test_the_noise_seed_is_the_servers_too(self) -> None:
        with our_server("frozen-lake", options={"slip": 0.5}) as url:
            env = make("openenv", url=url)
            assert len({str(play(env, 3, noise)) for noise in range(6)}) > 1
            env.close()

    def test_one_session_too_many_is_a_fault(self) -> None:
        with our_server("bandit", max_sessions=1) as url:
            first, second = make("openenv", url=url), make("openenv", url=url)
            first.reset(0, 0)
            with pytest.raises(EnvironmentFault, match="CAPACITY_REACHED"):
                second.reset(0, 0)
            first.close()

    def test_a_closed_session_is_opened_again_by_a_reset_only(self) -> None:
        with our_server("frozen-lake", idle_seconds=0.05) as url:
            env = make("openenv", url=url)
            before = env.reset(1, 1)
            env._session._socket.close()  # type: ignore[attr-defined]
            assert env.reset(1, 1) == before
            env._session._socket.close()  # type: ignore[attr-defined]
            with pytest.raises(EnvironmentFault, match="hung up"):
                env.step("Up")
            env.close()

    def test_wrong_arguments_of_a_reset_are_told(self) -> None:
        from ragen2.integrations.openenv_server import TextAction, session_factory

        session = session_factory("frozen-lake")()
        with pytest.raises(EnvironmentFault, match="reset first"):
            session.step(TextAction(text="Up"))
        wrong_arguments: list[dict[str, Any]] = [{"level_seed": -1}, {"split": "exam"}, {"noise": 3}]
        for wrong in wrong_arguments:
            with pytest.raises(ConfigError):
                session.reset(**wrong)
        shown = session.reset(seed=4, split="validation", episode_id="e")
        assert (shown.level_seed, shown.noise_seed, shown.split) == (4, 4, "validation")
        assert session.step(TextAction(text="Up")).metadata == {"terminated": False, "truncated": False, "stop_reason": None}
        assert (session.state.step_count, session.state.episode_id, session.state.level_seed) == (1, "e", 4)
        assert session.reset().level_seed != session.reset().level_seed

    def test_wrong_options_are_refused_before_serving(self) -> None:
        from ragen2.integrations.openenv_app import openenv_app

        for id, options in (("frozen-lak", {}), ("frozen-lake", {"sze": 4}), ("frozen-lake", {"split": "test"})):
            with pytest.raises(ConfigError):
                openenv_app(id, options=options)
        with pytest.raises(ConfigError):
            openenv_app("bandit", max_sessions=0)

    def test_bodies_are_bounded(self) -> None:
        with our_server("bandit") as url:
            for path in ("/reset", "/step"):
                request = urllib.request.Request(url + path, b"x" * (2 << 20), {"Content-Type": "application/json"})
                with pytest.raises(urllib.error.HTTPError) as refusal:
                    urllib.request.urlopen(request, timeout=10)
                assert refusal.value.code == 413
            with urllib.request.urlopen(url + "/health", timeout=10) as answer:
                assert json.load(answer)["status"] == "healthy"

    def test_a_reward_that_is_not_finite_never_leaves_the_server(self) -> None:
        import threading

        from ragen2.integrations.openenv_server import ServedEnv, TextAction

        env = make("bandit")
        served = ServedEnv(lambda split: env, "train", threading.Semaphore(1), "bandit")
        served.reset(seed=0)
        good = env.step("nonsense")
        env.step = lambda action: StepResult(good.observation, float("nan"), False, False, good.info)  # type: ignore[method-assign]
        with pytest.raises(EnvironmentFault, match="nan"):
            served.step(TextAction(text="Up"))


class TestClient:
    def test_actions_are_cut_where_the_rollout_cuts_them(self) -> None:
        assert openenv_session.MAX_ACTION_CHARS == reply_module.MAX_ACTION_CHARS

    @pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://here", "http://", 3], ids=str)
    def test_addresses_that_are_none(self, url: Any) -> None:
        with pytest.raises(ConfigError, match="url"):
            make("openenv", url=url)

    def test_nobody_there(self) -> None:
        with pytest.raises(EnvironmentFault, match="serve-env"):
            make("openenv", url="http://127.0.0.1:9").reset(0, 0)

    @pytest.mark.parametrize(
        "reply",
        [
            observed(float("nan")),
            observed(float("inf")),
            observed(None),
            observed("1.0"),
            observed([1.0]),
            observed(10**400),
            observed(1.0, done="yes"),
            {"type": "observation", "data": {"observation": "text", "reward": 0.0, "done": False}},
            {"type": "observation", "data": []},
            {"type": "state", "data": {}},
            ["no"],
            "no JSON",
            "[" * 100_000,
            "x" * (9 << 20),
            failed("EXECUTION_ERROR"),
            failed("SESSION_ERROR"),
            None,
        ],
        ids=lambda reply: str(reply)[:60],
    )
    def test_what_a_broken_server_says_is_a_fault(self, reply: Any) -> None:
        with scripted_server(lambda message: observed() if message["type"] == "reset" else reply) as url:
            env = make("openenv", url=url)
            env.reset(0, 0)
            with pytest.raises(EnvironmentFault):
                env.step("Up")
            assert env.reset(0, 0).text == "board"
            env.close()

    def test_silence_is_a_fault_and_its_late_answer_is_nobodys(self) -> None:
        import threading

        waiting = threading.Event()

        def answer(message: dict[str, Any]) -> Any:
            if message["type"] == "reset":
                return observed(text="fresh")
            waiting.wait(5)
            return observed(1.0, done=True, text="late")

        with scripted_server(answer) as url:
            env = make("openenv", url=url, timeout_s=0.2)
            env.reset(0, 0)
            with pytest.raises(EnvironmentFault, match="gave no answer"):
                env.step("Up")
            waiting.set()
            assert env.reset(0, 0).text == "fresh"
            env.close()

    def test_a_foreign_server(self) -> None:
        """Another field for the text, numbers as actions, a bare seed, rewards left out, success by reward."""
        sent: list[dict[str, Any]] = []

        def answer(message: dict[str, Any]) -> Any:
            sent.append(message["data"])
            done = message["type"] == "step" and message["data"]["move"] == 2
            return {
                "type": "observation",
                "data": {"observation": {"b": 1, "a": "é"}, "reward": 1 if done else None, "done": done},
            }

        with scripted_server(answer) as url:
            options = {"only_seed": True, "missing_reward": 0.0, "action_kind": "number", "action_field": "move"}
            env = make("openenv", url=url, action_extra={"who": 1}, instructions="Move.", **options)
            assert (env.instructions, env.multi_action) == ("Move.", False)
            assert env.reset(3, 4).text == '{"a": "é", "b": 1}'
            assert env.step("1").info == {"legal": True}
            for illegal in ("up", "1.5", "true", "[1]", "9" * 6000, "((((" * 2000, "٣", ""):
                assert env.step(illegal).info == {"legal": False}
            last = env.step("2")
            assert (last.reward, last.terminated, last.info["success"]) == (1.0, True, True)
            assert env.step("2").reward == 0.0
            env.close()
        assert sent == [{"seed": 0}, {"seed": 3}, {"move": 1, "who": 1}, {"move": 2, "who": 1}]

    def test_an_action_that_the_schema_refuses_is_illegal(self) -> None:
        with scripted_server(lambda m: observed() if m["type"] == "reset" else failed("VALIDATION_ERROR")) as url:
            env = make("openenv", url=url, action_kind="json")
            env.reset(0, 0)
            for action in ('{"text": "Up"}', "[1]", '{"text":'):
                result = env.step(action)
                assert (result.reward, result.info, result.observation.text) == (0.0, {"legal": False}, "board")
            env.close()

    def test_a_truncated_end_is_no_success(self) -> None:
        with scripted_server(lambda m: observed() if m["type"] == "reset" else observed(1.0, done=True, truncated=True)) as url:
            env = make("openenv", url=url)
            env.reset(0, 0)
            result = env.step("Up")
            assert (result.terminated, result.truncated, result.info["success"]) == (False, True, False)
            env.close()
