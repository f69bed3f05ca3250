"""The evaluation rollouts of the paper's public code: per line `messages` and `metadata` of one trajectory, no step.

Two faults of that writer are worked around. `metadata.success` is always false: the real keys end in "/success". Every state but
the first is followed by the reward of the action taken AFTER it, " (reward: r)", which the policy never saw: it is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ragen2.diagnostics.rollout_files.json_lines import Record, finite, read_records, success_in, whole
from ragen2.diagnostics.rollout_files.messages import Render, Spoken, message_turns, spoken_messages
from ragen2.diagnostics.rollout_files.sample import Episode, ReadReport, Sample, digest
from ragen2.diagnostics.rollout_files.steps import step_in_name

LATER_REWARD = re.compile(r" \(reward: [^()]{1,40}\)\Z")
TAIL_CHARS = 64


def matches(record: Record) -> bool:
    """Whether this is a trajectory of that writer."""
    return isinstance(record.get("messages"), list) and isinstance(record.get("metadata"), dict)


def read(path: Path, report: ReadReport, render: Render) -> Iterator[Sample]:
    """Turns of every trajectory. The step is the last number in the file's name where that has at most 7 digits, else 0."""
    report.assume("the first message holds no system text: scored contexts are shorter than those the policy was shown")
    report.assume("rewards written behind a state belong to the action after it and were cut off")
    number_in_name = step_in_name(path)
    step = number_in_name if number_in_name is not None and number_in_name < 10_000_000 else 0
    for number, record in enumerate(read_records(path, report)):
        messages = spoken_messages(record.get("messages"))
        if messages is None or not matches(record):
            report.skip("lines that are no trajectory")
            continue
        if not any(item.role == "assistant" for item in messages):
            report.skip("trajectories without a turn")
            continue
        metadata = record["metadata"]
        messages = [item if place == 0 else _without_reward(item) for place, item in enumerate(messages)]
        episode = _episode(metadata, messages, step, f"{path.name}:{number}", report)
        yield from message_turns(episode, [], messages, render, wants_answer=True, tokens=whole(metadata.get("n_tokens")))


def _episode(metadata: dict[str, Any], messages: list[Spoken], step: int, name: str, report: ReadReport) -> Episode:
    tagged = {key: value for key, value in metadata.items() if str(key).endswith("/success")}
    success = success_in(tagged)
    if success is None and metadata.get("success") is True:
        success = True
    elif success is None and "success" in metadata:
        report.assume("metadata.success is false in every file of this writer: success is unknown without a key <env>/success")
    tag = next((str(key).removesuffix("/success")[:64] for key in tagged), "")
    group = metadata.get("group_id")
    key = f"{tag}:{group}" if isinstance(group, int | str) else digest(messages[0].text)
    return Episode(step, key, tag, name, ret=finite(metadata.get("total_reward")), success=success)


def _without_reward(item: Spoken) -> Spoken:
    if item.role != "user":
        return item
    head, tail = item.text[:-TAIL_CHARS], item.text[-TAIL_CHARS:]
    return replace(item, text=head + LATER_REWARD.sub("", tail))
