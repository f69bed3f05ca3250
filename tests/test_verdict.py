"""The verdict on made-up series of every kind, short runs, missing columns, alarms."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ragen2.diagnostics import Diagnosis, OnlineVerdict, VerdictConfig, diagnose, judge
from ragen2.diagnostics.series import Series, pick_signals
from ragen2.errors import ConfigError, StorageError

EVERY = list(range(1, 101))
CHECKS = list(range(0, 101, 10))
MEASURED = [1, *range(5, 101, 5)]


def ramp(steps, start, end, begin=0, finish=100):
    """Linear from `start` at step `begin` to `end` at `finish`, flat outside."""
    return [(s, start + (end - start) * min(max((s - begin) / (finish - begin), 0.0), 1.0)) for s in steps]


def information(values, view="probe", prompts=64):
    """Series of MI as shares of the ceiling."""
    ceiling = math.log(prompts)
    return {
        f"collapse/{view}/mi_sequence": [(step, share * ceiling) for step, share in values],
        f"collapse/{view}/mi_upper_bound": [(step, ceiling) for step, _ in values],
    }


def healthy():
    return {
        "validation/lake/success": ramp(CHECKS, 0.4, 0.7),
        "validation/lake/episodes": [(step, 512.0) for step in CHECKS],
        "train/success": ramp(EVERY, 0.4, 0.7),
        "collapse/valid_think_rate": ramp(EVERY, 0.98, 0.97),
        "collapse/valid_action_rate": ramp(EVERY, 0.97, 0.96),
        "policy/entropy": ramp(EVERY, 1.2, 0.6),
        "collapse/reward_variance": ramp(EVERY, 0.2, 0.12),
        "collapse/probe/conditional_entropy_token": ramp(MEASURED, 1.0, 0.8),
        **information(ramp(MEASURED, 0.9, 0.7)),
    }


def test_a_run_that_learns_is_healthy() -> None:
    verdict = judge(healthy())
    assert (verdict.verdict, verdict.onset_step, verdict.also, verdict.regime) == ("healthy", None, (), "diverse")
    assert verdict.confidence >= 0.8
    assert verdict.missing == ()
    assert "0.4 at the start" in verdict.evidence[0]
    assert verdict.what_to_try


def test_template_collapse_with_success_and_format_intact() -> None:
    verdict = judge(healthy() | information(ramp(MEASURED, 0.9, 0.0, 20, 60)))
    assert verdict.verdict == "template collapse"
    assert verdict.also == ()
    assert verdict.onset_step in range(50, 60 + 1)  # below 15 % of .9
    assert verdict.regime == "template"


def test_negative_information_counts_as_none() -> None:
    assert judge(healthy() | information(ramp(MEASURED, 0.5, -3.0, 20, 60))).verdict == "template collapse"


def test_a_policy_that_never_read_its_prompt() -> None:
    verdict = judge(healthy() | information(ramp(MEASURED, 0.02, 0.01)))
    assert verdict.verdict == "template collapse"
    assert verdict.onset_step == 1
    assert "never depended" in verdict.explanation


def test_one_low_reading_of_information_is_no_onset() -> None:
    for position in (10, len(MEASURED) - 1):
        values = ramp(MEASURED, 0.9, 0.7)
        values[position] = (values[position][0], 0.0)
        assert judge(healthy() | information(values)).verdict == "healthy"


def test_information_with_too_few_prompts_is_left_out() -> None:
    series = healthy()
    for step in (85, 90, 95, 100):
        index = MEASURED.index(step)
        series["collapse/probe/mi_sequence"][index] = (step, 0.0)
        series["collapse/probe/mi_upper_bound"][index] = (step, math.log(2))
    verdict = judge(series)
    assert verdict.verdict == "healthy"
    assert any("4 readings of mutual information left out" in text for text in verdict.evidence)


def test_the_probe_is_preferred_and_other_views_stand_in() -> None:
    saturated = information(ramp(MEASURED, 1.0, 1.0), "first_turn", 8)
    falling = information(ramp(MEASURED, 0.9, 0.0, 20, 60))
    assert judge(healthy() | saturated | falling).verdict == "template collapse"
    series = {name: points for name, points in healthy().items() if "/probe/" not in name}
    assert judge(series | information(ramp(MEASURED, 0.9, 0.0, 20, 60), "trajectory", 8)).verdict == "template collapse"


def test_format_collapse_is_relative_to_the_best_so_far() -> None:
    think = ramp(EVERY, 0.48, 0.64, 0, 40)[:40] + ramp(EVERY, 0.64, 0.1, 40, 80)[40:]
    verdict = judge(healthy() | {"collapse/valid_think_rate": think, "validation/lake/success": ramp(CHECKS, 0.6, 0.0, 50, 80)})
    assert verdict.verdict == "never learned"  # success never rose
    assert verdict.also == ("format collapse",)
    rising = ramp(CHECKS, 0.3, 0.6, 0, 40)[:5] + ramp(CHECKS, 0.6, 0.0, 40, 80)[5:]
    verdict = judge(healthy() | {"collapse/valid_think_rate": think, "validation/lake/success": rising})
    assert verdict.verdict == "format collapse"
    assert verdict.also == ()
    assert verdict.onset_step in range(62, 68 + 1)  # .32 of .64 is passed near step 64
    assert judge(healthy() | {"collapse/valid_think_rate": ramp(EVERY, 0.48, 0.40)}).verdict == "healthy"  # low from the start


def test_format_that_broke_and_half_recovered_counts_when_success_is_lost() -> None:
    action = ramp(EVERY, 0.9, 0.2, 40, 60)[:75] + [(step, 0.5) for step in EVERY[75:]]
    rising = ramp(CHECKS, 0.3, 0.6, 0, 40)[:5] + ramp(CHECKS, 0.6, 0.0, 40, 60)[5:]
    verdict = judge(healthy() | {"collapse/valid_action_rate": action, "validation/lake/success": rising})
    assert verdict.verdict == "format collapse"
    assert verdict.onset_step == 60
    assert judge(healthy() | {"collapse/valid_action_rate": action}).verdict == "degrading"


def test_format_outranks_template_which_is_listed() -> None:
    series = (
        healthy() | information(ramp(MEASURED, 0.9, 0.0, 10, 40)) | {"collapse/valid_think_rate": ramp(EVERY, 1.0, 0.0, 60, 90)}
    )
    verdict = judge(series)
    assert verdict.verdict == "format collapse"
    assert verdict.also == ("template collapse",)


def test_template_yields_to_degrading_while_format_falls_too() -> None:
    series = (
        healthy() | information(ramp(MEASURED, 0.9, 0.0, 10, 40)) | {"collapse/valid_think_rate": ramp(EVERY, 1.0, 0.6, 60, 90)}
    )
    verdict = judge(series)
    assert verdict.verdict == "degrading"
    assert verdict.also == ("template collapse",)


def test_success_well_below_its_peak_is_degrading() -> None:
    peak = ramp(CHECKS, 0.2, 0.5, 0, 50)[:6] + ramp(CHECKS, 0.5, 0.3, 50, 90)[6:]
    verdict = judge(healthy() | {"validation/lake/success": peak})
    assert verdict.verdict == "degrading"
    assert verdict.also == ()
    assert any("below its best" in text for text in verdict.evidence)


def test_a_fall_within_its_errors_is_not_degrading() -> None:
    noisy = ramp(CHECKS, 0.02, 0.10, 0, 50)[:6] + ramp(CHECKS, 0.10, 0.07, 50, 90)[6:]
    few = {"validation/lake/success": noisy, "validation/lake/episodes": [(step, 64.0) for step in CHECKS]}
    assert judge(healthy() | few).verdict == "healthy"


def test_entropy_collapse_needs_an_effect() -> None:
    gone = {
        "policy/entropy": ramp(EVERY, 1.2, 0.01, 10, 50),
        "collapse/probe/conditional_entropy_token": ramp(MEASURED, 1.0, 0.02, 10, 50),
    }
    compressed = judge(healthy() | gone)
    assert (compressed.verdict, compressed.regime) == ("healthy", "compressed")
    flat = judge(healthy() | gone | {"collapse/reward_variance": ramp(EVERY, 0.2, 0.0, 10, 50)})
    assert flat.verdict == "entropy collapse"
    assert flat.onset_step in range(44, 52 + 1)
    blind = judge(healthy() | gone | information(ramp(MEASURED, 0.9, 0.0, 10, 50)))
    assert (blind.verdict, blind.also, blind.regime) == ("entropy collapse", (), "low entropy")


def test_varied_reasoning_contradicts_entropy_collapse() -> None:
    series = healthy() | {"policy/entropy": ramp(EVERY, 1.2, 0.01, 10, 50)} | information(ramp(MEASURED, 0.9, 0.0, 10, 50))
    assert judge(series).verdict == "template collapse"


def test_units_of_entropy_do_not_matter() -> None:
    gone = {"policy/entropy": ramp(EVERY, 1.2, 0.01, 10, 50), "collapse/reward_variance": ramp(EVERY, 0.2, 0.0, 10, 50)}
    series = {name: points for name, points in (healthy() | gone).items() if "conditional" not in name}
    summed = series | {"policy/entropy": [(step, 300 * value) for step, value in series["policy/entropy"]]}
    assert judge(series).verdict == judge(summed).verdict == "entropy collapse"
    assert judge(series).onset_step == judge(summed).onset_step


def test_solved_is_healthy_whatever_stopped() -> None:
    solved = {
        "validation/lake/success": ramp(CHECKS, 0.4, 0.99, 0, 60),
        "train/success": ramp(EVERY, 0.4, 1.0, 0, 60),
        "collapse/reward_variance": ramp(EVERY, 0.2, 0.0, 0, 60),
        "policy/entropy": ramp(EVERY, 1.2, 0.01, 0, 60),
    }
    verdict = judge(healthy() | solved, stop="empty_batches")
    assert verdict.verdict == "healthy"
    assert verdict.also == ()
    assert any("solved" in text for text in verdict.evidence)
    assert any("empty_batches" in text for text in verdict.evidence)


def test_a_solved_run_without_information_does_not_contradict_itself() -> None:
    solved = {"validation/lake/success": ramp(CHECKS, 0.4, 1.0), "train/success": ramp(EVERY, 0.5, 1.0, 0, 60)}
    verdict = judge(healthy() | solved | information(ramp(MEASURED, 0.9, 0.0, 20, 60)))
    assert (verdict.verdict, verdict.also) == ("healthy", ("template collapse",))
    assert "yet there is template collapse" in verdict.explanation
    assert "none of the signals" not in verdict.explanation
    assert verdict.confidence <= judge(healthy() | solved).confidence - 0.1
    assert any("filter" in text for text in verdict.what_to_try)


def test_success_that_is_gone_is_not_called_going_wrong() -> None:
    gone = [*ramp(CHECKS[:5], 0.4, 0.7, 0, 40), *ramp(CHECKS[5:], 0.7, 0.0, 50, 80)]
    verdict = judge(healthy() | {"validation/lake/success": gone, "train/success": []})
    assert verdict.verdict == "degrading"
    assert "success is gone" in verdict.explanation and "not collapsed yet" not in verdict.explanation


def test_a_fall_in_the_very_last_reading_is_told_and_lowers_confidence() -> None:
    values = ramp(CHECKS, 0.4, 0.7)
    fallen = healthy() | {"validation/lake/success": [*values[:-1], (values[-1][0], 0.42)]}
    verdict = judge(fallen)
    assert verdict.verdict == "healthy"
    assert any("success is down to 0.42" in text for text in verdict.evidence)
    assert verdict.confidence <= judge(healthy()).confidence - 0.15
    assert not any("is down to" in text for text in judge(healthy()).evidence)


def test_never_learned_against_the_noise_of_the_first_validation() -> None:
    noise = [(step, 0.1 + 0.012 * (-1) ** (step // 10)) for step in CHECKS]
    verdict = judge(healthy() | {"validation/lake/success": noise})
    assert verdict.verdict == "never learned"
    assert "2 standard errors" in verdict.explanation
    better = judge(healthy() | {"validation/lake/success": [(0, 0.10), (50, 0.11), (100, 0.16)]})
    assert better.verdict == "healthy"
    fewer = {
        "validation/lake/success": [(0, 0.10), (50, 0.11), (100, 0.16)],
        "validation/lake/episodes": [(0, 60.0), (100, 60.0)],
    }
    assert judge(healthy() | fewer).verdict == "never learned"  # the same rise within the error of 60 episodes


def test_success_of_zero_at_the_start_has_an_error_too() -> None:
    verdict = judge(healthy() | {"validation/lake/success": [(0, 0.0), (50, 0.002), (100, 0.002)]})
    assert verdict.verdict == "never learned"


@pytest.mark.parametrize("last", [20, 35, 70])
def test_short_runs_with_a_validation_at_each_end(last) -> None:
    series = {name: [point for point in points if point[0] <= last] for name, points in healthy().items()}
    ends = {"validation/lake/episodes": [(0, 512.0), (last, 512.0)]}
    for end, expected in ((0.62, "healthy"), (0.42, "never learned"), (0.2, "never learned")):
        verdict = judge(series | ends | {"validation/lake/success": [(0, 0.4), (last, end)]})
        assert verdict.verdict == expected, end
    long = judge(healthy())
    short = judge(series | ends | {"validation/lake/success": [(0, 0.4), (last, 0.62)]})
    assert 0 < short.confidence < long.confidence


def test_two_iterations_are_undecided() -> None:
    series = {name: [point for point in points if point[0] <= 2] for name, points in healthy().items()}
    verdict = judge(series | {"validation/lake/success": [(0, 0.0), (2, 0.0)]})
    assert verdict.verdict == "undecided"
    assert verdict.also == ()
    assert verdict.confidence == 0.0


def test_nothing_logged_is_undecided_and_says_what_would_help() -> None:
    verdict = judge({})
    assert verdict.verdict == "undecided"
    for column in ("validation/<env>/success", "collapse/valid_think_rate", "mi_sequence", "policy/entropy"):
        assert column in verdict.explanation
    assert judge({"policy/entropy": ramp(EVERY, 1.0, 0.9)}).verdict == "undecided"


def test_without_information_a_healthy_verdict_is_less_sure() -> None:
    blind = judge({name: points for name, points in healthy().items() if "/probe/" not in name})
    assert blind.verdict == "healthy"
    assert blind.regime == "unknown"
    assert blind.confidence < judge(healthy()).confidence
    assert any("template collapse cannot be ruled out" in text for text in blind.evidence)


def test_training_success_or_return_stand_in_for_validation() -> None:
    rng = np.random.default_rng(0)
    rise = [(step, value + rng.normal(0, 0.05)) for step, value in ramp(EVERY, 0.3, 0.6)]
    flat = [(step, 0.3 + rng.normal(0, 0.05)) for step in EVERY]
    base = {name: points for name, points in healthy().items() if "success" not in name and "episodes" not in name}
    assert judge(base | {"train/success": rise}).verdict == "healthy"
    assert judge(base | {"train/return": [(step, 10 * value - 5) for step, value in rise]}).verdict == "healthy"
    assert judge(base | {"train/success": flat}).verdict != "degrading"


def test_several_environments_are_averaged() -> None:
    both = {"validation/lake/success": ramp(CHECKS, 0.4, 0.6), "validation/box/success": ramp(CHECKS, 0.2, 0.2)}
    signals = pick_signals(healthy() | both | {"validation/box/episodes": [(0, 100.0)]}, 4)
    assert signals.success.start == pytest.approx(0.3)
    assert signals.success.values_K[-1] == pytest.approx(0.4)
    assert signals.episodes == 612


def test_not_finite_readings_and_order_do_not_matter() -> None:
    series = healthy()
    mixed = {name: [*reversed(points), (3, math.nan), (7, math.inf)] for name, points in series.items()}
    for name, points in mixed.items():  # a finite reading of the same step must survive the NaN
        assert len(Series.of(points)) == len(Series.of(series[name]))
    assert judge(mixed) == judge(series)


def test_reference_is_the_start_or_the_best_smoothed_value_so_far() -> None:
    series = Series.of(list(enumerate([1.0, 9.0, 2.0, 3.0, 1.0, 0.5])))
    assert series.smoothed_K.tolist() == [1.0, 9.0, 2.0, 3.0, 2.0, 1.0]
    assert series.best_K.tolist() == [1.0, 1.0, 2.0, 3.0, 3.0, 3.0]  # the lone 9 never counts


def test_alarm_is_the_third_reading_in_a_row_and_sounds_once() -> None:
    online = OnlineVerdict()
    rates = [0.9, 0.95, 0.93, 0.4, 0.9, 0.4, 0.4, 0.4, 0.3, 0.9, 0.4, 0.4, 0.4]
    alarms = [alarm.step for step, rate in enumerate(rates) for alarm in online.update(step, {"collapse/valid_think_rate": rate})]
    assert alarms == [7, 12]


def test_alarm_follows_the_best_so_far_but_not_a_lone_peak() -> None:
    online = OnlineVerdict()
    for step, rate in enumerate([0.4, 0.4, 1.0, 0.4, 0.4, 0.4]):
        assert online.update(step, {"collapse/valid_action_rate": rate}) == []
    for step, rate in enumerate([0.9, 0.9, 0.9, 0.4, 0.4], 6):
        assert online.update(step, {"collapse/valid_action_rate": rate}) == []
    assert [alarm.verdict for alarm in online.update(11, {"collapse/valid_action_rate": 0.4})] == ["format collapse"]


def test_low_entropy_alone_is_no_alarm() -> None:
    def sounded(share: float) -> list[str]:
        online, found = OnlineVerdict(), []
        for step in range(8):
            now = 1.0 if step == 0 else share
            metrics = {"policy/entropy": 1.0 if step == 0 else 0.01, "collapse/probe/mi_sequence": now * math.log(64)}
            found += [alarm.verdict for alarm in online.update(step, metrics | {"collapse/probe/mi_upper_bound": math.log(64)})]
        return sorted(found)

    assert sounded(0.9) == []
    assert sounded(0.0) == ["entropy collapse", "template collapse"]


def test_alarm_state_survives_json_and_odd_values_are_no_readings() -> None:
    online = OnlineVerdict()
    for step, rate in enumerate([1.0, 0.1, math.nan, 0.1]):
        online.update(step, {"collapse/valid_think_rate": rate, "policy/entropy": "low", "train/success": True})
    other = OnlineVerdict()
    other.load_state_dict(json.loads(json.dumps(online.state_dict())))
    assert other.state_dict() == online.state_dict()
    assert [alarm.step for alarm in other.update(4, {"collapse/valid_think_rate": 0.1})] == [4]


def test_bad_thresholds_are_refused() -> None:
    with pytest.raises(ConfigError, match="format_share"):
        VerdictConfig(format_share=1.5)
    with pytest.raises(ConfigError, match="in_a_row"):
        VerdictConfig(in_a_row=0)


def write_metrics(folder: Path, series, tail: str = "") -> Path:
    rows: dict[int, dict] = {}
    for name, points in series.items():
        for step, value in points:
            rows.setdefault(step, {"step": step})[name] = value
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(rows[step]) + "\n" for step in sorted(rows)) + tail)
    return folder


def test_diagnose_reads_a_run_directory_and_its_file(tmp_path) -> None:
    series = healthy() | information(ramp(MEASURED, 0.9, 0.0, 20, 60))
    extra = {
        "step": 101,
        "stop": "low_validation_success",
        "train/success": "nan",
        "collapse/probe/skipped": "no probe",
        "x": None,
    }
    run = write_metrics(tmp_path / "run", series, json.dumps(extra) + "\n" + '{"step": 102, "trai')
    found = diagnose(run)
    assert isinstance(found, Diagnosis)
    assert found.verdict == "template collapse"
    assert found.onset_step == judge(series).onset_step
    assert found.steps == 102
    assert found.source == "ragen2"
    assert found.notes == ("a half-written last line was left out",)
    assert any("low_validation_success" in text for text in found.evidence)
    assert diagnose(run / "metrics.jsonl").verdict == found.verdict
    assert json.loads(json.dumps(found.to_json()))["verdict"] == "template collapse"


def test_diagnose_says_what_is_wrong_with_a_file(tmp_path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        diagnose(tmp_path / "nothing")
    with pytest.raises(StorageError, match="not a run directory"):
        diagnose(tmp_path)
    other = tmp_path / "notes.txt"
    other.write_bytes(b"\xff\xfehello\n")
    with pytest.raises(StorageError, match="not a log this version reads"):
        diagnose(other)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "metrics.jsonl").write_text("")
    with pytest.raises(StorageError, match="no metrics"):
        diagnose(empty)
    broken = write_metrics(tmp_path / "broken", {"train/success": [(1, 0.5)]}, '{"step": tw}\n{"step": 3}\n')
    with pytest.raises(StorageError, match="line 2 is not JSON"):
        diagnose(broken)


def test_a_format_that_never_was_there_has_not_collapsed() -> None:
    steps = range(1, 31)
    series = {
        "validation/x/success": [(0, 0.0), (30, 0.0)],
        "collapse/valid_think_rate": [(step, 0.0) for step in steps],
        "collapse/valid_action_rate": [(step, 0.0) for step in steps],
    }
    assert judge(series).verdict == "never learned"


def test_fewer_valid_replies_with_success_intact_are_degrading_not_collapse() -> None:
    think = ramp(EVERY, 1.0, 0.4, 50, 90)
    assert judge(healthy() | {"collapse/valid_think_rate": think}).verdict == "degrading"
    lost = ramp(CHECKS, 0.4, 0.7, 0, 50)[:6] + ramp(CHECKS, 0.7, 0.2, 50, 90)[6:]
    verdict = judge(healthy() | {"collapse/valid_think_rate": think, "validation/lake/success": lost})
    assert verdict.verdict == "format collapse"


def test_the_onset_of_broken_format_is_the_middle_signal() -> None:
    signals = {
        "collapse/valid_action_rate": ramp(EVERY, 1.0, 0.0, 30, 50),  # half at 40
        "collapse/valid_think_rate": ramp(EVERY, 1.0, 0.0, 50, 70),  # half at 60
        "validation/lake/success": ramp(CHECKS, 0.2, 0.6, 0, 40)[:5] + ramp(CHECKS, 0.6, 0.0, 60, 100)[5:],  # half after 80
    }
    verdict = judge(healthy() | signals)
    assert verdict.verdict == "format collapse"
    assert verdict.onset_step in range(59, 63)
    order = [crossing.signal for crossing in verdict.signals]
    assert order == ["valid actions", "valid thinking", "success"]
    leads = {crossing.signal: crossing.lead for crossing in verdict.signals}
    assert leads["valid actions"] > 15 and leads["success"] < -15
    assert [crossing.role for crossing in verdict.signals] == ["led", "decided", "lagged"]
    assert any(text.startswith("order of the signals: valid actions (") for text in verdict.evidence)


def test_a_healthy_run_has_no_crossings_to_order() -> None:
    assert judge(healthy()).signals == ()


def test_information_without_a_ceiling_is_compared_with_its_own_best() -> None:
    series = {name: points for name, points in healthy().items() if "/probe/" not in name}
    falling = {"collapse/first_turn/mi_token": ramp(MEASURED, 0.25, 0.0, 20, 60)}
    verdict = judge(series | falling)
    assert verdict.verdict == "template collapse"
    assert any("without its ceiling" in text for text in verdict.evidence)
    assert verdict.confidence < judge(healthy() | information(ramp(MEASURED, 0.9, 0.0, 20, 60))).confidence
    low = {"collapse/first_turn/mi_token": ramp(MEASURED, 0.01, 0.009)}
    assert judge(series | low).verdict == "healthy"  # low from the start says nothing without a ceiling
    # The prompts that still compete shrink unseen while the format breaks: such readings do not count.
    broken = {"collapse/valid_think_rate": ramp(EVERY, 1.0, 0.1, 10, 20)}
    signals = pick_signals(series | falling | broken, 4)
    assert signals.mi_share.steps_K[-1] < 20
    assert signals.mi_left_out > 10


def test_test_sets_that_are_never_measured_together() -> None:
    one, other = [(0, 0.1), (20, 0.2), (40, 0.5)], [(10, 0.3), (30, 0.3)]
    signals = pick_signals({"validation/a/success": one, "validation/b/success": other}, 4)
    assert signals.success.values_K.tolist() == [0.1, 0.2, 0.5]


def test_success_alone_cannot_call_a_run_healthy() -> None:
    alone = {"validation/lake/success": ramp(CHECKS, 0.4, 0.7), "train/truncated_rate": ramp(EVERY, 0.5, 0.9)}
    verdict = judge(alone, source="trl trainer_state")
    assert verdict.verdict == "undecided"
    assert "rewards/…format…/mean" in verdict.explanation
    assert any("90% of the replies are cut" in text for text in verdict.evidence)
    assert any("token budget" in text for text in verdict.what_to_try)


def test_a_verdict_that_hangs_on_one_threshold_says_so() -> None:
    near = {"collapse/valid_think_rate": ramp(EVERY, 1.0, 0.7, 50, 90)}
    verdict = judge(healthy() | near)
    assert verdict.verdict == "degrading"
    assert any("close call" in text and "degraded_share" in text for text in verdict.evidence)
    far = judge(healthy() | {"collapse/valid_think_rate": ramp(EVERY, 1.0, 0.5, 50, 90)})
    assert far.confidence > verdict.confidence


def test_thresholds_move_one_at_a_time() -> None:
    moved = list(VerdictConfig().moved())
    assert len(moved) == 2 * len(vars(VerdictConfig()))
    for name, config in moved:
        changed = {key for key, value in vars(config).items() if value != getattr(VerdictConfig(), key)}
        assert changed == {name}


def test_format_alarms_once_as_degrading_and_once_as_collapse() -> None:
    online = OnlineVerdict()
    rates = [0.9, 0.9, 0.9, 0.6, 0.6, 0.6, 0.6, 0.3, 0.3, 0.3, 0.3]
    alarms = [a for step, rate in enumerate(rates) for a in online.update(step, {"collapse/valid_think_rate": rate})]
    assert [(alarm.verdict, alarm.step) for alarm in alarms] == [("degrading", 5), ("format collapse", 9)]
    assert {alarm.signal for alarm in alarms} == {"collapse/valid_think_rate"}


@pytest.mark.parametrize("readings", [3, 10, 41])
def test_a_flat_run_is_not_called_healthy_for_a_lucky_reading(readings: int) -> None:
    rng = np.random.default_rng(readings)
    names: list[str] = []
    for _ in range(60):
        steps = list(range(0, 10 * readings, 10))
        success = {
            "validation/lake/success": [(step, float(rng.binomial(512, 0.3) / 512)) for step in steps],
            "validation/lake/episodes": [(step, 512.0) for step in steps],
        }
        flat = {name: [(step, 1.0) for step in range(10 * readings)] for name in ("collapse/valid_think_rate", "policy/entropy")}
        names.append(judge(success | flat).verdict)
    assert names.count("healthy") <= 6  # at most a tenth; a rule without regard to the number of readings calls 40 to 60 % so
