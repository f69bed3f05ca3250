"""What verl writes under `trainer.rollout_data_dir` and `trainer.validation_data_dir`: `{step}.jsonl`, a row a line.

Keys: input, output (decoded without special tokens), gts, score, step, and whatever the reward function returned beside the
score. verl's newer trainer adds `uid`, there the name of the row: sample, rollout and output number joined by underscores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ragen2.diagnostics.rollout_files.json_lines import Record, finite, read_records, success_in, whole
from ragen2.diagnostics.rollout_files.replies import text_sample
from ragen2.diagnostics.rollout_files.sample import Episode, ReadReport, Sample, digest
from ragen2.diagnostics.rollout_files.steps import step_in_name

USER_BORDERS, REPLY_BORDER = ("\nuser\n", "\ntool\n"), "\nassistant\n"
"""What is left of a chat template between turns when the special tokens are dropped."""

STUB_CHARS = 8
"""An `input` shorter than this before an `output` that holds a whole conversation is a stub: the prompt is in `output`."""

_ID_KEYS = ("uid", "group_id", "prompt_id")


def matches(record: Record) -> bool:
    """Whether this is a row."""
    texts = isinstance(record.get("input"), str) and isinstance(record.get("output"), str)
    return texts and ("score" in record or "step" in record)


def read(path: Path, report: ReadReport) -> Iterator[Sample]:
    """Turns of every row. Rows of one session (verl writes several where earlier text was rewritten) are one trajectory."""
    report.assume("verl drops special tokens: scored contexts lack the turn marks the policy was shown")
    session: str | None = None
    turns: list[Sample] = []
    for number, record in enumerate(read_records(path, report)):
        if not matches(record):
            report.skip("lines that are no verl row")
            continue
        row = _row(record, path, number, report)
        if session is not None and row[0].episode.trajectory == session:
            turns += [replace(item, turn=len(turns) + place) for place, item in enumerate(row)]
            continue
        yield from _one_trajectory(turns)
        session, turns = row[0].episode.trajectory, row
    yield from _one_trajectory(turns)


def _one_trajectory(turns: list[Sample]) -> Iterator[Sample]:
    """The last row of a session holds its score."""
    if turns:
        episode = replace(turns[-1].episode, prompt_key=turns[0].episode.prompt_key)
        yield from (replace(item, episode=episode) for item in turns)


def _row(record: Record, path: Path, number: int, report: ReadReport) -> list[Sample]:
    context, output = _without_stub(record["input"], record["output"])
    step = whole(record.get("step"))
    step = step_in_name(path) if step is None else step
    group, session = _names(record)
    if group is None:
        report.assume("rows name no prompt: rows with the same input text in a step are taken as one group")
    episode = Episode(
        step=step or 0,
        prompt_key=group or digest(context),
        environment=str(record.get("data_source") or "")[:64],
        trajectory=f"{path.name}:{session or number}",
        ret=finite(record.get("score")),
        success=success_in(record),
    )
    pieces = _conversation(output)
    if len(pieces) > 1:
        report.assume("a line `user` or `tool` and later a line `assistant` in an output is taken as the border of a turn")
    samples, shown = [], context
    for turn, (observed, reply) in enumerate(pieces):
        shown += observed
        samples.append(text_sample(episode, turn, shown, reply))
        shown += reply
    return samples


def _names(record: Record) -> tuple[str | None, str | None]:
    """Names of the group and of the session of a row, where the row tells them."""
    name = next((str(record[key])[:200] for key in _ID_KEYS if isinstance(record.get(key), str | int)), None)
    parts = name.rsplit("_", 2) if name is not None else []
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        return parts[0], f"{parts[0]}_{parts[1]}"
    return name, None


def _without_stub(shown: str, output: str) -> tuple[str, str]:
    if len(shown.strip()) >= STUB_CHARS:
        return shown, output
    head, border, rest = output.partition(REPLY_BORDER)
    return (shown + head + border, rest) if border else (shown, output)


def _conversation(output: str) -> list[tuple[str, str]]:
    """(observed before the reply, reply) of each turn in an output; the first has nothing before it."""
    pieces: list[tuple[str, str]] = []
    observed, start = "", 0
    while True:
        border = min((place for mark in USER_BORDERS if (place := output.find(mark, start)) >= 0), default=-1)
        reply = output.find(REPLY_BORDER, border) if border >= 0 else -1
        if reply < 0:
            return [*pieces, (observed, output[start:])]
        pieces.append((observed, output[start:border]))
        start = reply + len(REPLY_BORDER)
        observed = output[border:start]
