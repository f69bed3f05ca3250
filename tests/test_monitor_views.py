"""Views, the monitor, iteration metrics, prompt history: on trajectories built by hand and a fake engine."""

import json
import math

import numpy as np
import pytest

from ragen2.diagnostics import (
    Monitor,
    MonitorConfig,
    PromptHistory,
    first_turn_view,
    iteration_metrics,
    probe_view,
    trajectory_view,
)
from ragen2.diagnostics.zscores import RunningZScores
from ragen2.errors import ConfigError
from ragen2.trajectory import RolloutBatch, Trajectory, Turn, as_ids

CLOSE, ANSWER = 90, 91


def turn(index, context, reasoning, *, status="ok", reward=0.0, penalty=0.0, valid_action=True, truncated=False) -> Turn:
    sampled = as_ids([*(reasoning or []), CLOSE, ANSWER])
    return Turn(
        index=index,
        context_ids=as_ids(context),
        sampled_ids=sampled,
        logprobs=np.zeros(len(sampled), dtype=np.float32),
        observation="",
        reply="",
        reasoning_span=None if reasoning is None else (0, len(reasoning)),
        actions=("Up",),
        reward=reward,
        penalty=penalty,
        parse_status=status,
        valid_action=valid_action,
        truncated=truncated,
    )


def trajectory(prompt, turns, *, success=False, valid=True, fault=None, environment="lake", stop="terminated") -> Trajectory:
    return Trajectory(f"p{prompt}", prompt, 0, environment, tuple(turns), success, valid, stop, fault)


def episode(prompt, tokens, *, turns=2, **rest) -> Trajectory:
    """Reasons `tokens` each turn; context t is the prompt with everything before."""
    made, context = [], [100 + prompt]
    for index in range(turns):
        made.append(turn(index, context, tokens))
        context = [*context, *tokens, CLOSE, ANSWER, 200 + prompt]
    return trajectory(prompt, made, **rest)


def batch_of(groups) -> RolloutBatch:
    rows = [(number, item) for number, group in enumerate(groups) for item in group]
    return RolloutBatch(tuple(item for _, item in rows), tuple(number for number, _ in rows), 0)


class ReadingEngine:
    """Finds a reasoning likely where its token 10 + p fits the prompt 100 + p of the context; `blind` never looks."""

    def __init__(self, blind: bool = False) -> None:
        self.blind, self.contexts = blind, []

    def score(self, contexts, continuations):
        self.contexts += [ids.tolist() for ids in contexts]
        result = []
        for context, rows in zip(contexts, continuations, strict=True):
            prompt = context[0] - 100
            result.append([np.full(len(r), -1.0 if self.blind or (len(r) and r[0] == 10 + prompt) else -30.0) for r in rows])
        return result


def rng(seed=0) -> np.random.Generator:
    return np.random.default_rng(seed)


def reading_batch(prompts=8, each=3, **rest) -> RolloutBatch:
    return batch_of([[episode(p, [10 + p, 5], **rest) for _ in range(each)] for p in range(prompts)])


def test_first_turn_view_has_every_prompt_once_and_draws_without_replacement() -> None:
    groups = [[episode(p, [10 + p, 40 + k]) for k in range(20)] for p in range(4)]
    view = first_turn_view(batch_of(groups), rng(), per_prompt=16)
    (part,) = view.slices
    assert [c.tolist() for c in part.contexts] == [[100 + p] for p in range(4)]
    assert np.bincount(part.source_S).tolist() == [16] * 4
    for column in range(4):
        drawn = [tuple(ids) for ids, source in zip(part.reasonings, part.source_S, strict=True) if source == column]
        assert len(set(drawn)) == 16
        assert all(ids[0] == 10 + column for ids in drawn)


def test_groups_that_show_the_same_prompt_are_one_context() -> None:
    twins = [[episode(1, [11])], [episode(1, [11, 3])], [episode(2, [12])]]
    (part,) = first_turn_view(batch_of(twins), rng()).slices
    assert len(part.contexts) == 2
    assert part.source_S.tolist() == [0, 0, 1]


def test_unparseable_turns_are_dropped_by_reason_empty_ones_kept_and_their_prompt_stays() -> None:
    groups = [
        [trajectory(0, [turn(0, [100], None, status="truncated")]), trajectory(0, [turn(0, [100], None, status="no_answer")])],
        [trajectory(1, [turn(0, [101], [])]), episode(1, [11], valid=False, fault="EnvironmentFault: boom")],
        [episode(2, [12], turns=1)],
    ]
    view = first_turn_view(batch_of(groups), rng())
    assert view.turns == 4
    assert view.dropped == {"truncated": 1, "no_answer": 1}
    assert view.empty == 1
    assert len(view.slices[0].contexts) == 3
    assert view.slices[0].source_S.tolist() == [1, 2]


def test_environments_do_not_compete() -> None:
    groups = [[episode(p, [10 + p], environment="lake" if p < 4 else "box")] for p in range(8)]
    assert [(s.environment, len(s.contexts)) for s in first_turn_view(batch_of(groups), rng()).slices] == [
        ("lake", 4),
        ("box", 4),
    ]
    assert all(len(s.contexts) == 4 for s in trajectory_view(batch_of(groups), rng()).slices)


def test_trajectory_view_takes_one_trajectory_a_prompt_and_skips_thin_turns() -> None:
    groups = [[episode(p, [10 + p], turns=3 if p < 3 else 2) for _ in range(4)] for p in range(6)]
    view = trajectory_view(batch_of(groups), rng())
    assert [(part.turn, len(part.contexts), len(part.reasonings)) for part in view.slices] == [(0, 6, 6), (1, 6, 6)]
    assert view.skipped == ("lake turn 2: 3 distinct contexts, needs 4",)
    assert all(part.source_S.tolist() == list(range(6)) for part in view.slices)
    # At turn 1 the context is the trajectory's own: it extends its prompt.
    assert view.slices[1].contexts[0].tolist() == [100, 10, CLOSE, ANSWER, 200]


def test_trajectory_view_draws_among_trajectories_with_a_reasoning_there() -> None:
    groups = [
        [trajectory(p, [turn(0, [100 + p], None, status="no_think_end")]), episode(p, [10 + p, p], turns=1)] for p in range(4)
    ]
    for seed in range(5):
        (part,) = trajectory_view(batch_of(groups), rng(seed)).slices
        assert [ids.tolist() for ids in part.reasonings] == [[10 + p, p] for p in range(4)]


def test_a_policy_that_reads_is_at_the_ceiling_in_every_view() -> None:
    engine, monitor = ReadingEngine(), Monitor()
    probe = reading_batch(16, 1, turns=1)
    metrics = monitor.measure(reading_batch(), engine, rng(), [probe])
    assert metrics["collapse/first_turn/mi_sequence"] == pytest.approx(math.log(8), abs=1e-6)
    assert metrics["collapse/trajectory/mi_sequence"] == pytest.approx(math.log(8), abs=1e-6)
    assert metrics["collapse/probe/mi_upper_bound"] == pytest.approx(math.log(16))
    for view in ("first_turn", "trajectory", "probe"):
        assert metrics[f"collapse/{view}/mi_ratio"] == pytest.approx(1.0, abs=1e-6)
        assert metrics[f"collapse/{view}/mi_low"] == pytest.approx(metrics[f"collapse/{view}/mi_sequence"])  # no gap differs
        assert metrics[f"collapse/{view}/conditional_entropy_token"] == pytest.approx(1.0)
    assert metrics["collapse/trajectory/num_samples"] == 16  # eight prompts at each of two turns


def test_a_blind_policy_has_no_information() -> None:
    metrics = Monitor().measure(reading_batch(), ReadingEngine(blind=True), rng())
    assert metrics["collapse/first_turn/mi_sequence"] == pytest.approx(0.0, abs=1e-12)
    assert metrics["collapse/first_turn/retrieval_accuracy"] == pytest.approx(1 / 8)


def test_trajectory_figure_is_weighted_by_reasonings() -> None:
    class HalfBlind(ReadingEngine):
        def score(self, contexts, continuations):
            self.blind = len(contexts[0]) > 1  # reads at the first turn only
            return super().score(contexts, continuations)

    groups = [[episode(p, [10 + p], turns=2 if p < 4 else 1)] for p in range(8)]
    metrics = Monitor(MonitorConfig(views=("trajectory",))).measure(batch_of(groups), HalfBlind(), rng())
    assert metrics["collapse/trajectory/mi_sequence"] == pytest.approx(math.log(8) * 8 / 12, abs=1e-6)
    assert metrics["collapse/trajectory/mi_upper_bound"] == pytest.approx((math.log(8) * 8 + math.log(4) * 4) / 12)


def test_what_is_skipped_says_why_and_has_no_number() -> None:
    metrics = Monitor().measure(batch_of([[episode(1, [11])] * 4]), ReadingEngine(), rng())
    assert metrics["collapse/first_turn/skipped"] == "lake turn 0: 1 distinct contexts and 4 reasonings"
    assert "1 distinct contexts, needs 4" in str(metrics["collapse/trajectory/skipped"])
    assert metrics["collapse/probe/skipped"] == "no probe rollouts were given"
    assert not any(name.endswith("mi_sequence") for name in metrics)
    silent = Monitor(MonitorConfig(views=("first_turn",))).measure(
        batch_of([[episode(p, [])] for p in range(4)]), ReadingEngine(), rng()
    )
    assert silent["collapse/first_turn/mi_sequence"] == 0.0
    assert silent["collapse/first_turn/token_skipped"] == "every reasoning is empty"
    assert "collapse/first_turn/mi_token" not in silent


def test_a_broken_scorer_is_reported_as_skipped() -> None:
    class Broken(ReadingEngine):
        def score(self, contexts, continuations):
            return [[np.full(len(row), np.nan) for row in rows] for rows in continuations]

    metrics = Monitor().measure(reading_batch(), Broken(), rng())
    assert "NaN" in str(metrics["collapse/first_turn/skipped"])


def test_measure_depends_on_the_generator_state_only_and_views_do_not_disturb_each_other() -> None:
    groups = [[episode(p, [10 + p, 40 + k]) for k in range(20)] for p in range(6)]
    both = Monitor(MonitorConfig(views=("first_turn", "trajectory"))).measure(batch_of(groups), ReadingEngine(), rng(5))
    again = np.random.default_rng(99)
    again.bit_generator.state = rng(5).bit_generator.state
    one = Monitor(MonitorConfig(views=("trajectory",))).measure(batch_of(groups), ReadingEngine(), again)
    assert {key: value for key, value in both.items() if "trajectory" in key} == one


def test_due_and_state_survive_json() -> None:
    monitor = Monitor(MonitorConfig(every=3))
    assert [i for i in range(1, 10) if monitor.due(i)] == [1, 3, 6, 9]
    assert not Monitor(MonitorConfig(every=0)).due(1)
    healthy = {"collapse/valid_think_rate": 1.0}
    monitor.observe(1, healthy)
    monitor.measure(reading_batch(), ReadingEngine(), rng())
    for step in (2, 3):
        assert monitor.observe(step, {"collapse/valid_think_rate": 0.3}) == []
    other = Monitor(MonitorConfig(every=3))
    other.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    assert other.state_dict() == monitor.state_dict()
    (alarm,) = other.observe(4, {"collapse/valid_think_rate": 0.3})
    assert alarm.verdict == "format collapse"
    assert alarm.step == 4


@pytest.mark.parametrize(
    "bad",
    [{"views": ("first",)}, {"on_alarm": "panic"}, {"every": -1}, {"probe_prompts": 1}, {"ema_alpha": 1.0}, {"per_prompt": 0}],
)
def test_bad_settings_are_refused(bad) -> None:
    with pytest.raises(ConfigError, match="monitor"):
        MonitorConfig(**bad)


def test_running_zscore_starts_at_the_first_batch_and_has_a_floor() -> None:
    scores = RunningZScores(alpha=0.9, floor=0.05, min_samples=8)
    figures = {"num_samples": 16.0, "mi_sequence": 2.0, "marginal_std_sequence": 4.0, "mi_token": 0.5, "marginal_std_token": 0.0}
    first = scores.update("probe", figures)
    assert first["mi_zscore_ema_sequence"] == pytest.approx(2.0 / 4.001)
    assert first["mi_zscore_ema_token"] == pytest.approx(0.5 / 0.051)
    second = scores.update("probe", figures | {"marginal_std_sequence": 14.0})
    assert second["mi_zscore_ema_sequence"] == pytest.approx(2.0 / 5.001)
    assert scores.update("first_turn", figures) == first  # each view has its own deviation
    assert scores.update("probe", figures | {"num_samples": 7.0}) == {}


def test_iteration_metrics_by_hand() -> None:
    won = trajectory(0, [turn(0, [100], [1, 2], reward=1.0)], success=True)
    lost = trajectory(
        0,
        [
            turn(0, [100], [1], penalty=-0.1, valid_action=False),
            turn(1, [100, 7], None, status="truncated", truncated=True, valid_action=False),
        ],
        stop="turns",
    )
    broken = trajectory(1, [turn(0, [101], [1], reward=50.0)], success=True, valid=False, fault="EnvironmentFault: step raised")
    alone = trajectory(1, [turn(0, [101], [], reward=0.5)])
    metrics = iteration_metrics(batch_of([[won, lost], [broken, alone]]))
    assert metrics["train/trajectories"] == 4
    assert metrics["train/valid_trajectories"] == 3
    assert metrics["failures/environmentfault"] == 1
    assert metrics["train/success"] == pytest.approx(1 / 3)
    assert metrics["train/task_return"] == pytest.approx(0.5)
    assert metrics["train/return"] == pytest.approx(1.4 / 3)
    assert metrics["train/turns"] == pytest.approx(4 / 3)
    assert metrics["train/response_length"] == pytest.approx((4 + 3 + 2 + 2) / 3)
    assert metrics["train/reply_length"] == pytest.approx(11 / 4)
    assert metrics["train/truncated_rate"] == 0.25
    assert metrics["parse/truncated"] == 0.25
    assert metrics["parse/ok"] == 0.75
    assert metrics["collapse/valid_think_rate"] == 0.75
    assert metrics["collapse/valid_action_rate"] == 0.5
    assert metrics["collapse/empty_reasoning_rate"] == pytest.approx(1 / 3)
    assert metrics["collapse/reward_variance"] == pytest.approx(0.5)  # the group of one valid trajectory has no variance
    assert metrics["collapse/reward_spread"] == pytest.approx(math.sqrt(0.5))
    assert metrics["stop/turns"] == pytest.approx(1 / 3)


def test_equal_returns_have_exactly_no_variance() -> None:
    group = [trajectory(0, [turn(0, [100], [1], reward=10.9)]) for _ in range(16)]
    assert iteration_metrics(batch_of([group]))["collapse/reward_variance"] == 0.0


def test_a_batch_with_nothing_valid_has_counts_only() -> None:
    dead = trajectory(0, [turn(0, [100], [1])], valid=False, fault="A very/odd fault " + "x" * 500)
    metrics = iteration_metrics(batch_of([[dead, dead]]))
    assert "train/success" not in metrics
    assert "collapse/reward_variance" not in metrics
    (name,) = [key for key in metrics if key.startswith("failures/")]
    assert metrics[name] == 2
    assert len(name) < 60
    assert "/" not in name.removeprefix("failures/")


def test_history_counts_visits_and_survives_json() -> None:
    history = PromptHistory()
    solved = [episode(0, [10], success=True)] * 2
    failed = [episode(1, [11])] * 2
    mixed = [episode(2, [12]), episode(2, [12], success=True)]
    gone = [episode(3, [13], valid=False, fault="hung")] * 2
    for _ in range(2):
        history.record(batch_of([solved, failed, mixed, gone]), [False, False, True, False])
    assert history["p2"].kept == history["p2"].visits == 2
    metrics = history.metrics()
    assert metrics["history/prompts"] == 3
    assert metrics["history/visits"] == 6
    assert metrics["history/starved"] == 2
    assert metrics["history/starved_failed"] == 1
    assert metrics["history/all_failed"] == metrics["history/all_solved"] == 1
    copy = PromptHistory()
    copy.load_state_dict(json.loads(json.dumps(history.state_dict())))
    assert copy.metrics() == metrics
    with pytest.raises(ConfigError, match="4 groups"):
        history.record(batch_of([solved, failed, mixed, gone]), [True])


def test_history_forgets_the_prompt_seen_longest_ago() -> None:
    history = PromptHistory(limit=2)
    for prompt in (0, 1, 0, 2):
        history.record(batch_of([[episode(prompt, [10])]]), [True])
    assert len(history) == 2
    assert history.forgotten == 1
    assert history["p0"].visits == 2


def test_probe_uses_every_reasoning() -> None:
    (part,) = probe_view(batch_of([[episode(p, [10 + p]) for _ in range(20)] for p in range(3)]), rng()).slices
    assert len(part.reasonings) == 60


def test_probes_of_two_environments_are_measured_apart_and_averaged() -> None:
    probes = [reading_batch(16, 1, turns=1), reading_batch(4, 1, turns=1, environment="box")]
    metrics = Monitor(MonitorConfig(views=("probe",))).measure(reading_batch(), ReadingEngine(), rng(), probes)
    assert metrics["collapse/probe/mi_upper_bound"] == pytest.approx((16 * math.log(16) + 4 * math.log(4)) / 20)
    assert metrics["collapse/probe/mi_ratio"] == pytest.approx(1.0, abs=1e-6)
