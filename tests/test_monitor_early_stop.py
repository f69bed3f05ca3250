"""Early stops: each rule at its exact count, solved before empty, resumed in the middle."""

import json

import pytest

from ragen2.diagnostics import EarlyStop, EarlyStopConfig
from ragen2.errors import ConfigError


def after_baseline(config: EarlyStopConfig | None = None) -> EarlyStop:
    stop = EarlyStop(config)
    for _ in range(10):
        assert stop.after_iteration(1.0, 0.3, False) is None
    return stop


def test_spread_must_be_gone_ten_iterations_in_a_row() -> None:
    stop = after_baseline()
    for _ in range(9):
        assert stop.after_iteration(0.09, 0.1, False) is None
    assert stop.after_iteration(0.2, 0.1, False) is None  # recovers: the count starts again
    decisions = [stop.after_iteration(0.09, 0.1, False) for _ in range(10)]
    assert decisions[:9] == [None] * 9
    assert decisions[9] is not None
    assert decisions[9].reason == "reward_variance_collapse"


def test_an_unmeasured_spread_counts_for_nothing() -> None:
    stop = after_baseline()
    for _ in range(9):
        stop.after_iteration(0.0, 0.1, False)
    assert stop.after_iteration(None, None, False) is None
    assert stop.after_iteration(0.0, 0.1, False) is not None


def test_no_spread_from_the_start_stops_too() -> None:
    stop = EarlyStop()
    decisions = [stop.after_iteration(0.0, 0.0, False) for _ in range(20)]
    assert decisions[:19] == [None] * 19
    assert decisions[19] is not None


def test_validation_must_fail_five_times_in_a_row() -> None:
    stop = EarlyStop()
    for success in (0.0, 0.0, 0.0, 0.0, 0.01, 0.0, 0.0, 0.0, 0.0):
        assert stop.after_validation(success) is None
    decision = stop.after_validation(0.009)
    assert decision is not None
    assert decision.reason == "low_validation_success"
    assert "5 times" in decision.explanation


def test_five_empty_batches_stop() -> None:
    stop = after_baseline()
    decisions = [stop.after_iteration(0.5, 0.0, True) for _ in range(5)]
    assert decisions[:4] == [None] * 4
    assert decisions[4] is not None
    assert decisions[4].reason == "empty_batches"


def test_solved_wins_over_empty_and_spread() -> None:
    stop = after_baseline()
    decisions = [stop.after_iteration(0.0, 0.99, True) for _ in range(5)]
    assert decisions[:4] == [None] * 4
    assert decisions[4] is not None
    assert decisions[4].reason == "solved"


def test_high_success_with_spread_left_is_not_solved() -> None:
    stop = after_baseline()
    assert [stop.after_iteration(0.3, 0.97, False) for _ in range(20)] == [None] * 20


def test_a_task_solved_from_the_first_iteration() -> None:
    stop = EarlyStop()
    decisions = [stop.after_iteration(0.0, 1.0, True) for _ in range(5)]
    assert decisions[4] is not None
    assert decisions[4].reason == "solved"


def test_patience_zero_switches_a_rule_off() -> None:
    stop = after_baseline(EarlyStopConfig(spread_patience=0, success_patience=0, empty_patience=0, solved_iterations=0))
    assert [stop.after_iteration(0.0, 1.0, True) for _ in range(40)] == [None] * 40
    assert [stop.after_validation(0.0) for _ in range(10)] == [None] * 10


def test_resumed_in_the_middle_it_decides_the_same() -> None:
    whole, first = after_baseline(), after_baseline()
    for stop in (whole, first):
        for _ in range(6):
            stop.after_iteration(0.05, 0.0, False)
    second = EarlyStop()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    ends = [[stop.after_iteration(0.05, 0.0, False) for _ in range(4)] for stop in (whole, second)]
    assert ends[0] == ends[1]
    assert ends[0][3] is not None


@pytest.mark.parametrize(
    "bad", [{"spread_share": 0.0}, {"solved_success": 1.5}, {"empty_patience": -1}, {"baseline_iterations": 0}]
)
def test_bad_settings_are_refused(bad) -> None:
    with pytest.raises(ConfigError, match="early_stop"):
        EarlyStopConfig(**bad)


def test_update_reads_the_metrics_of_a_step() -> None:
    stop = EarlyStop()
    empty = {"collapse/reward_spread": 1.0, "train/success": 0.2, "filter/empty": True}
    assert [stop.update(empty) for _ in range(4)] == [None] * 4
    decision = stop.update({"collapse/reward_spread": 1.0, "train/success": 0.2, "filter/kept_groups": 0.0})
    assert decision is not None
    assert decision.reason == "empty_batches"
    stop = EarlyStop()
    failing = {
        "filter/kept_groups": 3.0,
        "validation/lake/success": 0.0,
        "validation/box/success": 0.018,
        "train/success": float("nan"),
    }
    found = [stop.update(failing if step % 2 else {"filter/kept_groups": 3.0}) for step in range(10)]
    assert found[:9] == [None] * 9
    assert found[9] is not None
    assert found[9].reason == "low_validation_success"
    one_works = failing | {"validation/box/success": 0.3}
    assert EarlyStop().update(one_works) is None
