"""Rollout files of every kind, written here the way their writers do: recognised, read, measured; and garbage."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from rollout_writers import (
    evaluation_record,
    planted_batch,
    reply,
    rng,
    samples_of,
    trace_record,
    trl_file,
    values,
    verl_folder,
    verl_row,
    write_lines,
)
from tiny import random_batch, tiny_tokenizer

from ragen2.diagnostics.rollout_files import ReadReport, is_rollout_file, measure_rollouts, rollout_kind
from ragen2.diagnostics.rollout_files.json_lines import MAX_LINE_BYTES
from ragen2.diagnostics.rollout_files.replies import read_reply
from ragen2.diagnostics.signals import iteration_metrics
from ragen2.errors import MissingDependency, StorageError, TokenMismatch
from ragen2.trajectory import RolloutBatch, Trajectory

# --- recognised by content -------------------------------------------------------------------------------------------------


def test_every_kind_is_recognised_by_content_whatever_the_file_is_called(tmp_path: Path) -> None:
    batch = tmp_path / "x.bin"
    random_batch().to_jsonl(batch)
    results = {"example_id": 1, "prompt": [], "completion": [], "reward": 0.0}
    found = {
        "ragen2": batch,
        "verl_jsonl": write_lines(tmp_path / "a.txt", [verl_row("p", "o", 0.0, 1)]),
        "evaluation_jsonl": write_lines(tmp_path / "b.txt", [evaluation_record(0, True, 0)]),
        "verifiers_traces": write_lines(tmp_path / "c.txt", ["not json", trace_record("k", [("a1", reply("b"))])][::-1]),
        "verifiers_results": write_lines(tmp_path / "d.txt", [results]),
        "trl_parquet": trl_file(tmp_path / "e.txt", 1, chat=False),
    }
    assert {path.name: rollout_kind(path) for path in found.values()} == {path.name: kind for kind, path in found.items()}
    assert all(is_rollout_file(path) for path in found.values())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff" * 500,
        b"PAR1",
        b"PAR1" + b"\0" * 90 + b"PAR1",
        b"{",
        b"[1, 2]\n",
        b'{"step": 1, "reward": 2}\n',
        b"{" * 100_000,
    ],
)
def test_other_files_are_no_rollout_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(content)
    assert not is_rollout_file(path) and rollout_kind(path) is None
    with pytest.raises(StorageError, match=r"f\.jsonl holds no rollouts"):
        samples_of(path)


def test_folders_count_when_their_files_are_of_one_kind(tmp_path: Path) -> None:
    assert rollout_kind(tmp_path) is None and not is_rollout_file(tmp_path) and not is_rollout_file(tmp_path / "none")
    verl_folder(tmp_path)
    write_lines(tmp_path / "settings.json", [{"lr": 1}])
    (tmp_path / "notes.md").write_text("x")
    assert rollout_kind(tmp_path) == "verl_jsonl"
    write_lines(tmp_path / "eval.jsonl", [evaluation_record(0, True, 0)])
    assert is_rollout_file(tmp_path)
    with pytest.raises(
        StorageError, match=r"several kinds of rollout files: .*\(eval\.jsonl\), verl rollout JSONL \(10\.jsonl\)"
    ):
        samples_of(tmp_path)


# --- reading ---------------------------------------------------------------------------------------------------------------


def test_our_own_files_give_the_ids_that_were_sampled_and_the_figures_the_trainer_logs(tmp_path: Path) -> None:
    batch = planted_batch(copies=True)
    batch.to_jsonl(tmp_path / "train-000007.jsonl")
    read = samples_of(tmp_path)
    turns = [turn for trajectory in batch.trajectories for turn in trajectory.turns]
    assert [sample.step for sample in read] == [7] * len(turns)
    for sample, turn in zip(read, turns, strict=True):
        assert sample.context.tolist() == turn.context_ids.tolist()
        assert (sample.reasoning is None) == (turn.reasoning_ids is None)
        assert turn.reasoning_ids is None or sample.reasoning.tolist() == turn.reasoning_ids.tolist()
    run, logged = measure_rollouts(tmp_path, rng=rng()), iteration_metrics(batch)
    assert run.steps == 1 and run.source == "rollouts of this package"
    shared = set(logged) & set(run.series)
    assert {"collapse/valid_think_rate", "collapse/reward_variance", "train/response_length", "train/success"} <= shared
    for name in shared:
        assert run.series[name] == [(7, pytest.approx(logged[name], abs=1e-12))], name


def test_validation_rollouts_and_broken_trajectories_of_ours_stay_out_of_the_training_figures(tmp_path: Path) -> None:
    batch = planted_batch(copies=True)
    batch.to_jsonl(tmp_path / "train-000010.jsonl")
    batch.to_jsonl(tmp_path / "validation-lake-000010.jsonl")
    broken = Trajectory("p", 0, 0, "lake", batch.trajectories[0].turns, True, False, "fault", "it hung")
    RolloutBatch((broken, batch.trajectories[0]), (0, 0), 4).to_jsonl(tmp_path / "train-000020.jsonl")
    run = measure_rollouts(tmp_path, rng=rng())
    count = len(batch.trajectories)
    assert run.series["train/trajectories"] == [(10, count), (20, 1)]
    assert run.series["validation/lake/episodes"] == [(10, count)]
    assert any("1 trajectories that broke" in note for note in run.notes)


def test_verl_rows_of_a_step_with_the_same_input_are_a_group(tmp_path: Path) -> None:
    run = measure_rollouts(verl_folder(tmp_path), rng=rng())
    assert run.series["train/success"] == [(2, 0.5), (10, 0.5)]
    assert values(run, "collapse/reward_variance") == [0.5, 0.5]
    assert values(run, "collapse/valid_think_rate") == [1.0, 1.0]
    assert values(run, "text/distinct_reasonings") == [0.5, 0.5] and values(run, "text/shared_reasonings") == [0.0, 0.0]
    assert "train/response_length" not in run.series and values(run, "text/response_characters")[0] > 20
    notes = " ".join(run.notes)
    assert "same input text" in notes and "drops special tokens" in notes and "does not count tokens" in notes


def test_verl_names_of_rows_beat_the_text_and_rows_of_a_session_are_one_trajectory(tmp_path: Path) -> None:
    rows = [
        verl_row("same text", reply("a"), 0.0, 1, uid="p_0_0"),
        verl_row("same text, longer", reply("b"), 1.0, 1, uid="p_0_1"),
        verl_row("same text", reply("a"), 0.0, 1, uid="p_1_0"),
        verl_row("same text", reply("a"), 0.0, 1, uid="q_0_0"),
    ]
    read = samples_of(write_lines(tmp_path / "1.jsonl", rows))
    assert [(sample.prompt_key, sample.turn, sample.ret) for sample in read] == [
        ("p", 0, 1.0),
        ("p", 1, 1.0),
        ("p", 0, 0.0),
        ("q", 0, 0.0),
    ]
    assert values(measure_rollouts(tmp_path, rng=rng()), "train/trajectories") == [3.0]


def test_a_conversation_in_one_verl_output_is_taken_apart(tmp_path: Path) -> None:
    output = reply("one", opener="") + "\nuser\nnow b2\nassistant\n" + reply("two")
    stub = "system\nuse <answer>\nuser\nstate\nassistant\n" + output
    for name, row in {"1": verl_row("a long prompt naming <answer>", output, 1.0, 1), "2": verl_row("", stub, 1.0, 2)}.items():
        first, second = samples_of(write_lines(tmp_path / f"{name}.jsonl", [row]))
        assert (first.reasoning, second.reasoning, second.turn) == ("one", "two", 1)
        assert second.context.endswith("now b2\nassistant\n<think>") and "</think>" in second.context
        assert first.valid_think and second.valid_think
    first = samples_of(tmp_path / "2.jsonl")[0]
    assert first.context == "system\nuse <answer>\nuser\nstate\nassistant\n"


def test_evaluation_files_take_success_from_the_tagged_key_and_cut_off_the_later_reward(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "val_rollouts.jsonl", [evaluation_record(n // 2, n % 2 == 0, n) for n in range(4)])
    read = samples_of(path)
    assert [sample.success for sample in read] == [True, True, False, False] * 2
    assert {sample.environment for sample in read} == {"CoordSokoban"}
    assert "next state" in read[1].context and "reward" not in read[1].context
    assert [sample.reasoning for sample in read[:2]] == ["look", "again"]
    run = measure_rollouts(path, rng=rng())
    assert values(run, "train/success") == [0.5] and values(run, "train/response_length") == [30.0]
    untagged = evaluation_record(0, True, 0)
    del untagged["metadata"]["CoordSokoban/success"]
    run = measure_rollouts(write_lines(tmp_path / "old.jsonl", [untagged]), rng=rng())
    assert "train/success" not in run.series and any("success is unknown" in note for note in run.notes)


@pytest.mark.parametrize("chat", [False, True])
def test_trl_completions_sum_their_reward_columns(tmp_path: Path, chat: bool) -> None:
    for step in (5, 10):
        trl_file(tmp_path / "completions" / f"completions_{step:05d}.parquet", step, chat=chat)
    run = measure_rollouts(tmp_path / "completions", rng=rng())
    assert run.series["train/return"] == [(5, 1.0), (10, 1.0)]
    assert values(run, "collapse/reward_variance") == [0.5, 0.5] and values(run, "train/success") == [0.5, 0.5]
    assert values(run, "collapse/valid_think_rate") == [1.0, 1.0]
    assert any("sum of accuracy_reward, format_reward:" in note for note in run.notes)
    context = samples_of(tmp_path / "completions")[0].context
    assert context == ("user\ncell a1\nassistant\n<think>" if chat else "cell a1\n<think>")


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = trl_file(tmp_path / "c.parquet", 1, chat=False)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match=r"ragen2\[logs\]"):
        samples_of(path)


def test_a_damaged_parquet_file_is_an_error_alone_and_a_note_among_others(tmp_path: Path) -> None:
    whole = trl_file(tmp_path / "completions_00001.parquet", 1, chat=False)
    data = bytearray(whole.read_bytes())
    data[4:200] = os.urandom(196)
    damaged = tmp_path / "completions_00002.parquet"
    damaged.write_bytes(data)
    with pytest.raises(StorageError, match=r"cannot read .*00002"):
        samples_of(damaged)
    run = measure_rollouts(tmp_path, rng=rng())
    assert run.series["train/return"] == [(1, 1.0)] and any("1 files that do not read" in note for note in run.notes)


def test_verifiers_traces_give_text_without_and_sampled_ids_with_a_tokenizer(tmp_path: Path) -> None:
    turns = [("cell a1 <answer>", reply(" a1")), ("cell b2", reply(" b2"))]
    path = write_lines(tmp_path / "traces.jsonl", [trace_record("k", turns)])
    text = samples_of(path)
    assert [(s.reasoning, s.turn, s.step, s.prompt_key, s.ret, s.success) for s in text] == [
        (" a1", 0, 3, "k", 2.0, True),
        (" b2", 1, 3, "k", 2.0, True),
    ]
    assert text[0].truncated is None and text[1].truncated is False and text[0].environment == "maze"
    tokenizer = tiny_tokenizer()
    ids = samples_of(path, tokenizer=tokenizer)
    for sample, expected in zip(ids, text, strict=True):
        assert tokenizer.decode(sample.reasoning) == expected.reasoning
        assert tokenizer.decode(sample.context).endswith("<|im_start|>assistant\n<think>")
        assert sample.tokens == expected.tokens and sample.valid_think
    assert ids[1].context.tolist()[: len(ids[0].context)] == ids[0].context.tolist()


def test_verifiers_branches_count_a_shared_turn_once_and_broken_traces_are_left_out(tmp_path: Path) -> None:
    branched = trace_record("k", [("a", reply("x")), ("b", reply("y"))], ids=False)
    nodes = branched["traces"][0]["nodes"]
    nodes += [{**nodes[2], "parent": 1}, {**nodes[3], "parent": 4, "message": {"role": "assistant", "content": reply("z")}}]
    failed = trace_record("k", [("a", reply("x"))], ids=False)
    failed["traces"][0] |= {"ok": False, "errors": [{"type": "E", "message": "m"}]}
    looped = trace_record("k", [("a", reply("x"))], ids=False)
    looped["traces"][0]["nodes"][0]["parent"] = 1
    report = ReadReport()
    path = write_lines(tmp_path / "traces.jsonl", [branched, failed, looped])
    assert [(s.turn, s.reasoning) for s in samples_of(path, report=report)] == [(0, "x"), (1, "y"), (2, "z")]
    assert set(report.notes) >= {
        "left out: 1 trajectories that broke for reasons outside the policy",
        "left out: 1 traces that do not read",
    }


def test_verifiers_ids_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    records = []
    for number in range(9):
        record = trace_record(str(number), [("cell a1", reply(" a1"))])
        for node in record["traces"][0]["nodes"]:
            node["token_ids"] = [token + 1 for token in node["token_ids"]]
        records.append(record)
    path = write_lines(tmp_path / "traces.jsonl", records)
    with pytest.raises(TokenMismatch, match="another tokenizer"):
        samples_of(path, tokenizer=tiny_tokenizer())


def test_older_verifiers_results_read_messages_and_reasoning_logged_apart(tmp_path: Path) -> None:
    said = [
        {"role": "assistant", "content": "up", "reasoning_content": "hm"},
        {"role": "tool", "content": "moved"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "so",
            "tool_calls": [{"function": {"name": "go", "arguments": "{}"}}],
        },
    ]
    record = {
        "example_id": 4,
        "prompt": [{"role": "user", "content": "q"}],
        "completion": said,
        "reward": 0.5,
        "is_truncated": False,
    }
    first, second = samples_of(write_lines(tmp_path / "results.jsonl", [record, {**record, "error": {"error": "E"}}]))
    assert (first.reasoning, second.reasoning, first.prompt_key, first.ret) == ("hm", "so", "4", 0.5)
    assert first.context == "user\nq\nassistant\n<think>" and first.valid_think and second.valid_think
    assert second.context.endswith("tool\nmoved\nassistant\n<think>")


@pytest.mark.parametrize(
    "text, wants, context, status, reasoning",
    [
        ("<think>a</think><answer>u</answer>", True, "q", "ok", "a"),
        ("a</think><answer>u</answer>", True, "q<think>\n", "ok", "a"),
        ("\n <THINK>a</Think> u", False, "q", "ok", "a"),
        ("a</think> u", False, None, "ok", "a"),
        ("<think>a</think>", False, "q", "no_answer", None),
        ("<think>a", False, "q", "no_think_end", None),
        ("just text", False, "q", "no_think_start", None),
        ("<think>a</think>b</think>c", False, "q", "repeated_think", None),
        ("<think>a</think>text<answer>u</answer>", True, "q", "stray_text", None),
        ("<think></think>u", False, "q", "ok", ""),
    ],
)
def test_replies_are_read_with_and_without_the_opening_tag(text, wants, context, status, reasoning) -> None:
    read = read_reply(text, context=context, wants_answer=wants)
    assert (read.status, read.reasoning) == (status, reasoning)


def test_a_file_without_any_think_tag_has_no_valid_think_rate_rather_than_zero(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "1.jsonl", [verl_row("a question", f"answer {n}", 1.0, 1) for n in range(4)])
    run = measure_rollouts(path, rng=rng())
    assert "collapse/valid_think_rate" not in run.series and "train/return" in run.series
    assert any("no reply holds a think tag" in note for note in run.notes)


# --- garbage ---------------------------------------------------------------------------------------------------------------


def test_broken_lines_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    good = verl_row("a prompt", reply("r"), 1.0, 1)
    bad = [
        "{broken",
        "[1]",
        "\x00\x00",
        json.dumps({"input": 3}),
        "{" + '"a":' * 5000,
        json.dumps({**good, "score": float("nan")}),
    ]
    path = write_lines(tmp_path / "1.jsonl", [good, *bad, good], end='\n{"input": "half')
    report = ReadReport()
    assert [sample.ret for sample in samples_of(path, report=report)] == [1.0, None, 1.0]
    assert dict(report.skipped) == {"broken lines": 4, "lines that are no verl row": 1, "half-written last lines": 1}


def test_lines_beyond_the_bound_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    row = json.dumps(verl_row("a prompt", reply("r"), 1.0, 1)).encode()
    with open(path, "wb") as file:
        file.write(row + b"\n" + b'{"input": "' + b"x" * (MAX_LINE_BYTES + 10) + b'"}\n' + row + b"\n")
    report = ReadReport()
    assert len(samples_of(path, report=report)) == 2
    assert dict(report.skipped) == {"lines longer than 16 MiB": 1}


@pytest.mark.parametrize(
    "writer", [verl_row("p", "o", 0.0, 1), evaluation_record(0, True, 0), trace_record("k", [("a", reply("b"))])]
)
def test_mangled_records_never_raise_anything_but_our_errors(tmp_path: Path, writer: dict[str, Any]) -> None:
    draw = rng(5)
    junk: list[Any] = [
        None,
        True,
        -1,
        1e308,
        10**30,
        "",
        "x" * 300,
        [],
        {},
        [[]],
        [{"role": 3}],
        {"role": "user"},
        [None],
        "\ud800",
    ]

    def mangled(value: Any) -> Any:
        if draw.random() < 0.12:
            return junk[int(draw.integers(len(junk)))]
        if isinstance(value, dict):
            return {key: mangled(item) for key, item in value.items()}
        return [mangled(item) for item in value] if isinstance(value, list) else value

    path = write_lines(
        tmp_path / "f.jsonl", [writer, *({key: mangled(item) for key, item in writer.items()} for _ in range(150))]
    )
    for tokenizer in (None, tiny_tokenizer()):
        try:
            read = samples_of(path, tokenizer=tokenizer)
        except (StorageError, TokenMismatch):
            continue
        assert read and all(sample.ret is None or math.isfinite(sample.ret) for sample in read)
    assert measure_rollouts(path, rng=rng()).steps >= 1
