"""metrics.jsonl is valid, whole and exact, whatever happens; the live table shows what was logged."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from ragen2.errors import ConfigError, MissingDependency, StorageError, UnknownName
from ragen2.training import metrics_log
from ragen2.training.live_table import COLUMNS, LiveTable, duration
from ragen2.training.metrics_log import MetricsLog, read_metrics

JSONL = ("jsonl",)


def test_round_trip(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, JSONL) as log:
        log.log(0, {"a": 0.1, "b": None, "c": "text", "d": True})
        log.log(2, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": np.float32(0.5), "e": np.int64(3), "f": np.bool_(False)})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    strict = [json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON")) for line in lines]
    assert strict[0] == {"step": 0, "a": 0.1, "b": None, "c": "text", "d": True}
    assert strict[1] == {"step": 2, "a": "nan", "b": "inf", "c": "-inf", "d": 0.5, "e": 3, "f": False}
    first, second = read_metrics(tmp_path)
    assert first["a"] == 0.1
    assert math.isnan(second["a"])
    assert second["b"] == math.inf
    assert second["c"] == -math.inf
    assert read_metrics(tmp_path / "metrics.jsonl")[0] == first


def test_a_line_is_on_disk_when_log_returns(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, JSONL)
    log.log(1, {"x": 1})
    assert read_metrics(tmp_path) == [{"step": 1, "x": 1}]
    log.close()
    log.close()


def test_steps_increase(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, JSONL) as log:
        log.log(3, {})
        with pytest.raises(ConfigError, match="steps must increase"):
            log.log(3, {})
    with MetricsLog(tmp_path, JSONL) as log, pytest.raises(ConfigError, match="truncate_after"):
        log.log(2, {})
    assert [record["step"] for record in read_metrics(tmp_path)] == [3]


@pytest.mark.parametrize("metrics", [{"a": [1]}, {"a": {"b": 1}}, {"step": 1}, {"": 1}, {"a": np.zeros(2)}])
def test_what_is_not_a_flat_scalar_is_refused(tmp_path: Path, metrics: dict) -> None:
    with MetricsLog(tmp_path, JSONL) as log, pytest.raises(ConfigError):
        log.log(1, metrics)
    assert read_metrics(tmp_path) == []


def test_truncate_then_go_on_is_exact(tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    with MetricsLog(whole, JSONL) as log:
        for step in range(6):
            log.log(step, {"x": step / 7})
    with MetricsLog(resumed, JSONL) as log:
        for step in range(5):
            log.log(step, {"x": step / 7})
    with MetricsLog(resumed, JSONL) as log:
        assert log.truncate_after(2) == 2
        assert log.last_step == 2
        for step in range(3, 6):
            log.log(step, {"x": step / 7})
    assert (whole / "metrics.jsonl").read_bytes() == (resumed / "metrics.jsonl").read_bytes()


def test_truncate_nothing_and_everything(tmp_path: Path) -> None:
    with MetricsLog(tmp_path, JSONL) as log:
        assert log.truncate_after(5) == 0
        log.log(1, {})
        assert log.truncate_after(1) == 0
        assert log.truncate_after(0) == 1
        log.log(0, {"x": 1})
    assert read_metrics(tmp_path) == [{"step": 0, "x": 1}]


def test_half_written_last_line_is_dropped_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "x": 1}\n{"step": 2, "x')
    assert [record["step"] for record in read_metrics(tmp_path)] == [1]
    assert "half-written" in caplog.text
    with MetricsLog(tmp_path, JSONL) as log:
        assert "half-written" in log.notes[0]
        log.log(2, {"x": 2})
    assert read_metrics(tmp_path) == [{"step": 1, "x": 1}, {"step": 2, "x": 2}]


@pytest.mark.parametrize("line", ["{", "[1]", '{"x": 1}', '{"step": "1"}', "\xff"])
def test_a_broken_line_inside_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n', encoding="latin-1")
    with pytest.raises(StorageError, match="line 2"):
        read_metrics(tmp_path)
    with pytest.raises(StorageError, match="line 2"):
        MetricsLog(tmp_path, JSONL)


def test_killed_while_writing(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal\n"
        "from ragen2.training.metrics_log import MetricsLog\n"
        "log = MetricsLog(sys.argv[1], ('jsonl',))\n"
        "for step in range(50): log.log(step, {'x': step})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert [record["x"] for record in read_metrics(tmp_path)] == list(range(50))


def test_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetricsLog(tmp_path, JSONL)
    log.log(1, {"x": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(metrics_log.os, "fsync", full)
        with pytest.raises(StorageError, match="No space left"):
            log.log(2, {"x": 2})
    log.log(2, {"x": 3})
    log.close()
    assert read_metrics(tmp_path) == [{"step": 1, "x": 1}, {"step": 2, "x": 3}]


def test_unreadable_places(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read"):
        read_metrics(tmp_path / "nothing.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        MetricsLog(tmp_path / "file" / "run", JSONL)


def test_writers_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'tensorboard'"):
        MetricsLog(tmp_path, ("tensorbord",))
    monkeypatch.setattr(metrics_log.importlib.util, "find_spec", lambda name: None)
    for name in ("wandb", "trackio"):
        with pytest.raises(MissingDependency, match=rf"ragen2\[{name}\]"):
            MetricsLog(tmp_path, (name,))
    with MetricsLog(tmp_path, ("jsonl", "tensorboard")) as log:
        assert "not installed" in log.notes[0]
        log.log(1, {"x": 1})


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_hosted_runs_get_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    calls: list[tuple] = []
    fake = types.ModuleType(package)
    fake.__dict__.update(
        init=lambda **options: calls.append(("init", options["project"], options["name"], options["config"])),
        log=lambda numbers, step: calls.append(("log", step, numbers)),
        finish=lambda: calls.append(("finish",)),
    )
    monkeypatch.setitem(sys.modules, package, fake)
    monkeypatch.setattr(metrics_log.importlib.util, "find_spec", lambda name: object())
    with MetricsLog(tmp_path / "run-7", ("jsonl", package), project="p", config={"seed": 1}) as log:
        log.log(1, {"x": 0.5, "text": "left out", "none": None, "flag": True})
    assert calls == [("init", "p", "run-7", {"seed": 1}), ("log", 1, {"x": 0.5, "flag": 1.0}), ("finish",)]


def test_tensorboard_holds_the_points(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with MetricsLog(tmp_path) as log:
        for step in range(4):
            log.log(step, {"train/success": step / 10})
        log.truncate_after(1)
        log.log(2, {"train/success": 0.9})
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    points = {event.step: event.value for event in events.Scalars("train/success")}
    assert points == pytest.approx({0: 0.0, 1: 0.1, 2: 0.9})


METRICS = {
    "train/success": 0.5,
    "train/return": 0.31,
    "filter/kept_groups": 5,
    "filter/groups": 8,
    "collapse/valid_think_rate": 0.99,
    "collapse/first_turn/mi_sequence": 2.01,
    "collapse/first_turn/mi_upper_bound": 2.08,
    "policy/entropy": 0.41,
    "speed/sampled_tokens_per_second": 4213.0,
    "time/iteration": 5.5,
    "validation/frozen-lake/success": 0.6,
}


def table_output(terminal: bool, rows: int = 3) -> str:
    stream, times = io.StringIO(), iter(range(0, 10_000, 60))
    console = Console(file=stream, force_terminal=terminal, width=100)
    with LiveTable(10, "frozen-lake · ppo", console=console, clock=lambda: float(next(times))) as table:
        table.row({"step": 0, "validation/frozen-lake/success": 0.4})
        for step in range(1, rows + 1):
            table.phase("rollout", 5, 128)
            table.row({"step": step, **METRICS})
            table.note("saved [red]checkpoint[/red]")
    return stream.getvalue()


def test_plain_lines_without_a_terminal() -> None:
    lines = table_output(terminal=False).splitlines()
    assert lines[0] == "frozen-lake · ppo: 10 iterations"
    assert lines[1] == "iteration 0/10  held-out success 40.0%  left ?"
    assert lines[2] == (
        "iteration 1/10  success 50.0%  held-out success 60.0%  return 0.31  kept groups 5/8  valid-think 99.0%"
        "  MI/ceiling 2.01/2.08  entropy 0.410  tokens/s 4,213  time 5.5 s  left 9:00"
    )
    assert lines[3] == "saved [red]checkpoint[/red]"
    assert len(lines) == 8


def test_live_table_shows_the_last_rows() -> None:
    text = table_output(terminal=True, rows=20)
    frame = text[text.rindex("held-out") :]
    assert "2.01/2.08" in frame
    assert "20/10" in frame
    assert sum("4,213" in line for line in frame.splitlines()) == 15
    assert "finished" in frame


def test_missing_metrics_are_dashes() -> None:
    assert all(column.cell({}) == "–" for column in COLUMNS)
    odd = {name: math.nan for name in METRICS} | {"filter/groups": None, "filter/kept_ratio": 0.0}
    for column in COLUMNS:
        assert column.cell(odd) is not None


def test_kept_groups_from_the_ratio() -> None:
    kept = next(column for column in COLUMNS if column.heading == "kept groups")
    assert kept.cell({"filter/kept_groups": 6, "filter/kept_ratio": 0.75}) == "6/8"


def test_durations() -> None:
    assert [duration(x) for x in (0, 59.6, 3600, -5)] == ["0:00", "1:00", "1:00:00", "0:00"]
