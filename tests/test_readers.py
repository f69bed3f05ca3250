"""Logs of other trainers: every format, from small samples."""

import json
import math

import pytest
from sample_logs import BAR, entry, state, verl_line, verl_log, wandb, write

from ragen2.diagnostics import diagnose
from ragen2.diagnostics.readers import KINDS, RunSeries, read_log, recognise
from ragen2.diagnostics.readers.aliases import ALIASES, match, their_names
from ragen2.diagnostics.readers.columns import Column
from ragen2.diagnostics.readers.dict_records import numbers_in, parse_record
from ragen2.diagnostics.readers.metric_names import SHORT_NAMES, is_ours
from ragen2.diagnostics.readers.numbers import as_step, parse_number
from ragen2.diagnostics.readers.text_lines import Skipped, text_lines
from ragen2.errors import StorageError, UnknownName

# ---------------------------------------------------------------- verl console


def test_verl_console_records_behind_colours_prefixes_and_progress_bars(tmp_path) -> None:
    path = write(tmp_path, verl_log())
    assert recognise(path) == "verl console"
    run = read_log(path)
    assert isinstance(run, RunSeries)
    assert (run.source, run.steps) == ("verl console", 31)
    assert [(s, round(v, 9)) for s, v in run.series["validation/Sokoban/success"]] == [(0, 0.1), (10, 0.3), (20, 0.5), (30, 0.7)]
    assert dict(run.series["train/success"])[30] == pytest.approx(0.4)
    assert len(run.series["policy/entropy"]) == 30
    assert run.names["policy/entropy"] == "actor/entropy"
    assert run.series["train/return"][0] == (1, -1.5)
    assert "train/Sokoban/non-zero/success" in run.unmapped
    # The reward of the whole validation set is no success where success itself was logged.
    assert "validation/unknown/success" not in run.series


def test_verl_invalid_actions_left_out_where_nobody_was_invalid(tmp_path) -> None:
    run = read_log(write(tmp_path, verl_log()))
    rate = dict(run.series["collapse/valid_action_rate"])
    assert len(rate) == 30 and rate[3] == 0.75 and rate[4] == 1.0
    assert any("nobody was invalid" in note for note in run.notes)


def test_verl_lengths_of_whole_sequences_are_not_lengths_of_replies(tmp_path) -> None:
    text = verl_log()
    run = read_log(write(tmp_path, text))
    assert set(dict(run.series["train/response_length"]).values()) == {273.5}
    without = read_log(write(tmp_path, text.replace(" - train/response_length:273.5", ""), "b.txt"))
    assert "train/response_length" not in without.series
    assert any("whole sequences" in note for note in without.notes)
    plain = text.replace(" - train/response_length:273.5", "").replace("prompt_length/mean:0.007", "prompt_length/mean:310.5")
    assert read_log(write(tmp_path, plain, "c.txt")).series["train/response_length"][0] == (1, 1001.0)


def test_the_ceiling_of_information_from_the_chance_of_retrieval(tmp_path) -> None:
    run = read_log(write(tmp_path, verl_log()))
    assert dict(run.series["collapse/first_turn/mi_upper_bound"])[5] == pytest.approx(math.log(8))
    assert "retrieval_chance_level" in run.names["collapse/first_turn/mi_upper_bound"]


def test_verl_nan_inf_and_text_are_no_readings_and_are_told(tmp_path) -> None:
    text = "".join(
        verl_line(step, f"critic/score/mean:{value} - actor/kl_loss:nan - actor/entropy:oops")
        for step, value in ((1, "0.5"), (2, "nan"), (3, "-inf"), (4, "np.float64(nan)"), (5, "1.5e+01"))
    )
    run = read_log(write(tmp_path, text))
    assert run.series["train/return"] == [(1, 0.5), (5, 15.0)]
    assert any(note == "critic/score/mean is nan or infinite 3 times, first at step 2" for note in run.notes)
    assert any("actor/kl_loss is nan or infinite 5 times" in note for note in run.notes)
    assert any("skipped: a value that is no number (5 times, first in line 1)" in note for note in run.notes)


def test_a_resumed_run_logs_steps_again_and_the_last_counts(tmp_path) -> None:
    text = "".join(verl_line(step, f"critic/score/mean:{value}") for step, value in ((1, 1), (2, 2), (3, 3), (2, 20), (3, 30)))
    run = read_log(write(tmp_path, text))
    assert run.series["train/return"] == [(1, 1.0), (2, 20.0), (3, 30.0)]
    assert run.steps == 3
    assert any("logged again from 2" in note for note in run.notes)


def test_two_records_glued_into_one_line(tmp_path) -> None:
    glued = verl_line(1, "critic/score/mean:1.5").rstrip("\n") + verl_line(2, "critic/score/mean:2.5(WorkerDict pid=3) INFO: x")
    assert read_log(write(tmp_path, glued)).series["train/return"] == [(1, 1.5), (2, 2.5)]
    assert "global_step" not in str(read_log(write(tmp_path, glued + "global_step:9 - critic/score/mean:7\n", "b")).series)


def test_a_half_written_last_record_and_binary_in_between(tmp_path) -> None:
    text = verl_line(1, "critic/score/mean:1.5 - actor/entropy:0.5") + "\x00\x00 lost\n"
    text += verl_line(2, "critic/score/mean:2.5 - actor/entropy:0.5").rstrip()[:-1]
    run = read_log(write(tmp_path, text))
    assert run.series["train/return"] == [(1, 1.5), (2, 2.5)]
    assert run.series["policy/entropy"] == [(1, 0.5)]  # "0." is no reading of .5
    assert any("line 3, the last, is half-written" in note for note in run.notes)
    assert any(note == "skipped: binary content (in line 2)" for note in run.notes)


def test_the_reason_of_an_early_stop(tmp_path) -> None:
    stop = verl_line(31, "train/batch_size:128 - early_stopped/low_validation_success:1.0 - train/Sokoban/success:0", BAR)
    run = read_log(write(tmp_path, verl_log() + stop))
    assert run.stop == "low_validation_success"
    assert any("low_validation_success" in text for text in diagnose(tmp_path / "run.txt").evidence)


def test_plain_verl_of_single_turn_tasks(tmp_path) -> None:
    text = "".join(
        verl_line(
            s, f"val-core/openai/gsm8k/acc/mean@1:{s / 10} - val-core/openai/gsm8k/reward/mean@1:5 - actor/entropy_loss:0.3"
        )
        for s in (0, 5)
    )
    run = read_log(write(tmp_path, text))
    assert run.series["validation/openai-gsm8k/success"] == [(0, 0.0), (5, 0.5)]
    scores = text.replace("acc/mean@1", "other/mean@1")
    assert not any("validation" in name for name in read_log(write(tmp_path, scores, "b")).series)  # 5 is no rate


# ---------------------------------------------------------------- tables


def test_a_table_with_empty_cells(tmp_path) -> None:
    table = "step,val_success,train_success,MI_firstturn,valid_think_rate,mystery\n0,0.1,,,,\n1,,0.2,0.25,nan,3\n2,,0.3,,0.9,3\n"
    path = write(tmp_path, table)
    assert recognise(path) == "verl csv"
    run = read_log(path)
    assert run.series["train/success"] == [(1, 0.2), (2, 0.3)]
    assert run.series["validation/log/success"] == [(0, 0.1)]
    assert run.series["collapse/first_turn/mi_token"] == [(1, 0.25)]
    assert run.unmapped == ("mystery",)
    assert any("valid_think_rate is nan" in note for note in run.notes)


def test_broken_rows_of_a_table_are_counted(tmp_path) -> None:
    table = 'step;reward\n1;0.5\n2\n"3;0.5\nx;0.1\n4;none of it\n1e400;3\n5;0.75\n'
    run = read_log(write(tmp_path, table))
    assert run.series["train/return"] == [(1, 0.5), (5, 0.75)]
    text = " ".join(run.notes)
    for reason in ("not 2 cells", "broken quotes", "the step is no whole number", "a value that is no number"):
        assert reason in text


def test_a_cell_bomb_and_a_quote_that_never_closes(tmp_path) -> None:
    bomb = 'step,reward\n1,0.5\n2,"' + "x" * 300_000 + "\n" + "3,0.5\n" + '4,"' + "\n".join("y" * 50 for _ in range(100))
    run = read_log(write(tmp_path, bomb))
    assert [step for step, _ in run.series["train/return"]] == [1, 3]


def test_a_table_without_steps_says_how_to_name_them(tmp_path) -> None:
    path = write(tmp_path, "when,reward\n1,0.5\n2,0.6\n")
    with pytest.raises(StorageError, match="--map step=COLUMN"):
        read_log(path)
    assert read_log(path, {"step": "when"}).series["train/return"] == [(1, 0.5), (2, 0.6)]
    with pytest.raises(StorageError, match="no column 'whenever'"):
        read_log(path, {"step": "whenever"})


# ---------------------------------------------------------------- names


def test_home_made_names(tmp_path) -> None:
    path = write(tmp_path, "step,parsed_ok,won,H\n" + "".join(f"{s},0.{s},0.5,1\n" for s in range(1, 9)))
    with pytest.raises(UnknownName, match="Did you mean 'parsed_ok'"):
        read_log(path, {"valid_think": "parsed_okay"})
    run = read_log(path, {"valid_think": "parsed_ok", "success": "won", "policy/entropy": "H"})
    assert run.series["collapse/valid_think_rate"][0] == (1, 0.1)
    assert run.series["validation/log/success"][0] == (1, 0.5)
    assert run.names == {"collapse/valid_think_rate": "parsed_ok", "validation/log/success": "won", "policy/entropy": "H"}
    assert diagnose(path, mapping={"valid_think": "parsed_ok", "success": "won"}).source == "verl csv"


def test_names_that_do_not_exist_name_the_nearest(tmp_path) -> None:
    path = write(tmp_path, "step,reward\n1,0.5\n")
    with pytest.raises(UnknownName, match="Did you mean 'valid_think'"):
        read_log(path, {"valid_thinks": "reward"})
    with pytest.raises(UnknownName, match="Did you mean 'reward'"):
        read_log(path, {"success": "rewards"})


def test_a_mapping_beats_the_table_of_aliases(tmp_path) -> None:
    run = read_log(write(tmp_path, "step,entropy,entropy_new\n1,5,0.5\n"), {"entropy": "entropy_new"})
    assert run.series["policy/entropy"] == [(1, 0.5)]


def test_a_log_known_only_by_its_mapping(tmp_path) -> None:
    path = write(tmp_path, "".join(f"{{'parsed': 0.{s}, 'n': {s}}}\n" for s in range(1, 6)))
    with pytest.raises(StorageError, match="not a log this version reads"):
        read_log(path)
    run = read_log(path, {"valid_think": "parsed", "step": "n"})
    assert run.series["collapse/valid_think_rate"][-1] == (5, 0.5)


def test_every_alias_stands_for_a_metric_of_ours() -> None:
    for alias in ALIASES:
        assert is_ours(alias.ours.replace("{0}", "x")), alias
    for name in SHORT_NAMES.values():
        assert is_ours(name), name


def test_prefixes_and_our_own_names() -> None:
    assert [found.ours for name in ("train/completions/mean_length", "validation/lake/success") if (found := match(name))] == [
        "train/response_length",
        "validation/lake/success",
    ]
    assert match("timing_s/gen") is None
    assert match("validation/a/b/success") is None
    assert their_names("validation/<env>/success", "verl console")[0] == "val-env/…/success"
    assert their_names("policy/entropy", "trl trainer_state") == ("entropy",)
    assert their_names("nothing of ours") == ()


# ---------------------------------------------------------------- TRL


def test_trainer_state(tmp_path) -> None:
    entries = [entry(step, **{"completions/clipped_ratio": 0.9, "frac_reward_zero_std": 0.1}) for step in range(5, 50, 5)]
    entries += [{"step": 45, "epoch": 4.5, "eval_reward": 0.7}, {"step": 45, "train_runtime": 3.0}]
    path = write(tmp_path, state(entries))
    assert recognise(path) == "trl trainer_state"
    run = read_log(path)
    assert (run.source, run.steps) == ("trl trainer_state", 9)
    assert run.series["train/return"][0] == (5, 0.5)
    assert run.series["collapse/reward_spread"][-1] == (45, 0.5)
    assert run.series["train/truncated_rate"][0] == (5, 0.9)
    assert run.series["validation/log/return"] == [(45, 0.7)]
    assert "step" not in run.names.values() and "epoch" not in run.names.values()


def test_a_trainer_state_that_breaks_off(tmp_path) -> None:
    text = state([entry(step) for step in range(1, 10)])
    path = write(tmp_path, text[: text.index('"step": 6')])
    run = read_log(path)
    assert run.steps == 5
    assert any("after entry 5" in note for note in run.notes)
    with pytest.raises(StorageError, match="holds no entry"):
        read_log(write(tmp_path, '{"log_history": [', "b"))


def test_a_damaged_entry_of_a_trainer_state_costs_only_itself(tmp_path) -> None:
    text = state([entry(step) for step in range(1, 10)]).replace('"step": 4,', '"step: 4,')
    run = read_log(write(tmp_path, text))
    assert [step for step, _ in run.series["train/return"]] == [1, 2, 3, 5, 6, 7, 8, 9]
    assert any("does not read" in note for note in run.notes)


def test_scores_of_the_format_count_as_a_rate_only_when_they_are_one(tmp_path) -> None:
    def run(**values):
        return read_log(write(tmp_path, state([entry(step, **values) for step in (1, 2, 3)])))

    name = "rewards/format_reward_func/mean"
    rate = run(**{name: 0.9, "rewards/format_reward_func/std": 0.3})
    assert rate.names["collapse/valid_think_rate"] == name
    assert any("was taken for" in note for note in rate.notes)
    for values in ({name: 1.5}, {name: 0.5, "rewards/format_reward_func/std": 0.95}):
        score = run(**values)
        assert "collapse/valid_think_rate" not in score.series
        assert any(f"--map valid_think={name}" in note for note in score.notes)
    mapped = read_log(tmp_path / "run.txt", {"valid_think": name})
    assert mapped.series["collapse/valid_think_rate"] == [(1, 0.5), (2, 0.5), (3, 0.5)]


def test_odd_entries_of_a_trainer_state(tmp_path) -> None:
    entries = [3, None, {"loss": 1.0, "reward": 1.0}, entry(1, deep={"a": {"b": {"c": {"d": {"e": 1}}}}}), entry(2)]
    run = read_log(write(tmp_path, state(entries).replace('"loss": 0.1', '"loss": NaN')))
    assert run.series["train/return"] == [(1, 0.1), (2, 0.2)]
    assert any("an entry without a step" in note for note in run.notes)
    assert any("loss is nan" in note for note in run.notes)


# ---------------------------------------------------------------- a dict a line


@pytest.mark.parametrize("style", [str, json.dumps])
def test_a_dict_a_line_between_progress_bars(tmp_path, style) -> None:
    lines = ["vllm {'max_tokens': 400, 'temperature': 0.5}\n", "loading…\n"]
    for step in range(1, 6):
        record = {"loss": 0.5, "grad_norm": 0.3, "reward": step / 10, "kl": 1e-05, "epoch": step / 100}
        lines.append(f"  5%|▌  | {step}/200 [00:01<00:30]\r  6%|▌ {style(record)}\n")
    lines.append(f"{style({'eval_reward': 0.75, 'eval_loss': 0.1, 'epoch': 0.05})}\n")
    lines.append(f"{style({'train_runtime': 3.5, 'train_loss': 0.1, 'epoch': 0.05})}\n")
    path = write(tmp_path, "".join(lines))
    assert recognise(path) == "dict log"
    run = read_log(path)
    assert run.series["train/return"] == [(step, step / 10) for step in range(1, 6)]
    assert run.series["validation/log/return"] == [(5, 0.75)]
    assert run.steps == 5
    assert any("were counted" in note for note in run.notes)


def test_dicts_with_a_step_and_odd_values(tmp_path) -> None:
    lines = [
        "{'step': 10, 'reward': np.float64(0.5), 'entropy': tensor(0.25, device='cuda:0'), 'name': 'x', 'flag': True}",
        "{'step': 20, 'reward': '0.75', 'entropy': nan, 'none': None}",
        '{"global_step": 30, "reward": 1e999, "metrics": {"entropy": 0.5}, "entropy": NaN}',
        '{"step": 40.0, "reward": ' + "9" * 5000 + ', "entropy": 0.5}',
        "{'step': 50, 'reward': __import__('os').system('true'), 'entropy': 0.125}",
        "{'step': 60, 'reward': 1.0, 'entropy': 0.5}",
    ]
    run = read_log(write(tmp_path, "\n".join(lines)))
    assert run.series["train/return"] == [(10, 0.5), (20, 0.75), (60, 1.0)]
    assert run.series["policy/entropy"] == [(10, 0.25), (60, 0.5)]
    assert any("no readable dict" in note and "line 4" in note for note in run.notes)


def test_records_are_scanned_not_evaluated() -> None:
    assert parse_record("x {'a': 1, 'b': -2.5e-3}") == {"a": 1, "b": -2.5e-3}
    assert dict(numbers_in(parse_record("{'a': open('x'), 'b': 1}") or {})) == {"b": 1.0}
    assert parse_record("{'a': [1, 2], 'b': 1}") == {"a": [1, 2], "b": 1}
    assert parse_record("{'a': f(g('x')), 'b': 1}") is None
    assert parse_record("{" * 50_000 + "'a': 1" + "}" * 50_000) is None
    assert parse_record('{"a":' * 20_000 + "1" + "}" * 20_000) is None
    assert parse_record("[" * 100_000) is None
    assert parse_record("{'a': 1, " * 10_000) is None


def test_json_lines_of_another_loop_are_no_run_of_ours(tmp_path) -> None:
    path = write(tmp_path, "".join(json.dumps({"step": s, "reward": 0.5, "success_rate": 0.5}) + "\n" for s in range(5)))
    assert recognise(path) == "dict log"
    assert read_log(path).series["train/success"][0] == (0, 0.5)
    ours = write(tmp_path, json.dumps({"step": 1, "train/success": 0.5, "time/rollout": 2}) + "\n", "ours")
    assert recognise(ours) == "ragen2"


# ---------------------------------------------------------------- W&B


def test_a_wandb_export_of_one_run(tmp_path) -> None:
    path = write(tmp_path, wandb(["run - 1"], ("train/reward", "train/entropy")))
    assert recognise(path) == "wandb csv"
    run = read_log(path)
    assert run.source == "wandb csv"
    assert run.series["train/return"] == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert dict(run.series["policy/entropy"])[0] == 3.0  # after reward, its __MIN and its __MAX
    assert any("4 columns of smallest and largest" in note for note in run.notes)


def test_a_wandb_export_of_several_runs_asks_which(tmp_path) -> None:
    path = write(tmp_path, wandb(["one", "two words"]))
    with pytest.raises(StorageError, match=r"2 runs: one; two words. Choose one: '.*::one'"):
        read_log(path)
    assert read_log(f"{path}::two words").series["train/return"][0] == (0, 3.0)
    with pytest.raises(StorageError, match="no run 'three'"):
        read_log(f"{path}::three")
    with pytest.raises(StorageError, match="only W&B exports"):
        read_log(f"{write(tmp_path, verl_log(), 'verl')}::one")


def test_wandb_exports_of_several_charts_of_one_run(tmp_path) -> None:
    write(tmp_path, wandb(["one"]), "reward.csv")
    write(tmp_path, wandb(["one"], ("train/entropy",)), "entropy.csv")
    run = read_log(tmp_path)
    assert {"train/return", "policy/entropy"} <= set(run.series)
    assert not any("again" in note for note in run.notes)
    write(tmp_path, wandb(["two"], ("kl",)), "kl.csv")
    with pytest.raises(StorageError, match="different runs: one; two"):
        read_log(tmp_path)


def test_a_wandb_export_over_time_is_refused(tmp_path) -> None:
    text = wandb(["one"]).replace('"Step"', '"Relative Time (Process)"')
    with pytest.raises(StorageError, match="x-axis to Step"):
        read_log(write(tmp_path, text))


# ---------------------------------------------------------------- TensorBoard


def event_file(folder, values, name="reward"):
    events = pytest.importorskip("tensorboard.compat.proto.event_pb2", reason="tensorboard is not installed")
    summary = pytest.importorskip("tensorboard.compat.proto.summary_pb2", reason="tensorboard is not installed")
    writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer", reason="tensorboard is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    log = writer.EventFileWriter(str(folder))
    for step, value in values:
        item = summary.Summary.Value(tag=name, simple_value=value)
        log.add_event(events.Event(step=step, summary=summary.Summary(value=[item])))
    log.close()
    return next(folder.iterdir())


def test_tensorboard_files_and_folders(tmp_path) -> None:
    file = event_file(tmp_path / "tb" / "run", [(1, 0.5), (2, math.nan), (3, 0.75)], "train/reward")
    assert recognise(file) == "tensorboard"
    for place in (file, file.parent, tmp_path / "tb"):
        run = read_log(place)
        assert run.source == "tensorboard"
        assert run.series["train/return"] == [(1, 0.5), (3, 0.75)]
    assert any("is nan or infinite 1 times" in note for note in run.notes)
    event_file(tmp_path / "tb" / "other", [(1, 0.5)])
    with pytest.raises(StorageError, match="2 TensorBoard runs: other, run"):
        read_log(tmp_path / "tb")


def test_a_tensorboard_file_that_breaks_off(tmp_path) -> None:
    file = event_file(tmp_path / "run", [(step, step / 10) for step in range(1, 11)])
    data = file.read_bytes()
    for cut in (len(data) - 3, len(data) - 20, len(data) // 2):
        run = read_log(write(tmp_path, data[:cut], "cut"))
        assert 0 < len(run.series["train/return"]) < 10
        assert any("breaks off" in note for note in run.notes)
    with pytest.raises(StorageError, match="holds no scalar"):
        read_log(write(tmp_path, data[:40], "start"))
    middle = len(data) // 2
    damaged = data[:middle] + bytes(range(200, 208)) + data[middle + 8 :]
    assert isinstance(read_log(write(tmp_path, damaged, "damaged")), RunSeries)


def test_tensors_of_one_number_are_scalars(tmp_path) -> None:
    summary = pytest.importorskip("tensorboard.compat.proto.summary_pb2", reason="tensorboard is not installed")
    from ragen2.diagnostics.readers.tensorboard_events import _scalar

    value = summary.Summary.Value(tag="x")
    value.tensor.dtype = 1
    value.tensor.tensor_content = b"\x00\x00\x00\x3f"
    assert _scalar(value) == 0.5
    value.tensor.tensor_content = b"\x00\x00"
    assert _scalar(value) is None
    other = summary.Summary.Value(tag="x")
    other.tensor.float_val.append(0.25)
    assert _scalar(other) == 0.25
    other.tensor.tensor_shape.dim.add().size = 2
    assert _scalar(other) is None


# ---------------------------------------------------------------- folders


def test_a_folder_with_a_log_and_the_table_made_from_it(tmp_path) -> None:
    write(tmp_path, verl_log(), "train.log")
    write(tmp_path, "step,val_success\n0,0.9\n1,0.8\n", "metrics.csv")
    write(tmp_path, "experiment_name : x\n", "metadata.txt")
    run = read_log(tmp_path)
    assert run.source == "verl console"
    assert run.notes[0] == "read from train.log; not read: metrics.csv"
    write(tmp_path, verl_log(), "train2.log")
    with pytest.raises(StorageError, match=r"holds 2 logs: train\.log, train2\.log"):
        read_log(tmp_path)


def test_checkpoints_of_a_hugging_face_trainer(tmp_path) -> None:
    for step in (100, 20):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text(state([entry(step)]))
        (folder / "config.json").write_text('{"model_type": "x"}')
    run = read_log(tmp_path)
    assert run.series["train/return"] == [(100, 10.0)]
    assert "checkpoint-100" in run.notes[0]


def test_our_run_directory_comes_first(tmp_path) -> None:
    write(tmp_path, json.dumps({"step": 1, "train/success": 0.5}) + "\n", "metrics.jsonl")
    write(tmp_path, verl_log(), "train.log")
    assert read_log(tmp_path).source == "ragen2"
    mapped = read_log(tmp_path, {"success": "train/success"})
    assert mapped.series["validation/log/success"] == [(1, 0.5)]
    with pytest.raises(UnknownName):
        read_log(tmp_path, {"success": "train/succes"})


def test_folders_without_a_log(tmp_path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "self").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="holds no log"):
        read_log(tmp_path)
    with pytest.raises(StorageError, match="cannot read"):
        read_log(tmp_path / "loop")


def test_long_lines_are_cut_and_counted(tmp_path) -> None:
    skipped = Skipped()
    path = write(tmp_path, b"short\n" + b"x" * 3_000_000 + b"\nafter\r\nlast")
    lines = list(text_lines(path, skipped, longest=1 << 20))
    assert [(number, len(line)) for number, line in lines] == [(1, 5), (2, 1 << 20), (3, 5), (4, 4)]
    assert skipped.notes() == ["skipped: what stands beyond 1 MiB of a line (in line 2)"]


def test_more_readings_than_can_be_looked_at_are_thinned() -> None:
    column = Column()
    for step in range(250_001):
        column.steps.append(step)
        column.values.append(step)
    kept = column.last_by_step()
    assert len(kept) <= 100_000
    assert max(kept) == 250_000


def test_numbers_as_logs_write_them() -> None:
    written = ("0.5", " 1 ", "3.2e+01", "np.float64(0.25)", "tensor(0.5, device='cuda:0')", "-inf")
    assert [parse_number(text) for text in written] == [0.5, 1.0, 32.0, 0.25, 0.5, -math.inf]
    assert math.isnan(parse_number("nan") or 0)
    assert [parse_number(text) for text in ("", "x", "1" * 100, "f(g(1))", "0.5 s")] == [None] * 5
    assert [as_step(value) for value in (3, "4", 5.0, 5.5, True, None, 1e300, "nan")] == [3, 4, 5, None, None, None, None, None]


def test_kinds_are_named() -> None:
    assert set(KINDS) == {
        "ragen2",
        "verl console",
        "verl csv",
        "trl trainer_state",
        "dict log",
        "wandb csv",
        "tensorboard",
        "rollouts",
    }
