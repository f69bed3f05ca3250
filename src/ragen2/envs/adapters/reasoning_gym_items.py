"""Items of reasoning-gym and their scores, from a child process, and from the sandbox where an answer would be executed."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen2.envs.adapters.reasoning_gym_names import EXECUTING_GENERATORS, SANDBOXED
from ragen2.envs.json_child import JsonChild, TookTooLong
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency, SandboxBroken
from ragen2.sandbox import Sandbox, SandboxLimits

ITEM_SECONDS, SCORE_SECONDS = 120.0, 8.0
"""Processor time of one item and of one score. A verifier that needs more was made to hang by the answer: it scores 0."""

_PROGRAM = Path(__file__).with_name("reasoning_gym_child.py")
_LIMITS = SandboxLimits(cpu_seconds=8, wall_seconds=30.0, memory_bytes=4 << 30, processes=32)


@dataclass(frozen=True)
class Item:
    """A question with its place in the data set; `answer` is None where many are right and none is given."""

    index: int
    question: str
    answer: str | None
    numbers: tuple[int, ...] | None


@dataclass(frozen=True)
class ItemSource:
    """A data set with its options (JSON, keys sorted) and the mode of its sandbox."""

    dataset: str
    options: str
    sandbox: str

    def item(self, index: int) -> Item:
        """The item of an index. Raises ConfigError for options that the data set refuses."""
        reply = _item_reply(self, index)
        if "error" in reply:
            raise ConfigError(f"reasoning-gym/{self.dataset} refused the options {self.options}: {reply['error']}")
        numbers = reply["numbers"]
        return Item(index, reply["question"], reply["answer"], None if numbers is None else tuple(numbers))

    def score(self, index: int, answer: str) -> float:
        """What the data set's verifier gives an answer; 0 where it fails or hangs on it."""
        reply = _ask(self, {"index": index, "answer": answer, "seconds": SCORE_SECONDS}, sandboxed=self.dataset in SANDBOXED)
        score = reply.get("score")
        if not isinstance(score, float):
            raise EnvironmentFault(f"reasoning-gym/{self.dataset} gave {str(reply)[:80]} where a score was due")
        return score


def require_reasoning_gym() -> None:
    """Raises MissingDependency where reasoning-gym is not installed."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise MissingDependency("reasoning-gym", "reasoning-gym", "an environment 'reasoning-gym/…'")


@functools.lru_cache(maxsize=2048)
def _item_reply(source: ItemSource, index: int) -> dict[str, Any]:
    return _ask(source, {"index": index}, sandboxed=source.dataset in EXECUTING_GENERATORS)


def _ask(source: ItemSource, details: Mapping[str, Any], *, sandboxed: bool) -> dict[str, Any]:
    request = {"dataset": source.dataset, "options": json.loads(source.options), **details}
    if sandboxed:
        return _ask_sandbox(source.sandbox, {**request, "module": _module(source.dataset)})
    try:
        return _child(os.getpid()).ask(request)
    except TookTooLong:
        if "answer" in details:
            return {"score": 0.0}
        raise


@functools.cache
def _module(dataset: str) -> str:
    return str(_child(os.getpid()).ask({"dataset": dataset, "where": True})["module"])


@functools.lru_cache(maxsize=1)
def _child(process: int) -> JsonChild:
    """The child of this process: a forked one must not share its parent's pipes."""
    child = JsonChild(_PROGRAM, ITEM_SECONDS, "the child process of reasoning-gym")
    atexit.register(child.close)
    return child


_sandbox_lock = threading.Lock()


@functools.lru_cache(maxsize=4)
def _sandbox(mode: str, process: int) -> Sandbox:
    """The sandbox of this process, shown the folders that hold reasoning-gym and what it imports."""
    folders = {}
    for package in ("reasoning_gym", "numpy", "sympy"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise MissingDependency(package, "reasoning-gym", "scoring an answer of reasoning-gym in the sandbox")
        folders[Path(spec.origin).resolve().parent.parent] = None
    sandbox = Sandbox(_LIMITS, mode=mode, paths=tuple(folders))
    atexit.register(sandbox.close)
    return sandbox


def _ask_sandbox(mode: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to a request from the program, run in the sandbox. A run that the answer drove over a limit scores 0."""
    with _sandbox_lock:
        result = _sandbox(mode, os.getpid()).run(_program(), json.dumps(request) + "\n")
    try:
        reply = json.loads(result.stdout) if result.ok else None
    except ValueError:
        reply = None
    if isinstance(reply, dict):
        return reply
    if result.cause in ("time", "memory", "output", "killed") and "answer" in request:
        return {"score": 0.0}
    raise SandboxBroken(
        f"reasoning-gym/{request['dataset']} gave no reply in the sandbox ({result.cause}, exit status {result.exit_status}): "
        f"{result.stderr.decode(errors='replace')[-300:]}"
    )


@functools.cache
def _program() -> str:
    return _PROGRAM.read_text(encoding="utf-8")
