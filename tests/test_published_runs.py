"""Eight labelled runs of other people and one trainer state: what their logs are read as, and what becomes of them."""

import pytest
from published import DATA, LABELS, RUNS, alarms, halved_for_good, needs_data, run

from ragen2.diagnostics import diagnose
from ragen2.diagnostics.readers import read_log, recognise

pytestmark = needs_data


@pytest.mark.parametrize("name", sorted(LABELS))
def test_the_verdict_from_the_log(name) -> None:
    label = LABELS[name]
    found = diagnose(RUNS / name / "train.log")
    assert found.verdict == label["verdict"]
    assert set(label.get("also", [])) <= set(found.also)
    if "onset_step" in label:
        low, high = label["onset_step"]
        assert found.onset_step is not None and low <= found.onset_step <= high
        assert found.signals and found.signals[0].step <= found.onset_step
    assert 0.5 <= found.confidence <= 0.95
    assert found.missing == ()
    assert found.source == "verl console"


@pytest.mark.parametrize("name", sorted(LABELS))
def test_what_the_log_holds(name) -> None:
    label, found = LABELS[name], run(name)
    success = dict(found.series["validation/CoordSokoban/success"])
    assert round(success[0], 3) == pytest.approx(label["validation_success"]["first"], abs=0.001)
    peak, where = label["validation_success"]["peak"]
    assert success[where] == max(success.values()) == pytest.approx(peak, abs=0.001)
    value, last = label["validation_success"]["last"]
    assert max(success) == last and success[last] == pytest.approx(value, abs=0.001)
    reason, _, step = (label["stop"] or "").partition("@")
    assert found.stop == (reason or None)
    assert not step or max(s for points in found.series.values() for s, _ in points) == int(step)
    # Generated tokens, not whole sequences.
    assert found.names["train/response_length"] == "train/response_length"


@pytest.mark.parametrize("name", sorted(LABELS))
def test_a_table_alone_agrees_and_is_less_sure(name) -> None:
    label, found = LABELS[name], diagnose(RUNS / name / "metrics.csv")
    assert found.source == "verl csv"
    assert found.verdict == label["verdict"]
    assert found.confidence <= diagnose(RUNS / name / "train.log").confidence
    assert "collapse/first_turn/mi_sequence with mi_upper_bound" in found.missing


@pytest.mark.parametrize("name", sorted(LABELS))
def test_alarms_come_before_success_is_lost(name) -> None:
    label, series = LABELS[name], run(name).series
    found, halved = alarms(series), halved_for_good(series)
    assert bool(found) == (label["verdict"] != "healthy")
    if "onset_step" in label:
        assert halved is not None
        first = found[0]
        print(f"{name}: {first.verdict} at {first.step}, success halved for good at {halved}, {halved - first.step} steps later")
        assert first.step < halved
        warned = [alarm for alarm in found if alarm.verdict in ("degrading", "format collapse")]
        assert warned[0].step < halved


def test_a_folder_of_a_run_is_read_from_its_log() -> None:
    name = next(iter(LABELS))
    found = read_log(RUNS / name)
    assert found.source == "verl console"
    assert found.notes[0] == "read from train.log; not read: metrics.csv"


def test_no_label_is_needed_to_recognise_the_files() -> None:
    assert {recognise(RUNS / name / "train.log") for name in LABELS} == {"verl console"}
    assert {recognise(RUNS / name / "metrics.csv") for name in LABELS} == {"verl csv"}


def test_a_trainer_state_that_cannot_be_called_says_what_is_missing() -> None:
    path = DATA / "trl_trainer_state.json"
    assert recognise(path) == "trl trainer_state"
    found = diagnose(path)
    assert (found.verdict, found.confidence) == ("undecided", 0.0)
    assert found.steps == 40
    assert "rewards/…format…/mean" in found.explanation and "entropy" in found.explanation
    assert any(text.startswith("100% of the replies are cut") for text in found.evidence)
    assert any("--map valid_think=rewards/format_reward_fn/mean" in note for note in found.notes)
    mapped = diagnose(path, mapping={"valid_think": "rewards/format_reward_fn/mean"})
    assert mapped.verdict == "never learned"  # return: .88 at the start, 1.39 at best, .68 at the end, means of five iterations
    assert mapped.confidence <= 0.7
