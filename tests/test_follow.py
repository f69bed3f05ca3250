"""Following a growing log: half lines, truncation, rotation, alarms, and nothing read twice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from diagnosed import STEPS, console_line, record, signals_of, write_run

from ragen2.diagnostics import Alarm, OnlineVerdict, diagnose
from ragen2.diagnostics import log_tail as tail_module
from ragen2.diagnostics.follow import Follower, every, follow
from ragen2.diagnostics.follow_formats import CannotFollow
from ragen2.diagnostics.follow_sources import SnapshotSource, joined
from ragen2.diagnostics.log_tail import LogTail
from ragen2.diagnostics.readers import RunSeries
from ragen2.errors import ConfigError, StorageError


def add(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def alarms(events: list) -> list[tuple[str, int]]:
    return [(event.verdict, event.step) for event in events if isinstance(event, Alarm)]


def test_lines_are_given_once_whole_and_only_when_their_end_is_there(tmp_path):
    path = tmp_path / "log"
    tail = LogTail(path)
    assert list(tail.read()) == []
    path.write_bytes(b"one\ntw")
    assert list(tail.read()) == [b"one"]
    assert (list(tail.read()), tail.rest) == ([], b"tw")
    add(path, "o\n\nthree\n")
    assert list(tail.read()) == [b"two", b"", b"three"]
    assert tail.restarts == 0


def test_only_what_was_added_is_read(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 99 + b"\n")
    tail = LogTail(path)
    assert len(list(tail.read())) == 1
    add(path, "y\n")
    counted = []

    class Counting:
        def __init__(self, file):
            self.file = file

        def read(self, size):
            data = self.file.read(size)
            counted.append(len(data))
            return data

        def __getattr__(self, name):
            return getattr(self.file, name)

    tail._file = Counting(tail._file)  # type: ignore[assignment]
    assert list(tail.read()) == [b"y"]
    # What stands before the reading position is looked at, to see that it is the same file.
    assert sum(counted) == 100 + 2


def test_a_file_cut_short_replaced_or_written_over_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    tail = LogTail(path)
    assert len(list(tail.read())) == 2
    path.write_bytes(b"new\n")
    assert (list(tail.read()), tail.restarts) == ([b"new"], 1)
    add(path, "last words\n")
    os.replace(path, tmp_path / "log.1")
    path.write_bytes(b"next file\n")
    assert (list(tail.read()), tail.restarts) == ([b"last words", b"next file"], 2)
    # Longer than before, by the same file: only the content tells.
    with open(path, "r+b") as file:
        file.write(b"quite another and longer\n")
    assert (list(tail.read()), tail.restarts) == ([b"quite another and longer"], 3)
    path.unlink()
    assert list(tail.read()) == []
    path.write_bytes(b"and back\n")
    assert (list(tail.read()), tail.restarts) == ([b"and back"], 4)


def test_a_line_without_end_is_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_module, "CHUNK", 16)
    monkeypatch.setattr(tail_module, "LONGEST_LINE", 64)
    path = tmp_path / "log"
    path.write_bytes(b"a\n" + b"z" * 500 + b"\nb\n")
    tail = LogTail(path)
    assert list(tail.read()) == [b"a", b"b"]
    assert tail.too_long == 1


def test_alarms_come_as_the_log_grows_and_the_end_is_what_diagnose_says(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    path = run / "metrics.jsonl"
    text = "".join(record(step, signals_of("format", step)) for step in range(STEPS + 1))
    watch = OnlineVerdict()
    expected = [alarm for step in range(STEPS + 1) for alarm in watch.update(step, signals_of("format", step))]
    assert "format collapse" in {alarm.verdict for alarm in expected}
    follower = Follower(run)

    def written():
        for start in range(0, len(text), 777):
            add(path, text[start : start + 777])
            yield start

    events = list(follow(follower, written())) + follower.finish()
    assert [event for event in events if isinstance(event, Alarm)] == expected
    seen = follower.examined()
    whole = diagnose(run)
    assert (
        (seen.diagnosis.verdict, seen.diagnosis.onset_step)
        == (whole.verdict, whole.onset_step)
        == ("format collapse", whole.onset_step)
    )
    assert seen.diagnosis.evidence == whole.evidence
    assert seen.diagnosis.steps == STEPS + 1


def test_console_logs_are_followed_by_line(tmp_path):
    path = tmp_path / "train.log"
    lines = [console_line(step, signals_of("format", step)) for step in range(1, STEPS + 1)]
    path.write_text("config: {'a': 1}\nloading\n" + lines[0] + lines[1][:50])
    follower = Follower(path)
    assert follower.poll() == []
    assert follower.last_step == 1
    add(path, lines[1][50:] + "".join(lines[2:]))
    assert "format collapse" in dict(alarms(follower.poll()))
    assert follower.poll() == []
    assert follower.examined().diagnosis.verdict == diagnose(path).verdict == "format collapse"
    assert follower.examined().diagnosis.source == "verl console"


def test_a_rotated_log_goes_on_and_another_run_starts_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(record(step, signals_of("format", step)) for step in range(50)))
    follower = Follower(path)
    follower.poll()
    os.replace(path, tmp_path / "metrics.jsonl.1")
    path.write_text("".join(record(step, signals_of("format", step)) for step in range(50, STEPS + 1)))
    events = follower.poll()
    assert "format collapse" in dict(alarms(events))
    seen = follower.examined()
    assert seen.step_range == (0, STEPS)
    assert "the log began anew at step 50" in seen.diagnosis.notes
    os.replace(path, tmp_path / "metrics.jsonl.2")
    path.write_text("".join(record(step, signals_of("healthy", step)) for step in range(90)))
    assert any("begins anew" in str(event) for event in follower.poll())
    assert follower.examined().step_range == (0, 89)
    assert follower.examined().diagnosis.verdict == "healthy"


def test_an_alarm_is_told_once_also_when_the_log_is_written_anew(tmp_path):
    run = write_run(tmp_path / "run", "format")
    follower = Follower(run)
    first = alarms(follower.poll())
    assert first
    path = run / "metrics.jsonl"
    kept = path.read_text().splitlines(keepends=True)[:80]
    (tmp_path / "new").write_text("".join(kept))
    os.replace(tmp_path / "new", path)
    assert alarms(follower.poll()) == []
    assert follower.last_step == 79


def test_a_table_is_read_again_when_it_changed_its_newest_step_at_the_end(tmp_path):
    path = tmp_path / "metrics.csv"
    names = ["collapse/valid_think_rate", "train/success", "policy/entropy"]
    rows = [[signals_of("format", step)[name] for name in names] for step in range(STEPS + 1)]
    text = ["step," + ",".join(names), *(f"{step}," + ",".join(map(str, row)) for step, row in enumerate(rows))]
    path.write_text("\n".join(text[:40]) + "\n")
    follower = Follower(path)
    follower.poll()
    path.write_text("\n".join(text) + "\n")
    follower._source._not_before = 0.0  # type: ignore[union-attr]
    found = follower.poll()
    assert "format collapse" in dict(alarms(found))
    assert follower.last_step == STEPS
    assert alarms(follower.finish()) == []
    assert follower.examined().diagnosis.steps == STEPS + 1


def test_a_log_that_takes_long_to_read_is_given_a_rest(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    path.write_text("step,policy/entropy\n1,0.5\n2,0.4\n")
    now = [0.0]

    def slow(*_: object) -> RunSeries:
        now[0] += 3.0
        return RunSeries({"policy/entropy": [(1, 0.5)]}, 1)

    monkeypatch.setattr("ragen2.diagnostics.follow_sources.read_log", slow)
    source = SnapshotSource(path, None, clock=lambda: now[0])
    assert source.update() is True
    add(path, "3,0.3\n")
    assert source.update() is False
    now[0] += 29
    assert source.update() is False
    now[0] += 2
    assert source.update() is True


def test_what_is_not_there_yet_is_waited_for_and_said_once(tmp_path):
    path = tmp_path / "train.log"
    follower = Follower(path)
    assert [str(event).startswith("waiting:") for event in follower.poll()] == [True]
    assert follower.poll() == []
    path.write_text("loading the model\n")
    assert "no record yet" in str(follower.poll())
    assert follower.poll() == []
    with pytest.raises(StorageError, match="no readings"):
        follower.examined()
    add(path, console_line(1, signals_of("healthy", 1)))
    assert follower.poll() == []
    assert follower.last_step == 1


def test_what_will_never_be_a_log_is_refused(tmp_path):
    binary = tmp_path / "weights"
    binary.write_bytes(b"\x00\x01" * 500)
    with pytest.raises(CannotFollow, match="binary"):
        Follower(binary).poll()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(CannotFollow, match="no regular file"):
        Follower(pipe).poll()


def test_broken_lines_are_counted_and_a_mapped_column_may_come_late(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "train/success": 0.5}\n{"step": broken\n[1]\n{"step": 2, "train/success": NaN}\n')
    follower = Follower(path, mapping={"collapse/valid_think_rate": "my_rate"})
    assert follower.poll() == []
    add(path, '{"step": 3, "my_rate": 0.25}\n{"step": 4, "my_rate": 0.5}')
    follower.poll()
    follower.finish()
    seen = follower.examined()
    assert seen.series["collapse/valid_think_rate"] == [(3, 0.25), (4, 0.5)]
    assert seen.series["train/success"] == [(1, 0.5)]
    assert "2 lines were no record and left out" in seen.diagnosis.notes


def test_the_end_by_quiet_polls_and_by_ctrl_c(tmp_path):
    run = write_run(tmp_path / "run", "healthy", steps=20)
    polls = []

    def ticks():
        for k in range(100):
            polls.append(k)
            if k == 2:
                add(run / "metrics.jsonl", record(21, signals_of("healthy", 21)))
            yield k

    follower = Follower(run)
    assert list(follow(follower, ticks(), quiet_polls=3)) == []
    assert (len(polls), follower.last_step) == (6, 21)


def test_ticks_sleep_between_looks_and_refuse_a_busy_loop():
    slept: list[float] = []
    ticks = every(2.5, slept.append)
    assert [next(ticks) for _ in range(3)] == [0, 1, 2]
    assert slept == [2.5, 2.5]
    for seconds in (0.0, -1.0, float("nan"), 0.001):
        with pytest.raises(ConfigError, match="poll"):
            next(every(seconds, slept.append))


def test_two_files_of_a_log_are_joined_at_the_first_step_of_the_second():
    before = RunSeries({"a": [(1, 1.0), (5, 5.0)], "b": [(4, 4.0)]}, 3, "stopped", ("n",))
    after = RunSeries({"a": [(4, 4.5), (6, 6.0)]}, 2, None, ("n",))
    both = joined(before, after)
    assert both.series == {"a": [(1, 1.0), (4, 4.5), (6, 6.0)]}
    assert (both.steps, both.stop, both.notes[0]) == (3, "stopped", "n")
    assert joined(before, RunSeries({}, 0)) == before
    assert joined(before, RunSeries({"a": [(0, 0.0)]}, 1)).series == {"a": [(0, 0.0)]}
    assert json.dumps(both.series)
