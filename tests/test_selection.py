"""Sampling, filtering and sampling again: bounded, whole groups, never more than an iteration's worth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tiny import random_batch

from ragen2.algorithms import AlgorithmConfig, resolve
from ragen2.filtering import FilterConfig
from ragen2.training.effective_filter import effective_filter
from ragen2.training.selection import collect_groups, filter_batch, join, measured_scores, only_kept
from ragen2.trajectory import RolloutBatch


class Source:
    """Batches of four groups of which the first `lively[call]` have returns that differ."""

    def __init__(self, *lively: int) -> None:
        self.lively, self.calls = lively, 0

    def __call__(self) -> RolloutBatch:
        count = self.lively[min(self.calls, len(self.lively) - 1)]
        batch = random_batch(self.calls, groups=4)
        self.calls += 1
        trajectories = [
            trajectory if group < count else flat(trajectory)
            for group, trajectory in zip(batch.group_index, batch.trajectories, strict=True)
        ]
        named = [dataclasses.replace(item, prompt_id=f"call {self.calls} {item.prompt_id}") for item in trajectories]
        return RolloutBatch(tuple(named), batch.group_index, self.calls)


def flat(trajectory):
    return dataclasses.replace(trajectory, turns=tuple(dataclasses.replace(turn, reward=0.5) for turn in trajectory.turns))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def refilling(**changes) -> FilterConfig:
    return FilterConfig(**{"top_p": 1.0, "on_empty": "refill", "refill_share": 1.0, "max_refills": 3, **changes})


def test_without_refilling_one_sampling_is_all():
    source = Source(0)
    selection = collect_groups(source, FilterConfig(), 4, rng())
    assert source.calls == 1
    assert not selection.kept_P.any()
    assert selection.metrics()["filter/kept_groups"] == 0
    assert "equal returns" in selection.metrics()["filter/reason"]


@pytest.mark.parametrize("most", [0, 1, 3])
def test_refills_are_bounded(most):
    source = Source(0)
    selection = collect_groups(source, refilling(max_refills=most), 4, rng())
    assert source.calls == 1 + most
    assert selection.refills == most
    assert not selection.kept_P.any()


def test_refilling_stops_when_enough_is_kept():
    source = Source(2, 1, 1, 4)
    selection = collect_groups(source, refilling(), 4, rng())
    assert source.calls == 3
    assert selection.kept_P.sum() == 4
    kept = [group[0].prompt_id for group, keep in zip(selection.batch.groups, selection.kept_P, strict=True) if keep]
    assert kept == ["call 1 p0", "call 1 p1", "call 2 p0", "call 3 p0"]
    assert [group[0].prompt_id for group in selection.first.groups] == [f"call 1 p{number}" for number in range(4)]


def test_dynamic_sampling_keeps_at_most_the_iterations_groups():
    source = Source(3, 4)
    selection = collect_groups(source, refilling(), 4, rng())
    assert source.calls == 2
    assert selection.kept_P.sum() == 4
    assert len(selection.batch.groups) == len(selection.kept_P) == 7
    assert selection.metrics()["filter/kept_groups"] == 4
    assert selection.metrics()["filter/refills"] == 1
    assert selection.metrics()["filter/kept_share"] == 4 / selection.metrics()["filter/groups"]


def test_groups_left_behind_are_handed_on():
    selection = collect_groups(Source(2, 2), refilling(), 4, rng())
    (left,) = selection.dropped
    assert [group[0].prompt_id for group in left.groups] == ["call 1 p2", "call 1 p3"]
    assert collect_groups(Source(4), refilling(), 4, rng()).dropped == ()


def test_refilling_an_empty_batch_asks_for_a_single_group():
    source = Source(0, 0, 1)
    selection = collect_groups(source, refilling(refill_share=0.0), 4, rng())
    assert source.calls == 3
    assert selection.kept_P.sum() == 1


def test_dapo_samples_dynamically_and_others_do_not():
    dapo, grpo = resolve(AlgorithmConfig(name="dapo")), resolve(AlgorithmConfig(name="grpo"))
    settings = effective_filter(FilterConfig(), dapo)
    assert (settings.on_empty, settings.refill_share) == ("refill", 1.0)
    assert not settings.keeps_zero
    assert effective_filter(FilterConfig(top_p=0.7), grpo) == FilterConfig(top_p=0.7)
    own = FilterConfig(on_empty="refill", refill_share=0.5)
    assert effective_filter(own, dapo) == own
    assert effective_filter(FilterConfig(max_refills=7), dapo).max_refills == 7


def test_a_filter_of_the_users_own_stays_under_dynamic_sampling():
    own = FilterConfig(top_p=0.3)
    assert effective_filter(own, resolve(AlgorithmConfig(name="dapo"))) == own


def test_dynamic_sampling_keeps_every_group_whose_returns_differ():
    source = Source(4)
    settings = effective_filter(FilterConfig(), resolve(AlgorithmConfig(name="dapo")))
    selection = collect_groups(source, settings, 4, rng())
    assert source.calls == 1
    assert selection.kept_P.all()


def test_the_random_control_keeps_as_many_and_depends_on_its_generator_only():
    batch = random_batch(4, groups=8)
    plain = filter_batch(batch, FilterConfig(), rng())
    draws = [filter_batch(batch, FilterConfig(control="random"), np.random.default_rng(seed)).kept_P for seed in range(12)]
    assert 0 < plain.kept_P.sum() < 8
    assert {int(kept.sum()) for kept in draws} == {int(plain.kept_P.sum())}
    assert len({kept.tobytes() for kept in draws}) > 3
    again = filter_batch(batch, FilterConfig(control="random"), np.random.default_rng(3)).kept_P
    assert np.array_equal(again, draws[3])


def test_scores_of_length_and_entropy_by_hand():
    batch = random_batch(5, groups=2, size=3)
    broken = dataclasses.replace(batch.trajectories[0], valid=False)
    batch = RolloutBatch((broken, *batch.trajectories[1:]), batch.group_index, 0)
    lengths = [sum(len(turn.sampled_ids) for turn in item.turns) for item in batch.trajectories]
    surprise = [-np.mean(np.concatenate([turn.logprobs for turn in item.turns])) for item in batch.trajectories]
    found = measured_scores(batch, "length")
    assert found is not None
    assert found == pytest.approx([np.mean(lengths[1:3]), np.mean(lengths[3:])])
    found = measured_scores(batch, "entropy")
    assert found is not None
    assert found == pytest.approx([np.mean(surprise[1:3]), np.mean(surprise[3:])], rel=1e-6)
    found = measured_scores(batch, "entropy_variance")
    assert found is not None
    assert found == pytest.approx([np.var(surprise[1:3], ddof=1), np.var(surprise[3:], ddof=1)], rel=1e-5)
    assert measured_scores(batch, "variance") is None


def test_filtering_by_length_prefers_long_replies():
    batch = random_batch(6, groups=4)
    decision = filter_batch(batch, FilterConfig(mode="top_k_count", top_k_count=2, score="length"), rng())
    lengths = measured_scores(batch, "length")
    assert lengths is not None
    assert set(np.nonzero(decision.kept_P)[0]) == set(np.argsort(-lengths)[:2])


def test_selection_runs_within_each_environment_and_uses_task_returns():
    batch = random_batch(7, groups=4)
    named = [
        dataclasses.replace(
            item,
            environment="small" if group < 2 else "large",
            turns=tuple(
                dataclasses.replace(turn, reward=turn.reward * (1 if group < 2 else 1000), penalty=-5.0 * (turn.index % 2))
                for turn in item.turns
            ),
        )
        for group, item in zip(batch.group_index, batch.trajectories, strict=True)
    ]
    batch = RolloutBatch(tuple(named), batch.group_index, 0)
    within = filter_batch(batch, FilterConfig(), rng()).kept_P
    assert within[:2].any() and within[2:].any()
    assert not filter_batch(batch, FilterConfig(within_environment=False), rng()).kept_P[:2].any()
    plain = filter_batch(batch, FilterConfig(), rng()).scores_P
    task = [np.var([item.task_return for item in group], ddof=1) for group in batch.groups]
    assert plain == pytest.approx(task)
    flat_batch = RolloutBatch(tuple(flat(item) for item in named), batch.group_index, 0)
    assert not filter_batch(flat_batch, FilterConfig(), rng()).kept_P.any()


def test_groups_of_broken_trajectories_are_never_kept():
    batch = random_batch(8, groups=3)
    dead = [
        dataclasses.replace(item, valid=group != 1) for group, item in zip(batch.group_index, batch.trajectories, strict=True)
    ]
    batch = RolloutBatch(tuple(dead), batch.group_index, 0)
    for config in (FilterConfig(top_p=1.0), FilterConfig(mode="none"), FilterConfig(mode="top_k", top_k=1.0)):
        assert filter_batch(batch, config, rng()).kept_P.tolist() == [True, False, True]


def test_joining_and_keeping_renumber_groups():
    left, right = random_batch(0, groups=3, size=2), random_batch(1, groups=2, size=2)
    both = join(only_kept(left, np.array([True, False, True])), right)
    assert both.group_index == (0, 0, 1, 1, 2, 2, 3, 3)
    assert both.trajectories == left.trajectories[:2] + left.trajectories[4:] + right.trajectories
    nothing = join(only_kept(left, np.zeros(3, dtype=bool)), right)
    assert nothing.group_index == right.group_index
