"""Our environments as chats for verifiers and as tools for TRL."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen2.envs import make
from ragen2.errors import ConfigError, StorageError, UnknownName
from ragen2.integrations.dialogue import Dialogue
from ragen2.integrations.trl_env import EpisodeOver, success_reward, trl_environment
from ragen2.integrations.verifiers_export import write_package
from ragen2.prompting.messages import turn_text
from ragen2.rollout.config import RolloutConfig


def reply_with(actions: str) -> str:
    return f"<think>I look.</think><answer>{actions}</answer>"


def way_to_the_goal(seed: int) -> list[str]:
    """Actions of the solver on a lake that does not slip."""
    import numpy as np

    env = make("frozen-lake", slip=0.0)
    env.reset(seed, 0)
    actions: list[str] = []
    done = False
    while not done:
        actions.append(env.demonstrate(np.random.default_rng(0), 1.0, 1).actions[0])
        done = env.step(actions[-1]).done
    return actions


class TestDialogue:
    def test_the_words_and_the_end_are_those_of_a_rollout(self) -> None:
        dialogue = Dialogue(make("frozen-lake", slip=0.0))
        system, first = dialogue.start(3, 0)
        env = make("frozen-lake", slip=0.0)
        assert env.instructions.strip() in system
        assert first == turn_text(1, 5, 10, env.reset(3, 0).text)
        way = way_to_the_goal(3)
        shown = [dialogue.answer(reply_with(" || ".join(way[index : index + 2]))) for index in range(0, len(way), 2)]
        assert shown[-1] is None and None not in shown[:-1]
        assert (dialogue.stop_reason, dialogue.success, dialogue.task_return) == ("terminated", True, 1.0)
        assert dialogue.answer(reply_with("Up")) is None
        assert dialogue.turns == dialogue.valid_thinks == dialogue.valid_actions == (len(way) + 1) // 2

    @pytest.mark.parametrize(
        "reply, notice",
        [
            ("Up", "The last reply broke the format."),
            ("<answer>Up</answer>", "The last reply broke the format."),
            (reply_with("Jump"), "No legal action in the last reply."),
            (reply_with(""), "No legal action in the last reply."),
        ],
    )
    def test_replies_that_do_nothing(self, reply: str, notice: str) -> None:
        dialogue = Dialogue(make("frozen-lake"))
        dialogue.start(0, 0)
        assert notice in str(dialogue.answer(reply))
        assert dialogue.valid_actions == 0

    def test_reasoning_may_come_apart_or_its_opening_tag_be_missing(self) -> None:
        for reply, apart in (
            ("<answer>Up</answer>", True),
            ("I look.</think><answer>Up</answer>", False),
            (reply_with("Up"), False),
        ):
            dialogue = Dialogue(make("frozen-lake"))
            dialogue.start(0, 0)
            dialogue.answer(reply, reasoning_apart=apart)
            assert dialogue.valid_thinks == 1

    def test_budgets_end_it(self) -> None:
        dialogue = Dialogue(make("frozen-lake"), RolloutConfig(max_turns=2))
        dialogue.start(0, 0)
        assert dialogue.answer("nothing") is not None
        assert dialogue.answer("nothing", ended=False) is None
        assert (dialogue.stop_reason, dialogue.success) == ("turns", False)
        dialogue = Dialogue(make("frozen-lake"), RolloutConfig(max_actions=2))
        dialogue.start(0, 0)
        assert dialogue.answer(reply_with("Jump || Jump || Jump")) is None
        assert dialogue.stop_reason == "actions"

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.text(max_size=60), max_size=5))
    def test_no_text_earns_a_reward_by_accident(self, replies: list[str]) -> None:
        dialogue = Dialogue(make("countdown"))
        dialogue.start(0, 0)
        for reply in replies:
            dialogue.answer(reply)
        assert dialogue.task_return == 0.0


class TestTrl:
    def test_what_trl_looks_for(self) -> None:
        env = trl_environment("frozen-lake", slip=0.0)()
        public = {name for name, _ in inspect.getmembers(type(env), inspect.isfunction) if not name.startswith("_")}
        assert public == {"reset", "act", "get_reward"}
        assert "Args:" in str(type(env).act.__doc__)

    def test_an_episode(self) -> None:
        env = trl_environment("frozen-lake", slip=0.0, max_actions=20)()
        shown = env.reset(level_seed=3, prompt=[], answer="other columns are no matter")
        assert make("frozen-lake", slip=0.0).reset(3, 0).text in shown
        assert "no legal action" in env.act("Jump")
        assert (env.get_reward(), success_reward([env])) == (0.0, [0.0])
        shown = [env.act(action) for action in way_to_the_goal(3)]
        assert "over" in shown[-1]
        assert (env.get_reward(), success_reward([env])) == (1.0, [1.0])
        with pytest.raises(EpisodeOver):
            env.act("Up")
        env.reset(level_seed=4, noise_seed=1)
        assert (env.get_reward(), success_reward([env])) == (0.0, [0.0])

    def test_the_budget_of_actions(self) -> None:
        env = trl_environment("frozen-lake", max_actions=2)()
        env.reset(level_seed=0)
        env.act("Jump")
        env.act("Jump")
        with pytest.raises(EpisodeOver, match="no actions left"):
            env.act("Up")

    def test_rows_and_options_that_do_not_fit(self) -> None:
        with pytest.raises(ConfigError, match="level_seed"):
            trl_environment("bandit")().reset(prompt=[])
        with pytest.raises(UnknownName):
            trl_environment("bandid")
        with pytest.raises(ConfigError):
            trl_environment("bandit", max_actions=0)()


class TestExport:
    def test_a_package_of_three_files(self, tmp_path: Path) -> None:
        written = write_package("frozen-lake", tmp_path / "out", {"slip": 0.0})
        assert (written.name, written.module) == ("ragen2-frozen-lake", "ragen2_frozen_lake")
        assert sorted(path.relative_to(tmp_path / "out").as_posix() for path in written.files) == [
            "README.md",
            "pyproject.toml",
            "ragen2_frozen_lake/__init__.py",
        ]
        project = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())
        assert project["project"]["name"] == written.name
        assert any(line.startswith("ragen2>=") for line in project["project"]["dependencies"])
        compile((tmp_path / "out" / written.module / "__init__.py").read_text(), "module", "exec")

    def test_what_is_refused(self, tmp_path: Path) -> None:
        for id, options, package in (
            ("frozen-lak", {}, None),
            ("frozen-lake", {"sze": 4}, None),
            ("frozen-lake", {"split": "test"}, None),
            ("frozen-lake", {}, "../escape"),
            ("frozen-lake", {}, "a_b"),
            ("frozen-lake", {"slip": float("nan")}, None),
        ):
            with pytest.raises(ConfigError):
                write_package(id, tmp_path / "out", options, package=package)
        assert not (tmp_path / "out").exists()
        write_package("bandit", tmp_path / "out")
        with pytest.raises(StorageError, match="not empty"):
            write_package("bandit", tmp_path / "out")


class Chat(BaseHTTPRequestHandler):
    """A model that always gives the same reply, streamed."""

    asked: list[dict[str, Any]]
    reply: str

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        delta = {"role": "assistant", "content": self.reply}
        chunks: list[dict[str, Any]] = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**head, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def model_url() -> Iterator[str]:
    Chat.asked, Chat.reply = [], reply_with("Jump")
    with ThreadingHTTPServer(("127.0.0.1", 0), Chat) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join(5)


@pytest.mark.slow
def test_verifiers_plays_an_exported_environment(tmp_path: Path, model_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """verifiers itself: its loader, its chat harness, a model behind HTTP."""
    vf: Any = pytest.importorskip("verifiers.v1", reason="needs verifiers 0.4 (extra verifiers)")
    loaders = importlib.import_module("verifiers.v1.utils.loaders")
    written = write_package("frozen-lake", tmp_path / "out", {"slip": 0.0})
    monkeypatch.syspath_prepend(str(tmp_path / "out"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("MODEL_KEY", "none")
    config = loaders.resolve_env_config({"taskset": {"id": written.name, "split": "validation", "max_turns": 3}})
    env = loaders.load_environment(config)
    Chat.reply = reply_with(" || ".join(["Jump", "Jump"]))

    async def episode() -> Any:
        context = vf.ModelContext(model="m", client=vf.EvalClientConfig(base_url=model_url, api_key_var="MODEL_KEY"))
        async with env.serving():
            return await env.run_episode(next(iter(env.taskset.take(1))), context)

    played = asyncio.run(asyncio.wait_for(episode(), 90))
    assert played.ok, played.errors
    (trace,) = played.traces
    assert trace.rewards["task_return"].score == 0.0
    assert trace.metrics == {"success": 0.0, "turns": 3.0, "valid_think_rate": 1.0, "valid_action_rate": 0.0}
    assert trace.info["stop_reason"] == "turns"
    assert [len(asked["messages"]) for asked in Chat.asked] == [2, 4, 6]
    assert "No legal action in the last reply." in str(Chat.asked[-1]["messages"][-1])
