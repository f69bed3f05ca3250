"""Rollout files of other trainers, written the way their writers do, planted rollouts of ours, and scorers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_tokenizer

from ragen2.diagnostics.rollout_files import read_rollouts
from ragen2.trajectory import RolloutBatch, Trajectory, Turn, as_ids

CELLS = ("a1", "b2", "c3", "d4", "e5", "f6", "g7", "h8")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def write_lines(path: Path, records: list[Any], end: str = "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(item if isinstance(item, str) else json.dumps(item) for item in records) + end)
    return path


def samples_of(path: Path, **options: Any) -> list[Any]:
    return list(read_rollouts(path, **options))


def values(run: Any, name: str) -> list[float]:
    return [value for _, value in run.series[name]]


def verl_row(prompt: str, output: str, score: float, step: int, **extra: Any) -> dict[str, Any]:
    return {"input": prompt, "output": output, "gts": None, "score": score, "step": step, **extra}


def reply(reasoning: str, answer: str = "up", opener: str = "<think>") -> str:
    return f"{opener}{reasoning}</think><answer>{answer}</answer>"


def verl_folder(folder: Path, steps: tuple[int, ...] = (2, 10)) -> Path:
    for step in steps:
        rows = [
            verl_row(
                f"system\nuse <answer>\nuser\ncell {cell}\nassistant\n",
                reply(f" {cell} "),
                float(member == 0),
                step,
                acc=member == 0,
            )
            for cell in CELLS
            for member in range(2)
        ]
        write_lines(folder / f"{step}.jsonl", rows)
    return folder


def evaluation_record(group: int, success: bool, number: int) -> dict[str, Any]:
    return {
        "custom_id": f"traj_{number}",
        "messages": [
            {"role": "user", "content": f"state {group}"},
            {"role": "assistant", "content": reply("look", opener="<think>")},
            {"role": "user", "content": "next state (reward: -0.1)"},
            {"role": "assistant", "content": reply("again", opener="")},
        ],
        "metadata": {
            "env_id": number,
            "group_id": group,
            "num_turns": 2,
            "total_reward": 1.0 if success else -0.2,
            "success": False,
            "CoordSokoban/success": float(success),
            "n_tokens": 30,
        },
    }


def trl_file(path: Path, step: int, *, chat: bool) -> Path:
    pyarrow = pytest.importorskip("pyarrow", reason="reading parquet needs the extra logs")
    from pyarrow.parquet import write_table

    prompts, completions, right = [], [], []
    for cell in CELLS:
        for member in range(2):
            asked, said = f"cell {cell}", reply(f" {cell} {member}")
            prompts.append([{"role": "user", "content": asked}] if chat else f"{asked}\n<think>")
            completions.append([{"role": "assistant", "content": said}] if chat else said.removeprefix("<think>"))
            right.append(float(member))
    table = pyarrow.table(
        {
            "step": [step] * len(prompts),
            "prompt": prompts,
            "completion": completions,
            "accuracy_reward": right,
            "format_reward": [0.5] * len(prompts),
            "tries": [3] * len(prompts),
            "advantage": [0.0] * len(prompts),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(table, path, row_group_size=5)
    return path


def trace_record(
    key: str, turns: list[tuple[str, str]], *, step: int = 3, ids: bool = True, reward: float = 1.0
) -> dict[str, Any]:
    """An episode with one trace; `turns` are (user text, reply)."""
    tokenizer, nodes = tiny_tokenizer(), []

    def node(role: str, content: str, scaffold: str, sampled: bool) -> None:
        before = tokenizer.encode(scaffold, add_special_tokens=False)
        own = tokenizer.encode(content + "<|im_end|>", add_special_tokens=False) if sampled else []
        item = {"message": {"role": role, "content": content}, "sampled": sampled, "timestamp": 1.0}
        item |= {"parent": len(nodes) - 1} if nodes else {}
        if ids:
            item |= {"token_ids": before + own, "mask": [False] * len(before) + [True] * len(own), "logprobs": [-1.0] * len(own)}
        nodes.append(item)

    for asked, said in turns:
        node("user", asked, f"<|im_start|>user\n{asked}<|im_end|>\n", False)
        node("assistant", said, "<|im_start|>assistant\n", True)
    trace = {
        "task": {"type": "T", "data": {"id": 1}, "key": key},
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "nodes": nodes,
        "calls": [{"node": len(nodes) - 1, "finish_reason": "stop"}],
        "rewards": {"solve": {"score": reward, "weight": 2.0}, "style": {"score": 0.5, "weight": 0.0}},
        "metrics": {"success": reward},
        "ok": True,
    }
    run = {"type": "train", "id": "r", "work": {"type": "train", "step": step}}
    return {"id": key, "env": {"id": "maze"}, "task": trace["task"], "run": run, "ok": True, "errors": [], "traces": [trace]}


def planted_batch(*, copies: bool, turns: int = 2, members: int = 4) -> RolloutBatch:
    """Reasoning that repeats the prompt's cell, or the same words for every prompt."""
    tokenizer, trajectories, groups = tiny_tokenizer(), [], []
    for group, cell in enumerate(CELLS):
        for member in range(members):
            shown = tokenizer.encode(f"user level {cell} Say up assistant<think>", add_special_tokens=False)
            made = []
            for index in range(turns):
                reasoning = f" {cell} {cell} {cell}" if copies else " a b c"
                text = f"{reasoning}</think><answer> up</answer><|im_end|>"
                sampled = tokenizer.encode(text, add_special_tokens=False)
                length = len(tokenizer.encode(reasoning, add_special_tokens=False))
                parses = (group, member, index) != (0, 0, 1)
                made.append(
                    Turn(
                        index=index,
                        context_ids=as_ids(shown),
                        sampled_ids=as_ids(sampled),
                        logprobs=np.zeros(len(sampled), dtype=np.float32),
                        observation="",
                        reply=text,
                        reasoning_span=(0, length) if parses else None,
                        actions=("up",),
                        reward=float(member % 2),
                        penalty=-0.1,
                        parse_status="ok" if parses else "stray_text",
                        valid_action=parses,
                        truncated=False,
                    )
                )
                shown = [*shown, *sampled, *tokenizer.encode(f"user step {cell} assistant<think>", add_special_tokens=False)]
            trajectories.append(Trajectory(f"p{cell}", group, member, "lake", tuple(made), member % 2 == 0, True, "turns"))
            groups.append(group)
    return RolloutBatch(tuple(trajectories), tuple(groups), 3)


class CopyReader:
    """Finds a reasoning likely when its tokens occur in the context: a policy that reads its prompt."""

    tokenizer = property(lambda self: tiny_tokenizer())

    def score(self, contexts, continuations):
        tables = [set(np.asarray(context).tolist()) for context in contexts]
        return [
            [np.array([-0.1 if int(token) in known else -12.0 for token in row]) for row in rows]
            for known, rows in zip(tables, continuations, strict=True)
        ]


class Bare:
    """A scorer without a tokenizer."""

    def score(self, contexts, continuations):
        raise AssertionError("nothing can be scored")
