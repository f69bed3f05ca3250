"""Stand-ins for tests: tiny tokenizers with real chat templates, a scripted engine and a scripted environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ragen2.engines.base import Reply, SamplingConfig, Session
from ragen2.envs.base import Observation, StepResult, TextEnv
from ragen2.prompting.chat_format import ChatFormat
from ragen2.rollout.collector import Collector, Level
from ragen2.rollout.config import RolloutConfig
from ragen2.rollout.env_pool import MakeEnv
from ragen2.trajectory import Ids, RolloutBatch, Trajectory

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Keeps every message as it is."""

STRIPPING = (
    "{%- for message in messages %}{%- set text = message['content'] %}"
    "{%- if message['role'] == 'assistant' and '</think>' in text %}"
    "{%- set text = text.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
    "{{- '<|im_start|>' + message['role'] + '\n' + text + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""Drops the reasoning of earlier replies."""

CORPUS = (
    "system user assistant You solve a task in turns. Think first, then answer: <think> reasoning </think> <answer> up || left "
    "</answer> Turn 1 of 5, 10 actions left. Reward 0.0. player b3 goal d1 hello world end"
)


def byte_tokenizer(template: str | None = CHATML, *, tags: bool = False, merges: int = 60, control_special: bool = True) -> Any:
    """A byte-level BPE tokenizer of some 320 tokens; `tags=True` makes the think tags one token each; `control_special=False`
    has the tokens around messages as added tokens that are not flagged special (the end token stays special)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 4 + merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"] if control_special else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS] * 4, trainer)
    if not control_special:
        tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("<|endoftext|>", "<|im_start|>")])
        tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True, normalized=False)])
    if tags:
        tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    fast.chat_template = template  # pyright: ignore
    return fast


Script = Callable[[int, int, str], str | tuple[str, bool]]
"""(row, turn counted from 0, text of the context) -> reply text, and False beside it where the reply shall not end itself."""


class ScriptedEngine:
    """An engine whose replies are written by a script. One sampled token takes one tick, so that short replies finish first.

    `contexts[row]` are the contexts each row was shown, `sampled[row]` what it gave back, `closed` the rows closed. It cuts
    replies at the sampling limits like a real engine (`model_limit`: the longest row its model takes) and refuses a row that
    is resumed while it runs.
    """

    def __init__(self, chat_format: ChatFormat, script: Script, model_limit: int = 1_000_000) -> None:
        self.chat_format, self.script, self.model_limit = chat_format, script, model_limit
        self.contexts: dict[int, list[Ids]] = {}
        self.sampled: dict[int, list[Ids]] = {}
        self.closed: list[int] = []
        self.finish_order: list[tuple[int, int]] = []
        self.seeds: list[int] = []
        self._pending: dict[int, tuple[int, Reply]] = {}
        self._now = 0
        self._sampling = SamplingConfig()

    def open(self, prompts_P: Sequence[Ids], group_size: int, sampling: SamplingConfig, seeds_R: Sequence[int]) -> Session:
        assert len(seeds_R) == len(prompts_P) * group_size
        self._sampling, self.seeds = sampling, list(seeds_R)
        self.contexts, self.sampled, self.closed, self.finish_order = {}, {}, [], []
        for row in range(len(seeds_R)):
            self.resume(row, prompts_P[row // group_size])
        return self

    def advance(self) -> list[Reply]:
        if not self._pending:
            return []
        self._now = min(due for due, _ in self._pending.values())
        done = sorted(row for row, (due, _) in self._pending.items() if due == self._now)
        replies = [self._pending.pop(row)[1] for row in done]
        self.finish_order += [(row, len(self.contexts[row]) - 1) for row in done]
        return replies

    def resume(self, row: int, context_ids: Ids) -> None:
        assert row not in self._pending
        assert row not in self.closed
        self.contexts.setdefault(row, []).append(context_ids)
        turn = len(self.contexts[row]) - 1
        written = self.script(row, turn, self.chat_format.decode(context_ids))
        text, ended = (written, True) if isinstance(written, str) else written
        ids = self.chat_format.reply_ids(text)
        ids = ids if ended else ids[:-1]
        assert len(context_ids) < self._sampling.context_tokens
        room = max(0, min(self._sampling.turn_tokens, min(self.model_limit, self._sampling.context_tokens) - len(context_ids)))
        ended, ids = ended and len(ids) <= room, ids[:room]
        self.sampled.setdefault(row, []).append(ids)
        self._pending[row] = (self._now + len(ids), Reply(row, ids, fake_logprobs(ids), ended))

    def close(self, row: int) -> None:
        self._pending.pop(row, None)
        self.closed.append(row)

    def score(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> list[list[np.ndarray]]:
        return [[fake_logprobs(ids) for ids in group] for _, group in zip(contexts, continuations, strict=True)]


def fake_logprobs(ids: Ids) -> np.ndarray:
    """A log-probability that tells which token it belongs to."""
    return (-(ids.astype(np.float32) + 1) / 1000).astype(np.float32)


class CountingEnv(TextEnv):
    """Counts up to `goal`: "up" adds one (reward .1), "down" takes one away (reward -.1), anything else is illegal and changes
    nothing. Reaching the goal terminates (reward 1 more); `limit` steps truncate. Actions "raise", "hang", "nan", "text",
    "exit" and "silent" misbehave in the way they say; `misbehave` does so on reset."""

    multi_action = True

    def __init__(self, split: str = "train", *, goal: int = 3, limit: int = 100, start: str = "", misbehave: str = "") -> None:
        super().__init__(split)
        self.goal, self.limit, self.start, self.misbehave = goal, limit, start, misbehave
        self.count = self.steps = 0
        self.done: list[str] = []
        self.closed = False
        self.resets: list[tuple[int, int]] = []

    @property
    def instructions(self) -> str:
        return f"Count to {self.goal}. Actions: up, down."

    def content(self) -> str:
        return str(self.goal)

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        if self.misbehave == "raise" and noise_seed == 1:
            raise ValueError("no level today")
        if self.misbehave == "hang" and noise_seed == 1:
            time.sleep(5)
        self.resets.append((level_seed, noise_seed))
        self.count = self.steps = 0
        self.done = []
        shown = f" of {noise_seed}" if self.misbehave == "differ" else ""
        return Observation(f"level {level_seed}{shown}{self.start} count 0")

    def step(self, action: str) -> StepResult:
        self.steps += 1
        self.done.append(action)
        reward: Any = {"up": 0.1, "down": -0.1, "nan": float("nan"), "text": "1"}.get(action, 0.0)
        self.count += {"up": 1, "down": -1}.get(action, 0)
        if action == "raise":
            raise KeyError("broken")
        if action == "exit":
            raise SystemExit(3)
        if action == "hang":
            time.sleep(5)
        won = self.count >= self.goal
        ended = won or self.steps >= self.limit
        info = {"legal": action in ("up", "down"), **({"success": won} if ended else {})}
        observation = Observation(f"count {self.count}")
        return StepResult(
            observation, reward + 1.0 if won else reward, won, ended and not won, {} if action == "silent" else info
        )

    def close(self) -> None:
        self.closed = True


APPEND = ChatFormat(byte_tokenizer(tags=True))
APPEND_MANY = ChatFormat(byte_tokenizer())
AFRESH = ChatFormat(byte_tokenizer(STRIPPING))
UP = "go</think><answer>up</answer>"
UP_UP = "go go</think><answer>up || up</answer>"


def levels(make: MakeEnv, groups: int = 1, size: int = 1, *, noise: Sequence[int] | None = None) -> list[Level]:
    return [
        Level("counting", make, 100 + group, tuple(noise or range(10 * group, 10 * group + size)), f"prompt-{group}")
        for group in range(groups)
    ]


def play(
    script: Script | str,
    *,
    make: MakeEnv = CountingEnv,
    groups: int = 1,
    size: int = 1,
    chat: ChatFormat = APPEND,
    noise: Sequence[int] | None = None,
    **config,
) -> tuple[RolloutBatch, ScriptedEngine, Collector]:
    written = script
    engine = ScriptedEngine(chat, (lambda row, turn, text: written) if isinstance(written, str) else written)
    collector = Collector(engine, chat, RolloutConfig(**{"turn_tokens": 200, "context_tokens": 4000, **config}))
    asked = levels(make, groups, size, noise=noise)
    batch = collector.collect(asked, list(range(groups * len(asked[0].noise_seeds))), policy_version=7)
    return batch, engine, collector


def alone(batch: RolloutBatch) -> Trajectory:
    (trajectory,) = batch.trajectories
    return trajectory


def answer(*actions: str) -> str:
    return f"so</think><answer>{' || '.join(actions)}</answer>"


class FixedReply:
    """In place of a `ScriptedEngine.chat_format`: every reply is these very ids."""

    def __init__(self, ids: np.ndarray) -> None:
        self.ids = ids

    def reply_ids(self, text: str) -> np.ndarray:
        return self.ids

    def decode(self, ids: np.ndarray) -> str:
        return ""
