"""The older `results.jsonl` of verifiers: per line prompt and completion (messages or text), reward, example_id, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragen2.diagnostics.rollout_files.json_lines import Record, finite, read_records, success_in, whole
from ragen2.diagnostics.rollout_files.messages import Render, Spoken, message_turns, plain_render, spoken_messages
from ragen2.diagnostics.rollout_files.replies import text_sample
from ragen2.diagnostics.rollout_files.sample import Episode, ReadReport, Sample, digest


def matches(record: Record) -> bool:
    """Whether this is a rollout of that writer."""
    return "prompt" in record and "completion" in record and ("reward" in record or "example_id" in record)


def read(path: Path, report: ReadReport, render: Render) -> Iterator[Sample]:
    """Turns of every rollout; `step` where a line has one, else 0."""
    for number, record in enumerate(read_records(path, report)):
        prompt, completion = _conversation(record.get("prompt")), _conversation(record.get("completion"))
        if not matches(record) or prompt is None or completion is None:
            report.skip("lines that are no rollout")
            continue
        if record.get("error") is not None:
            report.skip("rollouts that broke for reasons outside the policy")
            continue
        example = record.get("example_id", record.get("id"))
        if not isinstance(example, int | str):
            report.assume("lines name no example: lines with the same prompt are taken as one group")
        shown = prompt if isinstance(prompt, str) else plain_render(prompt)
        metrics = record.get("metrics")
        episode = Episode(
            step=whole(record.get("step")) or 0,
            prompt_key=str(example)[:200] if isinstance(example, int | str) else digest(shown),
            environment=str(record.get("task") or "")[:64] if isinstance(record.get("task"), str) else "",
            trajectory=f"{path.name}:{number}",
            ret=finite(record.get("reward")),
            success=success_in({**record, **(metrics if isinstance(metrics, dict) else {})}),
        )
        truncated = record.get("is_truncated") if isinstance(record.get("is_truncated"), bool) else None
        if isinstance(completion, str):
            context = prompt if isinstance(prompt, str) else render(prompt)
            yield text_sample(episode, 0, context, completion, truncated=truncated)
        else:
            start = [Spoken("user", prompt)] if isinstance(prompt, str) else prompt
            usage = record.get("token_usage")
            tokens = whole(usage.get("output_tokens")) if isinstance(usage, dict) else None
            yield from message_turns(episode, start, completion, render, truncated=truncated, tokens=tokens)


def _conversation(value: Any) -> str | list[Spoken] | None:
    return value if isinstance(value, str) else spoken_messages(value)
