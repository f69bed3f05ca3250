"""Groups of episodes: their order, their pace, their environments, and what an environment that breaks costs."""

from __future__ import annotations

from functools import partial

import pytest
from fakes import (
    APPEND,
    CHATML,
    UP,
    CountingEnv,
    ScriptedEngine,
    alone,
    answer,
    byte_tokenizer,
    levels,
    play,
)

from ragen2.envs.base import Observation, StepResult
from ragen2.errors import ConfigError, EnvironmentFault
from ragen2.prompting.chat_format import ChatFormat
from ragen2.rollout.collector import Collector, faults_by_cause
from ragen2.rollout.config import RolloutConfig


def test_groups_share_their_prompt_and_keep_their_order():
    batch, engine, _ = play(UP, groups=3, size=4)
    assert batch.group_index == (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)
    assert batch.policy_version == 7
    assert batch.sampling["chat_format"] == "append"
    for number, group in enumerate(batch.groups):
        assert {item.turns[0].context_ids.tobytes() for item in group} == {engine.contexts[number * 4][0].tobytes()}
        assert {item.prompt_id for item in group} == {f"prompt-{number}"}
        assert [item.noise_seed for item in group] == list(range(10 * number, 10 * number + 4))
    assert engine.seeds == list(range(12))
    assert sorted(engine.closed) == list(range(12))


def test_rows_go_on_at_their_own_pace():
    _, engine, _ = play(lambda row, turn, text: UP if row else "slow " * 100 + UP, size=2, turn_tokens=500)
    assert engine.finish_order == [(1, 0), (1, 1), (1, 2), (0, 0), (0, 1), (0, 2)]


def test_environments_are_kept_between_calls_and_closed():
    made: list[CountingEnv] = []

    def make() -> CountingEnv:
        made.append(CountingEnv())
        return made[-1]

    _, _, collector = play(UP, make=make, groups=2, size=2)
    collector.collect(levels(make, 2, 2), range(4))
    assert len(made) == 4
    assert all(len(env.resets) == 2 for env in made)
    collector.close()
    assert all(env.closed for env in made)


def test_other_factories_get_other_environments():
    _, _, collector = play(UP)
    trajectory = alone(collector.collect(levels(partial(CountingEnv, goal=1)), [0]))
    assert len(trajectory.turns) == 1
    for goal in range(1, 12):
        assert alone(collector.collect(levels(partial(CountingEnv, goal=goal)), [0])).valid


def test_progress_is_told():
    told: list[tuple[int, int]] = []
    engine = ScriptedEngine(APPEND, lambda row, turn, text: UP)
    collector = Collector(engine, APPEND, RolloutConfig())
    collector.collect(levels(CountingEnv, 2, 2), range(4), progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, 4)
    assert told[-1] == (4, 4)
    assert told == sorted(told)


def test_a_temperature_of_its_own():
    engine = ScriptedEngine(APPEND, lambda row, turn, text: UP)
    batch = Collector(engine, APPEND, RolloutConfig()).collect(levels(CountingEnv), [0], temperature=0.0)
    assert batch.sampling["temperature"] == 0.0
    assert engine._sampling.temperature == 0.0


@pytest.mark.parametrize(
    ("asked", "seeds", "message"),
    [
        ([], [], "noise seeds"),
        (levels(CountingEnv, 1, 2) + levels(CountingEnv, 1, 3), range(5), r"\[2, 3\] noise seeds"),
        (levels(CountingEnv, 2, 2), range(3), "3 sampling seeds for 2 levels of 2"),
    ],
)
def test_levels_and_seeds_must_fit(asked, seeds, message):
    engine = ScriptedEngine(APPEND, lambda row, turn, text: UP)
    with pytest.raises(ConfigError, match=message):
        Collector(engine, APPEND, RolloutConfig()).collect(asked, seeds)


def test_the_chat_format_must_agree_about_reasoning():
    with pytest.raises(ConfigError, match="think"):
        Collector(ScriptedEngine(APPEND, lambda row, turn, text: UP), APPEND, RolloutConfig(think=False))
    chat = ChatFormat(byte_tokenizer(CHATML), think=False)
    trajectory = alone(play("<answer>up || up</answer>", chat=chat, think=False)[0])
    assert trajectory.success
    assert trajectory.turns[0].reasoning_span is None
    assert trajectory.turns[0].valid_think


@pytest.mark.parametrize(
    ("action", "cause"),
    [
        ("raise", "raised KeyError"),
        ("exit", "raised SystemExit"),
        ("nan", "reward nan"),
        ("text", "reward not a number"),
        ("silent", "info without 'legal'"),
        ("hang", "hung for 0.2 s"),
    ],
)
def test_a_broken_step_costs_its_own_trajectory(action: str, cause: str):
    def script(row: int, turn: int, text: str) -> str:
        return answer("up", action) if (row, turn) == (1, 1) else UP

    batch, engine, _ = play(script, size=3, groups=2, step_timeout_s=0.2)
    broken = batch.trajectories[1]
    assert (broken.valid, broken.stop_reason, broken.success) == (False, "fault", False)
    assert broken.fault is not None
    assert broken.fault.startswith(f"{cause} (in step, level seed 100, noise seed 1)")
    assert [turn.actions for turn in broken.turns] == [("up",), ("up", action)]
    assert broken.turns[1].penalty == 0.0
    assert not broken.turns[1].valid_action
    others = [item for number, item in enumerate(batch.trajectories) if number != 1]
    assert all(item.valid and item.success for item in others)
    assert faults_by_cause(batch.trajectories) == {cause: 1}
    assert sorted(engine.closed) == list(range(6))


def test_a_broken_environment_is_not_used_again():
    made: list[CountingEnv] = []

    def make() -> CountingEnv:
        made.append(CountingEnv())
        return made[-1]

    _, _, collector = play(lambda row, turn, text: answer("raise") if row == 1 else UP, make=make, size=3)
    collector.collect(levels(make, 1, 3), range(3))
    assert [len(env.resets) for env in made] == [2, 1, 2, 1]


@pytest.mark.parametrize(("how", "cause"), [("raise", "raised ValueError"), ("hang", "hung for 0.2 s")])
def test_a_broken_reset_costs_its_own_trajectory(how: str, cause: str):
    batch, engine, _ = play(UP, make=partial(CountingEnv, misbehave=how), size=3, reset_timeout_s=0.2)
    assert [item.valid for item in batch.trajectories] == [True, False, True]
    assert faults_by_cause(batch.trajectories) == {cause: 1}
    assert batch.trajectories[1].turns == ()
    assert engine.closed[0] == 1
    assert len(engine.contexts[1]) == 1


def test_several_hangs_in_one_batch():
    batch, _, collector = play(lambda row, turn, text: answer("hang") if row in (0, 2) else UP, size=4, step_timeout_s=0.1)
    assert [item.valid for item in batch.trajectories] == [False, True, False, True]
    assert collector._worker.abandoned == 2


def test_a_group_that_sees_different_prompts_is_named():
    batch, engine, _ = play(UP, make=partial(CountingEnv, misbehave="differ"), size=3)
    assert not any(item.valid for item in batch.trajectories)
    assert faults_by_cause(batch.trajectories) == {"first observations differ": 3}
    fault = batch.trajectories[0].fault
    assert fault is not None
    assert "level seed 100" in fault
    assert engine.contexts == {}


def test_results_of_the_wrong_kind_are_faults():
    class Wrong(CountingEnv):
        def step(self, action: str) -> StepResult:
            return {"down": ("not", "a", "result"), "up": StepResult(None, 0.0, False, False, {"legal": True})}[action]  # pyright: ignore

        def reset(self, level_seed: int, noise_seed: int) -> Observation:
            return Observation("\ud800") if noise_seed == 2 else super().reset(level_seed, noise_seed)

    batch, _, _ = play(lambda row, turn, text: answer(("up", "down", "up")[row]), make=Wrong, size=3)
    causes = {"observation without text": 1, "no StepResult": 1, "observation not Unicode": 1}
    assert faults_by_cause(batch.trajectories) == causes


def test_a_fault_with_no_end_of_words_is_cut():
    class Loud(CountingEnv):
        def step(self, action: str) -> StepResult:
            raise EnvironmentFault("x" * 10_000)

    fault = alone(play(UP, make=Loud)[0]).fault
    assert fault is not None
    assert len(fault) < 400
