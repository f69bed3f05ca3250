"""A model, an environment and a configuration small enough to train for six iterations in seconds."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import ragen2
from ragen2.cli import main
from ragen2.envs.base import Observation, StepResult, TextEnv
from ragen2.envs.splits import draw_level, noise_rng
from ragen2.prompting.chat_format import ChatFormat
from ragen2.prompting.messages import system_text, turn_text
from ragen2.rollout.config import RolloutConfig
from ragen2.training.config import RunConfig, parse_config
from ragen2.training.petri import PetriConfig, new_petri
from ragen2.training.petri_tokenizer import build_tokenizer
from ragen2.training.setup import Parts, build_parts
from ragen2.trajectory import RolloutBatch, Trajectory, Turn, as_ids

COLOURS = "tiny-colours"
REASONS = ("a", "b", "c", "d", "e")


class Colours(TextEnv):
    """Two steps: "up" pays 1, "down" nothing, and chance (the noise seed) adds 0 or .25. `fault` misbehaves in a quarter of
    the episodes, or (`fault_everywhere`) in all; with `same` nothing pays."""

    multi_action = False

    def __init__(
        self,
        split: str = "train",
        *,
        fault: str = "",
        fault_everywhere: bool = False,
        hang_s: float = 1.0,
        same: bool = False,
    ) -> None:
        super().__init__(split)
        self.same = same
        self.fault, self.everywhere, self.hang_s = fault, fault_everywhere, hang_s
        self.level = self.steps = self.noise = 0
        self.chance = noise_rng(0)

    @property
    def instructions(self) -> str:
        return "Say up or down."

    def content(self) -> str:
        return f"tiny {self.level}"

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        if self.fault == "reset":
            raise OSError("no level today")
        self.level = draw_level(level_seed, self.split, lambda rng: int(rng.integers(60)), lambda level: f"tiny {level}")
        self.noise, self.steps, self.chance = noise_seed, 0, noise_rng(noise_seed)
        return Observation(f"level {self.level}")

    def step(self, action: str) -> StepResult:
        self.steps += 1
        reward = 0.0 if self.same else float(action.strip() == "up") + 0.25 * float(self.chance.integers(2))
        if self.fault and (self.everywhere or self.noise % 4 == 0):
            if self.fault == "raise":
                raise ValueError("the board fell\noff the table")
            if self.fault == "hang":
                time.sleep(self.hang_s)
            if self.fault == "nan":
                reward = float("nan")
        done = self.steps == 2
        info: dict[str, Any] = {"legal": True}
        if done:
            info["success"] = action.strip() == "up"
        return StepResult(Observation(f"step {self.steps}"), reward, done, False, info)


ragen2.register(COLOURS, Colours)


@cache
def tiny_tokenizer() -> Any:
    words = ["level step Say up or down Turn of actions left Reward system user assistant " + " ".join(REASONS)] * 3
    return build_tokenizer(words, size=900, merges=8)


def tiny_model(seed: int = 0, layers: int = 1) -> Any:
    shape = PetriConfig(hidden=32, layers=layers, heads=2, key_value_heads=1, feed_forward=64, embedding_std=0.2)
    return new_petri(shape, tiny_tokenizer(), seed)


def _taught_model() -> Any:
    """Most replies parse and both actions occur, so that returns differ: else no group would be kept and nothing tested."""
    tokenizer, model, rollout = tiny_tokenizer(), tiny_model(3), tiny_rollout()
    chat = ChatFormat(tokenizer, think=True)
    system = system_text("Say up or down.", multi_action=False, actions_per_turn=rollout.actions_per_turn, word_limit=30)
    rows = []
    for number, reason in enumerate(REASONS):
        for action in ("up", "down"):
            context = chat.initial_ids(system, turn_text(1, rollout.max_turns, rollout.max_actions, f"level {number}"))
            rows.append((context, chat.reply_ids(f" {reason}</think><answer>{action}</answer>")))
    width = max(len(context) + len(reply) for context, reply in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), -100)
    for row, (context, reply) in enumerate(rows):
        whole = torch.from_numpy(np.concatenate([context, reply]).astype(np.int64))
        ids[row, : len(whole)] = whole
        labels[row, len(context) : len(whole)] = whole[len(context) :]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@cache
def tiny_folder() -> Path:
    """A Hugging Face folder with the taught model, built once a process and removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix="ragen2-tiny-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _taught_model().save_pretrained(folder / "model")
    tiny_tokenizer().save_pretrained(folder / "model")
    return folder / "model"


def tiny_rollout() -> RolloutConfig:
    return RolloutConfig(**TINY["rollout"])


TINY: dict[str, Any] = {
    "env": COLOURS,
    "iterations": 6,
    "recipe": "tiny",
    "algorithm": "grpo",
    "rollout": {"groups": 2, "group_size": 4, "max_turns": 2, "turn_tokens": 12},
    "optimizer": {"learning_rate": 1e-3, "critic_learning_rate": 1e-3, "steps_per_iteration": 2},
    "validation": {"levels": 4},
    "monitor": {"probe_prompts": 4, "every": 2, "resamples": 20},
    "logging": {"writers": ["jsonl"], "rollouts_every": 2},
}


def tiny_settings(**changes: Any) -> dict[str, Any]:
    """Plain settings: TINY with sections updated key by key."""
    settings = {key: dict(value) if isinstance(value, dict) else value for key, value in TINY.items()}
    settings["model"] = {"name": str(tiny_folder()), "threads": 1, "device": "cpu"}
    for key, value in changes.items():
        old = settings.get(key)
        settings[key] = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return settings


def tiny_config(**changes: Any) -> RunConfig:
    return parse_config(tiny_settings(**changes))


def tiny_parts(config: RunConfig) -> Parts:
    return build_parts(config, config.model.name)


def random_turn(rng: np.random.Generator, index: int, context: np.ndarray, *, reward: float = 0.0, tokens: int = 0) -> Turn:
    """A turn of random ids after `context`; its sampling log-probabilities are random as well."""
    sampled = as_ids(rng.integers(300, size=tokens or int(rng.integers(2, 9))))
    return Turn(
        index=index,
        context_ids=as_ids(context),
        sampled_ids=sampled,
        logprobs=(-rng.random(len(sampled)) * 8).astype(np.float32),
        observation="o",
        reply="r",
        reasoning_span=None,
        actions=(),
        reward=reward,
        penalty=0.0,
        parse_status="ok",
        valid_action=True,
        truncated=False,
    )


def random_trajectory(
    rng: np.random.Generator, prompt: np.ndarray, rewards: tuple[float, ...], *, afresh: bool = False, **fields: Any
) -> Trajectory:
    """One turn a reward. Contexts extend what came before, or (`afresh`) share only the prompt, so that each turn is a row."""
    turns, shown = [], prompt
    for index, reward in enumerate(rewards):
        turn = random_turn(rng, index, shown, reward=reward)
        turns.append(turn)
        before = prompt if afresh else np.concatenate([shown, turn.sampled_ids])
        shown = np.concatenate([before, as_ids(rng.integers(300, size=int(rng.integers(1, 5))))])
    known = {"prompt_id": "p", "level_seed": 0, "noise_seed": 0, "environment": "e", "success": False, "valid": True}
    return Trajectory(**{**known, "stop_reason": "turns", **fields}, turns=tuple(turns))


def random_batch(
    seed: int = 0, groups: int = 3, size: int = 4, turns: int = 2, *, afresh: bool = False, equal: bool = False
) -> RolloutBatch:
    """Groups of random trajectories with rewards that differ (or are all `equal`)."""
    rng = np.random.default_rng(seed)
    trajectories = []
    for group in range(groups):
        prompt = as_ids(rng.integers(300, size=6 + 3 * group))
        for _ in range(size):
            rewards = tuple(0.0 if equal else round(float(x), 3) for x in rng.random(turns))
            trajectories.append(random_trajectory(rng, prompt, rewards, afresh=afresh, prompt_id=f"p{group}"))
    return RolloutBatch(tuple(trajectories), tuple(np.repeat(np.arange(groups), size).tolist()), 0)


@dataclass(frozen=True)
class Finished:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The only line on stderr. Fails when there are more, or a traceback."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err + self.out
        return lines[0]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """Runs the console script in this process."""

    def run(*arguments: str | Path) -> Finished:
        monkeypatch.setattr("sys.argv", ["ragen2", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = 0 if end.code is None else int(end.code)
        shown = capsys.readouterr()
        return Finished(code, shown.out, shown.err)

    return run


def tiny_recipe(folder: Path, **changes: Any) -> Path:
    """A recipe file whose runs go to `folder`/runs."""
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_settings(out=str(folder / "runs"), **changes)))
    return path


def only_run(out: Path) -> Path:
    (run,) = [path for path in out.iterdir() if path.is_dir()]
    return run


@pytest.fixture(autouse=True)
def one_thread():
    """Sums are the same in the same order only at one thread count."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
