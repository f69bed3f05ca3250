"""Rollouts of this package: `rollouts/train-000010.jsonl`, `validation-<env>-000010.jsonl`, or any file `to_jsonl` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragen2.diagnostics.rollout_files.json_lines import Record, read_records, whole
from ragen2.diagnostics.rollout_files.sample import Episode, ReadReport, Sample
from ragen2.diagnostics.rollout_files.steps import step_in_name
from ragen2.errors import TokenMismatch
from ragen2.trajectory import SCHEMA, Trajectory, trajectory_from_json


def matches(record: Record) -> bool:
    """Whether this is the header line."""
    return record.get("schema") == SCHEMA


def read(path: Path, report: ReadReport) -> Iterator[Sample]:
    """Turns of the valid trajectories. The step is the number in the file's name, else the policy version of its header."""
    split = "validation" if path.name.startswith("validation") else "train"
    version = 0
    for number, record in enumerate(read_records(path, report)):
        if "schema" in record:
            version = whole(record.get("policy_version")) or 0
            continue
        try:
            group, trajectory = int(record["group"]), trajectory_from_json(record)
        except (KeyError, TypeError, ValueError, OverflowError, TokenMismatch):
            report.skip("lines that are no trajectory")
            continue
        if not trajectory.valid:
            report.skip("trajectories that broke for reasons outside the policy")
        elif not trajectory.turns:
            report.skip("trajectories without a turn")
        else:
            step = step_in_name(path)
            yield from _turns(trajectory, group, version if step is None else step, f"{path.name}:{number}", split)


def _turns(trajectory: Trajectory, group: int, step: int, name: str, split: str) -> Iterator[Sample]:
    episode = Episode(
        step=step,
        prompt_key=f"{group}:{trajectory.prompt_id}",
        environment=trajectory.environment,
        trajectory=name,
        ret=trajectory.return_,
        success=trajectory.success,
        task_ret=trajectory.task_return,
        split=split,
    )
    for number, turn in enumerate(trajectory.turns):
        yield Sample(
            episode=episode,
            turn=number,
            context=turn.context_ids,
            reasoning=turn.reasoning_ids if turn.valid_think else None,
            reply=turn.reply,
            status=turn.parse_status,
            truncated=turn.truncated,
            tokens=len(turn.sampled_ids),
        )
