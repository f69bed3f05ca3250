"""Who is credited with what: advantages of every sampled token, against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import warnings
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import random_batch, random_trajectory, random_turn, tiny_config

from ragen2.algorithms import AlgorithmConfig, ResolvedAlgorithm, gae_advantages, resolve
from ragen2.training.credit import assign_critic_advantages, assign_group_advantages, returns_by_group, rows_for_update
from ragen2.training.setup import Parts
from ragen2.training.update import _shaping, _whiten
from ragen2.training.update_rows import UpdateRow
from ragen2.trajectory import RolloutBatch, Trajectory, as_ids


def algorithm(**changes: Any) -> ResolvedAlgorithm:
    return resolve(AlgorithmConfig(**{"name": "ppo", "whiten": False, **changes}))


def of_lengths(lengths: list[int], rewards: list[float], *, afresh: bool = False, penalty: float = 0.0) -> Trajectory:
    """Turns of the given numbers of sampled tokens."""
    rng = np.random.default_rng(0)
    prompt = shown = as_ids([1, 2, 3])
    turns = []
    for index, (length, reward) in enumerate(zip(lengths, rewards, strict=True)):
        turn = dataclasses.replace(random_turn(rng, index, shown, reward=reward, tokens=length), penalty=penalty)
        turns.append(turn)
        before = prompt if afresh else np.concatenate([shown, turn.sampled_ids])
        shown = np.concatenate([before, as_ids([7 + index, 8, 9])])
    return dataclasses.replace(random_trajectory(rng, prompt, (0.0,)), turns=tuple(turns))


def batch_of(*trajectories: Trajectory) -> RolloutBatch:
    return RolloutBatch(trajectories, (0,) * len(trajectories), 0)


def give(rows: list[UpdateRow], name: str, numbers: list[float]) -> None:
    """Numbers to the trained tokens of the rows, in order."""
    place = 0
    for row in rows:
        filled = np.zeros(len(row.suffix), dtype=np.float32)
        filled[row.mask_T] = numbers[place : place + row.tokens]
        setattr(row, name, filled)
        place += row.tokens
    assert place == len(numbers)


def read(rows: list[UpdateRow], name: str) -> np.ndarray:
    for row in rows:
        assert not getattr(row, name)[~row.mask_T].any(), "an observation token was credited"
    return np.concatenate([getattr(row, name)[row.mask_T] for row in rows])


@pytest.mark.parametrize("afresh", [False, True], ids=["one-row", "row-a-turn"])
@pytest.mark.parametrize(
    ("bi_level", "expected"), [(False, [0.07636, 0.488, 0.9]), (True, [0.10588, 0.529, 0.9])], ids=["tokens", "bi-level"]
)
def test_advantages_by_hand_with_a_turn_that_pays_nothing(afresh, bi_level, expected):
    """Values .5 .25 | .1, rewards 0 | 1, gamma .9, lambda .8, turn gamma .95."""
    batch = batch_of(of_lengths([2, 1], [0.0, 1.0], afresh=afresh))
    rows = rows_for_update(batch, np.array([True]))
    assert len(rows) == (2 if afresh else 1)
    give(rows, "values_T", [0.5, 0.25, 0.1])
    config = algorithm(gamma=0.9, lam=0.8, turn_gamma=0.95, bi_level=bi_level)
    assign_critic_advantages(rows, batch, config, np.zeros(1))
    assert read(rows, "advantages_T") == pytest.approx(expected, abs=1e-6)
    assert read(rows, "returns_T") == pytest.approx(np.add(expected, [0.5, 0.25, 0.1]), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0.0, 0.0, 1.0, -0.1, 10.9])), min_size=1, max_size=5),
    st.sampled_from([1.0, 0.97, 0.0]),
    st.sampled_from([1.0, 0.9, 0.0]),
    st.booleans(),
)
def test_advantages_are_those_of_the_whole_row_with_observations_masked(turns, gamma, lam, afresh):
    lengths, rewards = [length for length, _ in turns], [reward for _, reward in turns]
    batch = batch_of(of_lengths(lengths, rewards, afresh=afresh))
    rows = rows_for_update(batch, np.array([True]))
    values = np.random.default_rng(1).normal(size=sum(lengths)).astype(np.float32)
    give(rows, "values_T", values.tolist())
    assign_critic_advantages(rows, batch, algorithm(gamma=gamma, lam=lam), np.zeros(1))
    whole = rows_for_update(batch_of(of_lengths(lengths, rewards)), np.array([True]))
    give(whole, "values_T", values.tolist())
    (row,) = whole
    rewards_T = np.zeros(len(row.suffix))
    rewards_T[np.nonzero(row.mask_T)[0][np.cumsum(lengths) - 1]] = rewards
    advantages_T, returns_T = gae_advantages(rewards_T, row.values_T.astype(np.float64), row.mask_T, gamma, lam)
    assert read(rows, "advantages_T") == pytest.approx(advantages_T[row.mask_T], abs=1e-5)
    assert read(rows, "returns_T") == pytest.approx(returns_T[row.mask_T], abs=1e-5)


def test_with_a_critic_the_penalty_counts_at_its_turn():
    batch = batch_of(of_lengths([1, 1], [0.0, 1.0], penalty=-0.1))
    rows = rows_for_update(batch, np.array([True]))
    assign_critic_advantages(rows, batch, algorithm(gamma=1.0, lam=1.0), np.zeros(1))
    assert read(rows, "returns_T") == pytest.approx([0.8, 0.9])


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "rloo"])
def test_sixteen_equal_returns_teach_exactly_nothing(name):
    """However the turns add up to 10.9."""
    splits = [(10.9,), (1.0, 9.9), (-0.1, 11.0), (0.1, 0.2, 10.6), (-0.1,) * 3 + (11.2,)]
    rng = np.random.default_rng(0)
    batch = batch_of(*(random_trajectory(rng, as_ids([1, 2]), splits[number % 5]) for number in range(16)))
    rows = rows_for_update(batch, np.array([True]))
    assign_group_advantages(rows, batch, algorithm(name=name, whiten=None), np.zeros(16))
    assert len(rows) == 16
    assert all((row.advantages_T == 0).all() for row in rows)


def test_group_advantages_by_hand_on_every_sampled_token():
    """Returns 0 0 1 3 with the penalty: mean 1, deviation sqrt(2)."""
    batch = batch_of(*(of_lengths([2, 1], [reward, 0.1], penalty=-0.05) for reward in (0.0, 0.0, 1.0, 3.0)))
    rows = rows_for_update(batch, np.array([True]))
    assign_group_advantages(rows, batch, algorithm(name="grpo"), np.zeros(4))
    deviation = np.sqrt(2.0) + 1e-6
    for row, expected in zip(rows, [-1 / deviation, -1 / deviation, 0.0, 2 / deviation], strict=True):
        assert read([row], "advantages_T") == pytest.approx([expected] * 3, abs=1e-6)
    returns_PG, valid_PG = returns_by_group(batch, task=True)
    assert returns_PG == pytest.approx(np.array([[0.1, 0.1, 1.1, 3.1]]))
    assert valid_PG.all()


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_trajectories_that_broke_never_enter(name):
    sound = [of_lengths([2, 1], [reward, 0.0]) for reward in (0.0, 1.0, 4.0)]
    broken = dataclasses.replace(of_lengths([2, 1], [1e6, 1e6]), valid=False, fault="raised")
    empty = dataclasses.replace(broken, turns=())
    rows = {}
    for key, batch in (("with", batch_of(broken, *sound, empty)), ("without", batch_of(*sound))):
        rows[key] = rows_for_update(batch, np.array([True]))
        config = algorithm(name=name)
        shaping = np.zeros(len(batch.trajectories))
        (assign_critic_advantages if name == "ppo" else assign_group_advantages)(rows[key], batch, config, shaping)
    assert [row.trajectory for row in rows["with"]] == [1, 2, 3]
    for one, two in zip(rows["with"], rows["without"], strict=True):
        assert np.array_equal(one.advantages_T, two.advantages_T)
        assert np.array_equal(one.returns_T, two.returns_T)


def test_one_sound_trajectory_has_nothing_to_be_compared_with():
    broken = dataclasses.replace(of_lengths([1], [5.0]), valid=False)
    batch = batch_of(of_lengths([2], [3.0]), broken)
    rows = rows_for_update(batch, np.array([True]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assign_group_advantages(rows, batch, algorithm(name="grpo"), np.zeros(2))
    assert [row.advantages_T.tolist() for row in rows] == [[0.0, 0.0]]


def test_dropped_groups_make_no_rows():
    batch = random_batch(0, groups=3, size=4)
    rows = rows_for_update(batch, np.array([False, True, False]))
    assert {row.trajectory for row in rows} == {4, 5, 6, 7}


@pytest.mark.parametrize(("estimator", "taken"), [("k1", [0.5, -0.2, 0.1]), ("k2", [0.125, 0.02, 0.005])])
def test_divergence_in_the_reward_by_hand(estimator, taken):
    """log p - log q is .5 -.2 .1; coefficient .1; gamma and lambda 1; no values: returns are sums of what follows."""
    config = algorithm(gamma=1.0, lam=1.0, kl_coef=0.1, kl_in="reward", kl_estimator=estimator)
    batch = batch_of(of_lengths([2, 1], [0.0, 1.0]))
    rows = rows_for_update(batch, np.array([True]))
    give(rows, "old_logprobs_T", [-1.0, -1.0, -1.0])
    give(rows, "reference_logprobs_T", [-1.5, -0.8, -1.1])
    assign_critic_advantages(rows, batch, config, np.zeros(1))
    left = 1.0 - 0.1 * np.array([sum(taken), sum(taken[1:]), taken[2]])
    assert read(rows, "returns_T") == pytest.approx(left, abs=1e-6)


def test_divergence_in_the_reward_lowers_the_returns_of_a_group():
    config = algorithm(name="dr_grpo", kl_coef=0.1, kl_in="reward", kl_estimator="k1", whiten=None)
    batch = batch_of(of_lengths([2], [1.0]), of_lengths([2], [1.0]))
    rows = rows_for_update(batch, np.array([True]))
    for row, drift in zip(rows, (0.3, 0.1), strict=True):
        give([row], "old_logprobs_T", [-1.0, -1.0])
        give([row], "reference_logprobs_T", [-1.0 - drift, -1.0 - drift])
    assign_group_advantages(rows, batch, config, np.zeros(2))
    assert read([rows[0]], "advantages_T") == pytest.approx([-0.02] * 2, abs=1e-6)
    assert read([rows[1]], "advantages_T") == pytest.approx([0.02] * 2, abs=1e-6)


def test_overlong_replies_are_penalised_by_hand():
    """Limit 12, last share .25 = 3 tokens: 9 tokens cost nothing, 10 a third, 12 all of the factor .6."""
    config = tiny_config(algorithm={"name": "dapo", "overlong_share": 0.25, "overlong_factor": 0.6})
    parts = cast(Parts, SimpleNamespace(policy=SimpleNamespace(algorithm=resolve(config.algorithm))))
    batch = batch_of(*(of_lengths([2, length], [0.0, 1.0]) for length in (9, 10, 11, 12)))
    shaping = _shaping(batch, config, parts)
    assert shaping == pytest.approx([0.0, -0.2, -0.4, -0.6])
    rows = rows_for_update(batch, np.array([True]))
    assign_group_advantages(rows, batch, algorithm(name="dr_grpo", whiten=None), shaping)
    found = [float(row.advantages_T[row.mask_T][0]) for row in rows]
    assert found == pytest.approx([0.3, 0.1, -0.1, -0.3], abs=1e-6)
    assign_critic_advantages(rows[:2], batch, algorithm(gamma=1.0, lam=1.0), shaping)
    assert read([rows[1]], "returns_T") == pytest.approx([0.8] * 12)
    parts.policy.algorithm = algorithm(name="grpo")
    assert not _shaping(batch, config, parts).any()


def test_whitening_is_over_trained_tokens_only():
    rows = rows_for_update(random_batch(3), np.array([True, False, True]))
    rng = np.random.default_rng(0)
    for row in rows:
        row.advantages_T = np.where(row.mask_T, rng.normal(3.0, 2.0, len(row.suffix)), 0.0).astype(np.float32)
    _whiten(rows)
    flat = read(rows, "advantages_T").astype(np.float64)
    assert flat.mean() == pytest.approx(0.0, abs=1e-6)
    assert flat.std(ddof=1) == pytest.approx(1.0, abs=1e-5)
