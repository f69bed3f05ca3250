"""What TRL's `log_completions` writes: `completions/completions_00010.parquet`.

Columns: step, prompt and completion (text or lists of messages), one column of floats a reward function, extra columns, and
advantage. The reward weights are not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen2.diagnostics.rollout_files.json_lines import finite, success_in, whole
from ragen2.diagnostics.rollout_files.messages import Render, Spoken, message_turns, spoken_messages
from ragen2.diagnostics.rollout_files.replies import text_sample
from ragen2.diagnostics.rollout_files.sample import Episode, ReadReport, Sample, digest
from ragen2.diagnostics.rollout_files.steps import step_in_name
from ragen2.errors import MissingDependency, StorageError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

MAGIC = b"PAR1"
FOOTER_BYTES = 4 << 20
ROWS_AT_ONCE = 64
ID_COLUMNS = ("prompt_id", "uid", "group_id")


def matches_file(path: Path) -> bool:
    """Whether a parquet file has columns named step, prompt and completion: looked up in its footer, without pyarrow."""
    try:
        with open(path, "rb") as file:
            if file.read(4) != MAGIC:
                return False
            size = file.seek(0, 2)
            file.seek(max(0, size - 8))
            tail = file.read(8)
            length = int.from_bytes(tail[:4], "little")
            if tail[4:] != MAGIC or not 0 < length <= min(FOOTER_BYTES, size - 8):
                return False
            file.seek(size - 8 - length)
            footer = file.read(length)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return all(name in footer for name in (b"step", b"prompt", b"completion"))


def read(path: Path, report: ReadReport, render: Render) -> Iterator[Sample]:
    """Turns of every row. Raises MissingDependency without pyarrow, StorageError for a file it cannot read."""
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise MissingDependency("pyarrow", "logs", "reading parquet files") from error
    try:
        with ParquetFile(path) as file:
            columns = file.schema_arrow.names
            if "prompt" not in columns or "completion" not in columns:
                raise StorageError(f"{path} has no columns prompt and completion, but {', '.join(columns[:20])}")
            rewards = _reward_columns(file, report)
            number = 0
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield from _turns(row, rewards, path, number, report, render)
    except (OSError, pyarrow.ArrowException) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise StorageError(f"cannot read {path}: {reason}") from error


def _reward_columns(file: ParquetFile, report: ReadReport) -> list[str]:
    """Columns of floats other than the advantage. TRL writes the values of reward functions as floats."""
    kinds = {column.name: str(column.type) for column in file.schema_arrow}
    rewards = [name for name, kind in kinds.items() if kind in ("double", "float") and name not in ("step", "advantage")]
    if not rewards:
        report.assume("no column of a reward function was found: there are no returns")
    else:
        report.assume(f"the return is the plain sum of {', '.join(rewards)}: the file holds no reward weights")
    return rewards


def _turns(
    row: dict[str, Any], rewards: list[str], path: Path, number: int, report: ReadReport, render: Render
) -> Iterator[Sample]:
    prompt, completion = _text_or_messages(row["prompt"]), _text_or_messages(row["completion"])
    if prompt is None or completion is None:
        report.skip("rows whose prompt or completion is neither text nor messages")
        return
    key = next((str(row[name])[:200] for name in ID_COLUMNS if isinstance(row.get(name), str | int)), None)
    if key is None:
        report.assume("rows name no prompt: rows with the same prompt in a step are taken as one group")
    step = whole(row.get("step"))
    values = [value for name in rewards if (value := finite(row.get(name))) is not None]
    episode = Episode(
        step=(step_in_name(path) or 0) if step is None else step,
        prompt_key=key or digest(prompt if isinstance(prompt, str) else repr(prompt)),
        environment=str(row.get("environment") or "")[:64],
        trajectory=f"{path.name}:{number}",
        ret=sum(values) if values else None,
        success=success_in(row),
    )
    if isinstance(completion, str):
        shown = prompt if isinstance(prompt, str) else render(prompt)
        yield text_sample(episode, 0, shown, completion)
    else:
        start = [Spoken("user", prompt)] if isinstance(prompt, str) else prompt
        yield from message_turns(episode, start, completion, render)


def _text_or_messages(value: Any) -> str | list[Spoken] | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        # Messages with different keys come back with the missing ones as None.
        value = [{k: v for k, v in item.items() if v is not None} if isinstance(item, dict) else item for item in value]
    return spoken_messages(value)
