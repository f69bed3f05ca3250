"""The `traces.jsonl` of verifiers (also written by prime-rl): an episode a line, its traces as graphs of messages.

A node holds its message, whether the model sampled it, its place (`parent`), and, where the run kept them, the token ids it adds
with a mask of the sampled ones. A path from a root to a leaf is what one conversation looked like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen2.diagnostics.rollout_files.json_lines import Record, finite, read_records, success_in, whole
from ragen2.diagnostics.rollout_files.messages import Render, Spoken, spoken_messages
from ragen2.diagnostics.rollout_files.replies import ANSWER, text_sample
from ragen2.diagnostics.rollout_files.sample import Episode, ReadReport, Sample
from ragen2.diagnostics.rollout_files.token_turns import Decode, TokenizerCheck, ids_sample, ids_sized
from ragen2.trajectory import as_ids

MAX_NODES = 20_000


@dataclass(frozen=True)
class _Node:
    """A message with the place of the one before it; `ids` and `mask` are empty where the run kept no token ids."""

    parent: int | None
    spoken: Spoken
    sampled: bool
    ids: list[int]
    mask: list[bool]


@dataclass(frozen=True)
class _Reader:
    report: ReadReport
    render: Render
    decode: Decode | None
    check: TokenizerCheck


def matches(record: Record) -> bool:
    """Whether this is an episode."""
    traces = record.get("traces")
    return isinstance(traces, list) and isinstance(record.get("task"), dict)


def read(path: Path, report: ReadReport, render: Render, decode: Decode | None) -> Iterator[Sample]:
    """Turns of every trace that trains. With `decode` (of the tokenizer that made the ids) contexts and reasonings are the
    sampled token ids; without it they are text."""
    reader = _Reader(report, render, decode, TokenizerCheck())
    for number, record in enumerate(read_records(path, report)):
        if not matches(record):
            report.skip("lines that are no episode")
            continue
        for place, trace in enumerate(record["traces"]):
            if not isinstance(trace, dict):
                report.skip("traces that do not read")
            elif _field(trace, "agent", "trainable") is False:
                report.skip("traces of agents that are not trained")
            elif trace.get("ok") is False and trace.get("errors"):
                report.skip("trajectories that broke for reasons outside the policy")
            else:
                yield from _turns(trace, _episode(record, trace, f"{path.name}:{number}:{place}", report), reader)


def _episode(record: Record, trace: dict[str, Any], name: str, report: ReadReport) -> Episode:
    step = whole(_field(record, "run", "work", "step"))
    if step is None:
        report.assume("episodes name no training step: all count as step 0")
    task = trace["task"] if isinstance(trace.get("task"), dict) else record["task"]
    names = (task.get("key"), task.get("hash"), _field(record, "group", "id"), _field(task, "data", "id"))
    key = next((str(item)[:200] for item in names if isinstance(item, str | int)), None)
    if key is None:
        report.assume("episodes name no task: every episode is a prompt of its own")
    environment = str(_field(record, "env", "name") or _field(record, "env", "id") or "")[:64]
    if len(record["traces"]) > 1:
        environment = f"{environment}/{str(_field(trace, 'agent', 'name') or 'agent')[:32]}"
    metrics = trace.get("metrics")
    rewards = trace.get("rewards")
    work = _field(record, "run", "work", "type")
    return Episode(
        step=step or 0,
        prompt_key=key or name,
        environment=environment,
        trajectory=name,
        ret=finite(trace.get("reward")) if "reward" in trace else _reward(rewards),
        success=success_in({**_scores(rewards), **(metrics if isinstance(metrics, dict) else {})}),
        split="validation" if work == "eval" else "train",
    )


def _reward(rewards: Any) -> float | None:
    """Sum of score times weight; None where nothing was scored."""
    values = [
        score * (1.0 if (weight := finite(item.get("weight"))) is None else weight)
        for item in (rewards.values() if isinstance(rewards, dict) else ())
        if isinstance(item, dict) and (score := finite(item.get("score"))) is not None
    ]
    return finite(sum(values)) if values else None


def _scores(rewards: Any) -> dict[str, Any]:
    items = rewards.items() if isinstance(rewards, dict) else ()
    return {str(name): item.get("score") for name, item in items if isinstance(item, dict)}


def _turns(trace: dict[str, Any], episode: Episode, reader: _Reader) -> Iterator[Sample]:
    nodes = _nodes(trace.get("nodes"))
    if nodes is None:
        reader.report.skip("traces that do not read")
        return
    cut = _cut_nodes(trace.get("calls"))
    told: set[int] = set()
    for path in _paths(nodes):
        for depth, place in enumerate(path):
            if nodes[place].sampled and place not in told:
                before = [nodes[earlier] for earlier in path[:depth]]
                yield _turn(episode, len(told), before, nodes[place], cut.get(place), reader)
                told.add(place)
    if not told:
        reader.report.skip("trajectories without a turn")


def _turn(episode: Episode, turn: int, before: list[_Node], node: _Node, cut: bool | None, reader: _Reader) -> Sample:
    spoken, decode = node.spoken, reader.decode
    if decode is not None and True in node.mask and all(item.ids for item in before):
        begin = node.mask.index(True)
        sampled = node.ids[begin : len(node.mask) - node.mask[::-1].index(True)]
        context = [token for item in before for token in item.ids] + node.ids[:begin]
        wants_answer = any(ANSWER in item.spoken.text for item in before if not item.sampled)
        if reader.check.agrees(decode(as_ids(sampled)), spoken.text, f"{episode.trajectory} turn {turn}"):
            return ids_sample(episode, turn, context, sampled, decode, wants_answer, cut)
        reader.report.assume("turns whose ids do not decode to their text were read as text")
    shown = reader.render([item.spoken for item in before])
    tokens = sum(node.mask) if node.ids else None
    return text_sample(episode, turn, shown, spoken.reply, reasoning=spoken.reasoning, truncated=cut, tokens=tokens)


def _nodes(value: Any) -> list[_Node] | None:
    """Nodes of a trace; None where one does not read, or a parent does not come before its child."""
    if not isinstance(value, list) or not 0 < len(value) <= MAX_NODES:
        return None
    nodes: list[_Node] = []
    for place, item in enumerate(value):
        message = item.get("message") if isinstance(item, dict) else None
        spoken = spoken_messages([message]) if isinstance(message, dict) else None
        parent = item.get("parent") if isinstance(item, dict) else None
        if not spoken or not (parent is None or (isinstance(parent, int) and 0 <= parent < place)):
            return None
        ids, mask = item.get("token_ids"), item.get("mask")
        if not (ids_sized(ids) and isinstance(mask, list) and len(mask) == len(ids)):
            ids, mask = [], []
        nodes.append(_Node(parent, spoken[0], item.get("sampled") is True, ids, [bool(on) for on in mask]))
    return nodes


def _paths(nodes: list[_Node]) -> Iterator[list[int]]:
    """Every path from a root to a leaf, by leaf."""
    children = Counter(node.parent for node in nodes)
    for leaf in range(len(nodes)):
        if children[leaf]:
            continue
        path: list[int] = []
        place: int | None = leaf
        while place is not None:
            path.append(place)
            place = nodes[place].parent
        yield path[::-1]


def _cut_nodes(calls: Any) -> dict[int, bool]:
    """Whether the reply of a node was cut at its length, for the nodes whose call says how it finished."""
    found: dict[int, bool] = {}
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and isinstance(call.get("node"), int) and isinstance(call.get("finish_reason"), str):
            found[call["node"]] = call["finish_reason"] == "length"
    return found


def _field(record: Any, *keys: str) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record
