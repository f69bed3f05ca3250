"""Mutual information off line, out of rollout files of every kind, by a tiny model and by scorers that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rollout_writers import (
    CELLS,
    Bare,
    CopyReader,
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
from tiny import random_batch, tiny_model, tiny_tokenizer

from ragen2.diagnostics.mutual_information import mutual_information
from ragen2.diagnostics.rollout_files import ReadReport, measure_rollouts
from ragen2.diagnostics.rollout_files.token_ids import TokenIds
from ragen2.engines.hf import HFEngine
from ragen2.errors import ConfigError, NotMeasurable, TokenMismatch
from ragen2.trajectory import RolloutBatch, Trajectory, Turn


@pytest.fixture(scope="module")
def taught() -> HFEngine:
    """A tiny model taught to say, after each prompt, either the prompt's cell three times or the same words everywhere."""
    import torch

    torch.manual_seed(0)
    tokenizer, model = tiny_tokenizer(), tiny_model(3, layers=2)
    rows = [
        tokenizer.encode(f"user level {cell} Say up assistant<think>{said}</think>", add_special_tokens=False)
        for cell in CELLS
        for said in (f" {cell} {cell} {cell}", " a b c")
    ]
    ids = torch.tensor(rows)
    labels = ids.clone()
    labels[:, :-4] = -100
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return HFEngine(model.eval(), [0])


@pytest.mark.parametrize("copies", [True, False])
def test_a_tiny_model_tells_copied_cells_from_one_template(tmp_path: Path, taught: HFEngine, copies: bool) -> None:
    batch = planted_batch(copies=copies)
    batch.to_jsonl(tmp_path / "train-000001.jsonl")
    run = measure_rollouts(tmp_path, taught, tiny_tokenizer(), rng=rng())
    (ratio,) = values(run, "collapse/first_turn/mi_ratio")
    assert ratio > 0.8 if copies else abs(ratio) < 0.1
    assert values(run, "collapse/first_turn/num_prompts") == [8.0] and values(run, "collapse/first_turn/num_samples") == [32.0]
    assert values(run, "text/shared_reasonings") == ([0.0] if copies else [1.0])
    low, high = values(run, "collapse/first_turn/mi_low")[0], values(run, "collapse/first_turn/mi_high")[0]
    assert low <= values(run, "collapse/first_turn/mi_sequence")[0] <= high
    assert "collapse/trajectory/mi_sequence" in run.series
    assert not any("tokenised anew" in note for note in run.notes)


def test_the_figure_is_the_one_that_the_measure_gives_for_all_pairs(tmp_path: Path) -> None:
    batch = planted_batch(copies=True, turns=1)
    batch.to_jsonl(tmp_path / "train-000001.jsonl")
    run = measure_rollouts(tmp_path, CopyReader(), rng=rng())
    contexts = {tuple(t.turns[0].context_ids.tolist()): t.turns[0].context_ids for t in batch.trajectories}
    spoken = [t.turns[0].reasoning_ids for t in batch.trajectories]
    columns = [CopyReader().score([context], [spoken])[0] for context in contexts.values()]
    sums = np.array([[column[s].sum() for column in columns] for s in range(len(spoken))])
    source = np.array([list(contexts).index(tuple(t.turns[0].context_ids.tolist())) for t in batch.trajectories])
    expected = mutual_information(sums, [len(z) for z in spoken if z is not None], source)
    for name in ("mi_sequence", "mi_token", "conditional_entropy_token", "mi_upper_bound"):
        assert values(run, f"collapse/first_turn/{name}") == [pytest.approx(expected[name], abs=1e-12)]
    assert "collapse/trajectory/mi_sequence" not in run.series and any("one turn" in note for note in run.notes)


def test_texts_are_tokenised_and_that_is_said(tmp_path: Path) -> None:
    run = measure_rollouts(verl_folder(tmp_path / "verl"), CopyReader(), rng=rng())
    assert values(run, "collapse/first_turn/mi_ratio") == [pytest.approx(1.0, abs=0.05)] * 2
    assert any("tokenised anew" in note for note in run.notes)
    chat = trl_file(tmp_path / "c.parquet", 1, chat=True)
    assert values(measure_rollouts(chat, CopyReader(), rng=rng()), "collapse/first_turn/mi_ratio")[0] > 0.9
    assert samples_of(chat, tokenizer=tiny_tokenizer())[0].context.endswith("<|im_end|>\n<|im_start|>assistant\n<think>")


def test_verifiers_ids_are_scored_as_they_are(tmp_path: Path) -> None:
    records = [trace_record(cell, [(f"cell {cell} <answer>", reply(f" {cell} {cell}"))]) for cell in CELLS for _ in range(2)]
    run = measure_rollouts(write_lines(tmp_path / "traces.jsonl", records), CopyReader(), rng=rng())
    assert values(run, "collapse/first_turn/mi_ratio")[0] > 0.9 and values(run, "train/response_length")[0] > 5
    assert not any("tokenised anew" in note for note in run.notes)


def test_text_without_a_tokenizer_and_few_prompts_say_why(tmp_path: Path) -> None:
    run = measure_rollouts(verl_folder(tmp_path / "a"), Bare(), rng=rng())
    assert not any(name.startswith("collapse/first_turn") for name in run.series)
    assert any(note.startswith("not measured at 2 steps (2, 10): first_turn") and "tokenizer" in note for note in run.notes)
    one = write_lines(tmp_path / "b" / "1.jsonl", [verl_row("the only prompt", reply("r"), 1.0, 1)] * 3)
    assert any("1 distinct contexts" in note for note in measure_rollouts(one, CopyReader(), rng=rng()).notes)
    rows = [verl_row(f"the prompt {cell}", reply(f" {cell}"), 1.0, 1) for cell in CELLS[:3]]
    notes = measure_rollouts(write_lines(tmp_path / "c" / "1.jsonl", rows), CopyReader(), rng=rng()).notes
    assert any("as few as 3 distinct prompts" in note for note in notes) and any("two trajectories" in note for note in notes)


def test_ids_outside_the_vocabulary_or_of_another_tokenizer_are_named(tmp_path: Path, taught: HFEngine) -> None:
    random_batch(groups=3).to_jsonl(tmp_path / "fine.jsonl")
    batch = planted_batch(copies=True)
    huge = [
        Trajectory(
            "p",
            0,
            0,
            "lake",
            tuple(Turn(**{**vars(turn), "context_ids": turn.context_ids + 90_000}) for turn in item.turns),
            True,
            True,
            "turns",
        )
        for item in batch.trajectories
    ]
    RolloutBatch(tuple(huge), batch.group_index, 0).to_jsonl(tmp_path / "huge.jsonl")
    with pytest.raises(TokenMismatch, match=r"token ids from \d+ to 9\d+, but the scorer's vocabulary has \d+"):
        measure_rollouts(tmp_path / "huge.jsonl", taught, tiny_tokenizer(), rng=rng())
    wrong = [
        Trajectory(
            "p",
            0,
            0,
            "lake",
            tuple(Turn(**{**vars(turn), "reply": "quite another text"}) for turn in item.turns),
            True,
            True,
            "turns",
        )
        for item in batch.trajectories
    ]
    RolloutBatch(tuple(wrong), batch.group_index, 0).to_jsonl(tmp_path / "wrong.jsonl")
    with pytest.raises(TokenMismatch, match="another tokenizer"):
        measure_rollouts(tmp_path / "wrong.jsonl", taught, tiny_tokenizer(), rng=rng())


def test_prompts_too_long_for_the_scorer_are_left_out_and_said(tmp_path: Path) -> None:
    class Short(CopyReader):
        model = type("M", (), {"config": type("C", (), {"max_position_embeddings": 40, "vocab_size": 5000})})

    rows = [
        verl_row(f"the prompt {cell}" + " up" * (60 if number < 3 else 0), reply(f" {cell}"), 1.0, 1)
        for number, cell in enumerate(CELLS)
    ]
    path = write_lines(tmp_path / "1.jsonl", rows)
    assert values(measure_rollouts(path, Short(), rng=rng()), "collapse/first_turn/num_prompts") == [5.0]
    all_long = write_lines(tmp_path / "2.jsonl", rows[:3])
    assert any("longer than the scorer's 40 tokens" in note for note in measure_rollouts(all_long, Short(), rng=rng()).notes)


def test_the_kept_part_is_bounded_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    rows = [
        verl_row(f"prompt {number} at {CELLS[number % 8]}", reply(f" {CELLS[number % 8]} {member}"), 1.0, 1)
        for number in range(40)
        for member in range(9)
    ]
    path = write_lines(tmp_path / "1.jsonl", rows)

    def measured(seed: int) -> dict[str, Any]:
        return measure_rollouts(path, CopyReader(), rng=rng(seed), prompts=10, per_prompt=4).series

    first = measured(1)
    assert first["collapse/first_turn/num_prompts"] == [(1, 10.0)] and first["collapse/first_turn/num_samples"] == [(1, 40.0)]
    assert first == measured(1)
    assert first["collapse/first_turn/mi_sequence"] != measured(2)["collapse/first_turn/mi_sequence"]


def test_steps_mixed_by_an_asynchronous_trainer_are_scored_whole_and_late_ones_counted(tmp_path: Path) -> None:
    rows = [verl_row(f"the prompt {cell}", reply(f" {cell}"), 1.0, step) for cell in CELLS for step in (1, 2, 3)]
    run = measure_rollouts(write_lines(tmp_path / "mixed.jsonl", rows), CopyReader(), rng=rng())
    assert values(run, "collapse/first_turn/num_prompts") == [8.0] * 3
    late = [verl_row(f"the prompt {cell}", reply(f" {cell}"), 1.0, step) for step in range(1, 7) for cell in CELLS]
    run = measure_rollouts(write_lines(tmp_path / "late.jsonl", [*late, late[0]]), CopyReader(), rng=rng())
    assert run.series["train/trajectories"][0] == (1, 9.0)
    assert any("1 turns that came after their step had been scored" in note for note in run.notes)


def test_what_is_held_of_many_prompts_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        verl_row(f"prompt {n}", reply(f"r{n // 2}"), float(m), step) for step in (1, 2, 3) for n in range(2048) for m in (0, 1)
    ]
    path = write_lines(tmp_path / "1.jsonl", rows)
    whole = measure_rollouts(path, rng=rng())
    monkeypatch.setattr("ragen2.diagnostics.rollout_files.measure.MOST_HELD", 3000)
    bounded = measure_rollouts(path, rng=rng())
    assert bounded.series == whole.series and values(whole, "text/shared_reasonings") == [1.0] * 3
    mixed = write_lines(tmp_path / "mixed" / "1.jsonl", rows[::3] + rows[1::3] + rows[2::3])
    assert any("were left out of the reward variance" in note for note in measure_rollouts(mixed, rng=rng()).notes)


def test_impossible_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="prompts is 1"):
        measure_rollouts(verl_folder(tmp_path), rng=rng(), prompts=1)


def test_a_tokenizer_that_puts_a_start_token_first_gets_one(tmp_path: Path) -> None:
    class Starting:
        bos_token_id = 7

        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            return [7] * add_special_tokens + [ord(letter) % 100 for letter in text]

    ids = TokenIds(CopyReader(), Starting(), ReadReport())
    assert ids.context("ab") is not None and ids.context("ab")[0] == 7 and ids.reasoning("ab")[0] != 7  # type: ignore[index]
    with pytest.raises(NotMeasurable, match="tokenizer"):
        TokenIds(Bare(), None, ReadReport()).context("ab")
