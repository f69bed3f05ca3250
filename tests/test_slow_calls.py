"""Slow environments work several at a time and beside the sampling; one that hangs costs its own episode."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
from fakes import APPEND, UP, CountingEnv, ScriptedEngine, answer, levels, play

from ragen2.envs.base import Observation, StepResult
from ragen2.rollout.collector import Collector, faults_by_cause
from ragen2.rollout.config import RolloutConfig
from ragen2.rollout.env_worker import Outcome
from ragen2.rollout.slow_calls import SlowCalls


class Slow(CountingEnv):
    """A counting environment that may work beside three others of its kind."""

    concurrency = 4


class Meeting(Slow):
    """Steps end only once four episodes are in a step together."""

    barrier = threading.Barrier(4)

    def step(self, action: str) -> StepResult:
        self.barrier.wait(timeout=5)
        return super().step(action)


class Crowd(Slow):
    """Counts how many work at once."""

    lock = threading.Lock()
    inside = most = 0

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        with self.lock:
            Crowd.inside += 1
            Crowd.most = max(Crowd.most, Crowd.inside)
        time.sleep(0.01)
        with self.lock:
            Crowd.inside -= 1
        return super().reset(level_seed, noise_seed)


def test_the_same_trajectories_as_one_by_one() -> None:
    plain, _, _ = play(UP, groups=2, size=3)
    slow, _, collector = play(UP, make=Slow, groups=2, size=3)
    assert [item.turns[-1].reward for item in slow.trajectories] == [item.turns[-1].reward for item in plain.trajectories]
    assert all(item.success for item in slow.trajectories)
    assert slow.group_index == plain.group_index
    assert collector._slow.pending == 0


def test_four_step_together() -> None:
    batch, _, _ = play(UP, make=Meeting, size=4)
    assert all(item.valid and item.success for item in batch.trajectories)


def test_never_more_than_the_limit() -> None:
    play(UP, make=Crowd, groups=3, size=4)
    assert 2 <= Crowd.most <= 4


@pytest.mark.parametrize(
    ("action", "cause"),
    [("raise", "raised KeyError"), ("exit", "raised SystemExit"), ("nan", "reward nan"), ("hang", "hung for 0.2 s")],
)
def test_a_broken_step_costs_its_own_trajectory(action: str, cause: str) -> None:
    def script(row: int, turn: int, text: str) -> str:
        return answer("up", action) if (row, turn) == (1, 1) else UP

    batch, engine, _ = play(script, make=Slow, size=3, groups=2, step_timeout_s=0.2)
    broken = batch.trajectories[1]
    assert (broken.valid, broken.stop_reason, broken.success) == (False, "fault", False)
    assert faults_by_cause(batch.trajectories) == {cause: 1}
    assert all(item.valid and item.success for number, item in enumerate(batch.trajectories) if number != 1)
    assert sorted(engine.closed) == list(range(6))


@pytest.mark.parametrize(("how", "cause"), [("raise", "raised ValueError"), ("hang", "hung for 0.2 s")])
def test_a_broken_reset_costs_its_own_trajectory(how: str, cause: str) -> None:
    batch, _, _ = play(UP, make=partial(Slow, misbehave=how), size=3, reset_timeout_s=0.2)
    assert [item.valid for item in batch.trajectories] == [True, False, True]
    assert faults_by_cause(batch.trajectories) == {cause: 1}


def test_others_finish_while_one_hangs() -> None:
    def script(row: int, turn: int, text: str) -> str:
        return answer("hang") if (row, turn) == (0, 0) else UP

    batch, engine, _ = play(script, make=Slow, size=3, step_timeout_s=0.5)
    assert engine.closed[-1] == 0
    assert [item.valid for item in batch.trajectories] == [False, True, True]


def test_slow_and_fast_environments_in_one_batch() -> None:
    engine = ScriptedEngine(APPEND, lambda row, turn, text: UP)
    mixed = [*levels(Slow, 1, 2), *levels(CountingEnv, 1, 2)]
    batch = Collector(engine, APPEND, RolloutConfig()).collect(mixed, range(4))
    assert [item.success for item in batch.trajectories] == [True] * 4


def test_late_results_of_an_interrupted_call_are_dropped() -> None:
    collector = Collector(ScriptedEngine(APPEND, lambda row, turn, text: UP), APPEND, RolloutConfig())
    collector._slow.submit(0, lambda beat: time.sleep(0.05), kind="counting", limit=2, timeout_s=1.0)
    batch = collector.collect(levels(Slow, 1, 2), range(2))
    assert all(item.success for item in batch.trajectories)


def test_outcomes_come_with_their_keys() -> None:
    calls = SlowCalls()
    for key in range(5):
        calls.submit(key, lambda beat, value=key: value * 10, kind="a" if key % 2 else "b", limit=2, timeout_s=1.0)
    found: dict[int, Outcome] = {}
    while calls.pending:
        found |= dict(calls.ended(wait=True))
    assert {key: outcome.value for key, outcome in found.items()} == {key: key * 10 for key in range(5)}
    assert calls.ended(wait=True) == []
    calls.close()
    calls.close()
