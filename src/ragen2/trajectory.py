"""The data that flows: turns, trajectories and a batch of them, built from token ids and written as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ragen2.errors import StorageError, TokenMismatch

SCHEMA = "ragen2.rollout/1"

Ids = np.ndarray
"""One-dimensional int32 array of token ids."""


def as_ids(ids: Iterable[int]) -> Ids:
    """Token ids as a one-dimensional int32 array."""
    return np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), dtype=np.int32)


@dataclass(frozen=True)
class Turn:
    """One reply of the policy and what became of it.

    `context_ids` are exactly the ids shown before sampling (the prefilled opening think tag included), `sampled_ids` exactly
    the ids the policy sampled (its end token included when it gave one), `logprobs` their log-probabilities (nats) under the
    sampling distribution. `reasoning_span` is the half-open range of `sampled_ids` between the think tags, None where the
    reply does not parse. `reward` is the task's, `penalty` the format penalty (zero or negative).
    """

    index: int
    context_ids: Ids
    sampled_ids: Ids
    logprobs: np.ndarray
    observation: str
    reply: str
    reasoning_span: tuple[int, int] | None
    actions: tuple[str, ...]
    reward: float
    penalty: float
    parse_status: str
    valid_action: bool
    truncated: bool

    def __post_init__(self) -> None:
        if len(self.sampled_ids) != len(self.logprobs):
            raise TokenMismatch(
                f"turn {self.index}: {len(self.sampled_ids)} sampled ids but {len(self.logprobs)} log-probabilities"
            )

    @property
    def valid_think(self) -> bool:
        """Whether the reply has the form the format asks for."""
        return self.parse_status == "ok"

    @property
    def reasoning_ids(self) -> Ids | None:
        """Ids of the reasoning, tags excluded; None where the reply does not parse."""
        return None if self.reasoning_span is None else self.sampled_ids[slice(*self.reasoning_span)]


@dataclass(frozen=True)
class Trajectory:
    """One episode. `stop_reason` is one of: terminated, truncated, turns, actions, overflow, fault.

    `valid` is False for an episode that broke for reasons outside the policy (see `fault`): it is masked out, never scored 0.
    """

    prompt_id: str
    level_seed: int
    noise_seed: int
    environment: str
    turns: tuple[Turn, ...]
    success: bool
    valid: bool
    stop_reason: str
    fault: str | None = None
    final_observation: str = ""

    @property
    def task_return(self) -> float:
        """Sum of the task's rewards."""
        return math.fsum(turn.reward for turn in self.turns)

    @property
    def return_(self) -> float:
        """Sum of the task's rewards and the format penalties."""
        return math.fsum(turn.reward + turn.penalty for turn in self.turns)


@dataclass(frozen=True)
class RolloutBatch:
    """Trajectories of one iteration; `group_P[i]` is the group of trajectory i, groups are contiguous."""

    trajectories: tuple[Trajectory, ...]
    group_index: tuple[int, ...]
    policy_version: int
    sampling: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.trajectories) != len(self.group_index):
            raise TokenMismatch(f"{len(self.trajectories)} trajectories but {len(self.group_index)} group indices")

    @property
    def groups(self) -> list[list[Trajectory]]:
        """Trajectories by group, in order of the group index."""
        found: dict[int, list[Trajectory]] = {}
        for group, trajectory in zip(self.group_index, self.trajectories, strict=True):
            found.setdefault(group, []).append(trajectory)
        return [found[group] for group in sorted(found)]

    def to_jsonl(self, path: str | Path) -> None:
        """Write a header line and one line a trajectory, whole (temporary name, then rename)."""
        from ragen2.storage import write_whole

        header = {"schema": SCHEMA, "policy_version": self.policy_version, "sampling": self.sampling}
        lines = [json.dumps(header)]
        for group, trajectory in zip(self.group_index, self.trajectories, strict=True):
            lines.append(json.dumps({"group": group, **_trajectory_to_json(trajectory)}))
        write_whole(Path(path), ("\n".join(lines) + "\n").encode())

    @classmethod
    def from_jsonl(cls, path: str | Path) -> RolloutBatch:
        """Read what `to_jsonl` wrote. Raises StorageError naming the line that does not read."""
        records = _read_lines(Path(path))
        try:
            header = next(records)
        except StopIteration:
            raise StorageError(f"{path} is empty: not a rollout file of schema {SCHEMA!r}") from None
        if header.get("schema") != SCHEMA:
            raise StorageError(f"{path} has schema {header.get('schema')!r}; this version reads {SCHEMA!r}")
        groups, trajectories = [], []
        for number, record in enumerate(records, 2):
            try:
                groups.append(int(record["group"]))
                trajectories.append(trajectory_from_json(record))
            except (KeyError, TypeError, ValueError, OverflowError, TokenMismatch) as error:
                raise StorageError(f"{path} line {number}: not a trajectory of schema {SCHEMA!r} ({error!r})") from error
        if not isinstance(header.get("policy_version"), int) or not isinstance(header.get("sampling"), dict):
            raise StorageError(f"{path} line 1: the header lacks policy_version (a number) or sampling (a mapping)")
        return cls(tuple(trajectories), tuple(groups), header["policy_version"], header["sampling"])


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StorageError(f"{path} line {number} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise StorageError(f"{path} line {number} is not a JSON object")
        yield record


def _trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """As plain data. A context that extends the previous turn's ids is stored as what it adds (`context_keeps` ids are kept)."""
    turns = []
    shown: Ids = as_ids([])
    for turn in trajectory.turns:
        keeps = common_prefix(shown, turn.context_ids)
        turns.append(
            {
                "index": turn.index,
                "context_keeps": keeps,
                "context_adds": turn.context_ids[keeps:].tolist(),
                "sampled_ids": turn.sampled_ids.tolist(),
                "logprobs": [float(x) for x in turn.logprobs],
                "observation": turn.observation,
                "reply": turn.reply,
                "reasoning_span": turn.reasoning_span,
                "actions": turn.actions,
                "reward": turn.reward,
                "penalty": turn.penalty,
                "parse_status": turn.parse_status,
                "valid_action": turn.valid_action,
                "truncated": turn.truncated,
            }
        )
        shown = np.concatenate([turn.context_ids, turn.sampled_ids])
    return {
        "prompt_id": trajectory.prompt_id,
        "level_seed": trajectory.level_seed,
        "noise_seed": trajectory.noise_seed,
        "environment": trajectory.environment,
        "task_return": trajectory.task_return,
        "return": trajectory.return_,
        "success": trajectory.success,
        "valid": trajectory.valid,
        "stop_reason": trajectory.stop_reason,
        "fault": trajectory.fault,
        "final_observation": trajectory.final_observation,
        "turns": turns,
    }


def trajectory_from_json(record: dict[str, Any]) -> Trajectory:
    """A trajectory line of a rollout file. Raises KeyError, TypeError, ValueError, OverflowError or TokenMismatch."""
    turns = []
    shown: Ids = as_ids([])
    for item in record["turns"]:
        keeps = _typed(item, "context_keeps", int)
        if not 0 <= keeps <= len(shown):
            raise ValueError(f"context_keeps is {keeps}, but {len(shown)} ids come before")
        context = np.concatenate([shown[:keeps], as_ids(item["context_adds"])])
        sampled = as_ids(item["sampled_ids"])
        turns.append(
            Turn(
                index=_typed(item, "index", int),
                context_ids=context,
                sampled_ids=sampled,
                logprobs=np.asarray(item["logprobs"], dtype=np.float32),
                observation=_typed(item, "observation", str),
                reply=_typed(item, "reply", str),
                reasoning_span=_span(item["reasoning_span"], len(sampled)),
                actions=tuple(str(action) for action in _typed(item, "actions", list)),
                reward=float(item["reward"]),
                penalty=float(item["penalty"]),
                parse_status=_typed(item, "parse_status", str),
                valid_action=_typed(item, "valid_action", bool),
                truncated=_typed(item, "truncated", bool),
            )
        )
        shown = np.concatenate([context, sampled])
    kinds: dict[str, type] = {
        "prompt_id": str,
        "level_seed": int,
        "noise_seed": int,
        "environment": str,
        "success": bool,
        "valid": bool,
        "stop_reason": str,
        "final_observation": str,
    }
    fault = None if record["fault"] is None else _typed(record, "fault", str)
    return Trajectory(**{name: _typed(record, name, kind) for name, kind in kinds.items()}, turns=tuple(turns), fault=fault)


def _typed(record: dict[str, Any], name: str, kind: type) -> Any:
    value = record[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{name} is a {type(value).__name__} where {kind.__name__} is expected")
    return value


def _span(value: Any, length: int) -> tuple[int, int] | None:
    if value is None:
        return None
    start, stop = value
    if not 0 <= start <= stop <= length:
        raise ValueError(f"reasoning_span is {value}, but the reply has {length} ids")
    return int(start), int(stop)


def common_prefix(left: Ids, right: Ids) -> int:
    """Length of the longest common prefix of two id arrays."""
    shorter = min(len(left), len(right))
    differs = np.nonzero(left[:shorter] != right[:shorter])[0]
    return int(differs[0]) if len(differs) else shorter
