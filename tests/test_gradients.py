"""The gradient analysis: buckets by hand, gradients against autograd, planted signal and noise, the bound, no side effects."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Finished, cli, one_thread, only_run, random_batch, tiny_config, tiny_folder, tiny_parts  # noqa: F401

from ragen2.diagnostics.gradient_buckets import ZERO, check_edges, draw_tokens, fixed_buckets, quantile_buckets
from ragen2.diagnostics.gradient_norms import GradientReport, check_bound, reading, sign_flip_p_value, split_half
from ragen2.errors import BoundViolated, CheckpointCorrupt, ConfigError, NonFiniteLoss, NotMeasurable
from ragen2.filtering import group_scores
from ragen2.reports.gradient_page import gradient_page
from ragen2.training import gradient_probe
from ragen2.training.credit import rows_for_update
from ragen2.training.gradient_checkpoint import Loaded, load_for_analysis
from ragen2.training.gradient_probe import analyse_batch, analyse_gradients, collect
from ragen2.training.gradient_settings import ProbeSettings
from ragen2.training.gradient_vectors import GradientMaker, inner_products, norm_of
from ragen2.training.run import start_run
from ragen2.training.setup import Parts
from ragen2.training.update_rows import UpdateRow, aggregation_weights
from ragen2.trajectory import RolloutBatch

SMALL = ProbeSettings(groups=6, group_size=4, buckets=3, blocks=4, bound_groups=2)


def members(buckets: Any) -> dict[str, tuple[int, ...]]:
    return {bucket.label: bucket.groups for bucket in buckets}


# ---- buckets


def test_quantile_buckets_by_hand():
    spread = np.array([3.0, 0.0, 1.0, 0.0, 2.0, 5.0])
    buckets = quantile_buckets(spread, 3)
    assert members(buckets) == {ZERO: (1, 3), "Q1": (2, 4), "Q2": (0, 5)}
    assert [(bucket.low, bucket.high) for bucket in buckets] == [(0.0, 0.0), (1.0, 2.0), (3.0, 5.0)]
    assert members(quantile_buckets(spread, 3, zero_apart=False)) == {"Q1": (1, 3), "Q2": (2, 4), "Q3": (0, 5)}
    assert members(quantile_buckets(np.array([1.0, 1.0, 1.0, 1.0]), 2)) == {"Q1": (0, 1), "Q2": (2, 3)}
    assert members(quantile_buckets(np.array([4.0, 0.0, 2.0, 3.0]), 2)) == {"Q1": (1, 2), "Q2": (3, 0)}
    assert members(quantile_buckets(np.zeros(3), 2)) == {ZERO: (0, 1, 2)}
    assert members(quantile_buckets(np.array([0.0, 0.0, 0.0, 7.0]), 4)) == {ZERO: (0, 1, 2), "Q1": (3,)}
    assert [len(bucket.groups) for bucket in quantile_buckets(np.arange(1.0, 8.0), 3)] == [3, 2, 2]


def test_fixed_buckets_by_hand():
    spread = np.array([0.0, 0.1, 0.5, 0.05, 2.0, 0.1])
    assert members(fixed_buckets(spread, (0, 0.1, 0.5))) == {"0 to 0.1": (0, 3), "0.1 to 0.5": (1, 5, 2)}
    assert members(fixed_buckets(spread, (0.3, 1, 1.5, math.inf))) == {"0.3 to 1": (2,), "1.5 to inf": (4,)}
    with pytest.raises(ConfigError, match="no group has a spread between the edges 3 and 4"):
        fixed_buckets(spread, (3, 4))


@pytest.mark.parametrize("edges", [(1,), (0, 0), (1, 0), (0, math.nan), (math.nan, 1), (-math.inf, 0), (0, math.inf, math.inf)])
def test_edges_that_make_no_sense_are_refused(edges):
    with pytest.raises(ConfigError, match="edges are"):
        check_edges(edges)


@pytest.mark.parametrize("spread", [[], [1.0, math.nan], [-1.0], [[1.0]], [math.inf]])
def test_a_spread_that_is_no_spread_is_refused(spread):
    with pytest.raises(ConfigError, match="spread of the groups"):
        quantile_buckets(np.array(spread), 1)


@pytest.mark.parametrize("count", [0, 4])
def test_more_buckets_than_groups_are_refused(count):
    with pytest.raises(ConfigError, match=f"{count} buckets for 3 usable groups"):
        quantile_buckets(np.ones(3), count)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.25, 1.0, 3.0]), min_size=1, max_size=40), st.integers(1, 8), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_group_is_in_one_bucket_and_buckets_ascend(spread, count, apart):
    count = min(count, len(spread))
    buckets = quantile_buckets(np.array(spread), count, zero_apart=apart)
    assert sorted(group for bucket in buckets for group in bucket.groups) == list(range(len(spread)))
    assert len(buckets) <= count or buckets[0].label == ZERO
    assert all(left.high <= right.low for left, right in pairwise(buckets))
    sizes = [len(bucket.groups) for bucket in buckets if bucket.label != ZERO]
    assert not sizes or max(sizes) - min(sizes) <= 1


# ---- equal tokens


@given(st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=5), st.integers(0, 10**6), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_drawn_tokens_are_exact_and_never_more_than_there_are(lengths, wanted, seed):
    groups, tokens, number = [], {}, 0
    for own in lengths:
        groups.append(list(range(number, number + len(own))))
        tokens |= {number + place: length for place, length in enumerate(own)}
        number += len(own)
    there = sum(tokens.values())
    if there == 0:
        with pytest.raises(ConfigError):
            draw_tokens(groups, tokens, 1, np.random.default_rng(seed))
        return
    budget = 1 + wanted % there
    drawn = draw_tokens(groups, tokens, budget, np.random.default_rng(seed))
    assert sum(drawn.values()) == budget
    assert all(0 < taken <= tokens[member] for member, taken in drawn.items())
    assert sum(taken < tokens[member] for member, taken in drawn.items()) <= 1
    assert drawn == draw_tokens(groups, tokens, budget, np.random.default_rng(seed))
    if budget == there:
        assert drawn == {member: length for member, length in tokens.items() if length}


def test_every_group_keeps_a_like_share_of_the_drawn():
    groups = [list(range(start, start + 8)) for start in range(0, 32, 8)]
    drawn = draw_tokens(groups, dict.fromkeys(range(32), 5), 5 * 14, np.random.default_rng(1))
    assert sorted(sum(member in drawn for member in group) for group in groups) == [3, 3, 4, 4]


# ---- halves


def test_two_halves_by_hand():
    vectors = np.array([[3.0, 0.0], [1.0, 0.0]])
    found = split_half(vectors @ vectors.T, np.ones(2))
    assert (found.norm, found.signal_squared, found.noise, found.cosine, found.halves) == (2.0, 3.0, 1.0, 1.0, 1)
    assert found.signal == pytest.approx(math.sqrt(3))
    crossed = np.array([[0.0, 4.0], [4.0, 0.0]])  # sums over 2 and 4: means (0, 2) and (1, 0)
    found = split_half(crossed @ crossed.T, np.array([2.0, 4.0]))
    assert found.norm == pytest.approx(math.sqrt(32) / 6)
    assert (found.signal_squared, found.cosine) == (0.0, 0.0)
    assert found.noise == pytest.approx(math.sqrt(5) / 2)


def test_the_squared_norm_is_signal_and_noise_together():
    vectors = np.random.default_rng(0).normal(size=(8, 5)) + 1
    found = split_half(vectors @ vectors.T, np.full(8, 3.0))
    assert found.halves == 35
    assert found.signal_squared is not None and found.noise is not None
    assert found.norm**2 == pytest.approx(found.signal_squared + found.noise**2)


def test_a_planted_signal_is_found_and_noise_is_not_taken_for_one():
    rng = np.random.default_rng(7)
    size, blocks, per_block, sigma = 300, 8, 5, 2.0
    signal = rng.normal(size=size)
    signal *= 4.0 / np.linalg.norm(signal)
    floor = sigma * math.sqrt(size / (blocks * per_block))  # the norm that noise alone gives a mean of 40
    planted, noise = [], []
    for _ in range(150):
        sums = per_block**0.5 * sigma * rng.normal(size=(blocks, size))
        noise.append(split_half(sums @ sums.T, np.full(blocks, float(per_block))))
        sums = sums + per_block * signal
        planted.append(split_half(sums @ sums.T, np.full(blocks, float(per_block))))
    assert np.mean([part.signal_squared for part in planted]) == pytest.approx(16.0, rel=0.03)
    assert np.mean([part.noise for part in planted]) == pytest.approx(floor, rel=0.02)
    assert np.mean([part.cosine for part in planted]) == pytest.approx(16 / (16 + 2 * floor**2), rel=0.05)
    assert all(part.above_floor for part in planted)
    assert abs(np.mean([part.signal_squared for part in noise])) < 0.5
    assert abs(np.mean([part.cosine for part in noise])) < 0.01
    assert np.mean([part.norm for part in noise]) == pytest.approx(floor, rel=0.02)
    assert np.mean([bool(part.above_floor) for part in noise]) == pytest.approx(0.05, abs=0.04)


def test_a_strong_signal_has_a_cosine_near_one():
    vectors = np.ones((8, 50)) + 0.05 * np.random.default_rng(0).normal(size=(8, 50))
    found = split_half(vectors @ vectors.T, np.ones(8))
    assert found.cosine is not None and found.cosine > 0.99
    assert found.p_value == 1 / 128


def test_what_has_no_direction_or_no_halves_is_not_measured():
    zero = split_half(np.zeros((4, 4)), np.ones(4))
    assert (zero.norm, zero.noise, zero.cosine, zero.p_value, zero.above_floor) == (0.0, 0.0, None, None, False)
    single = split_half(np.array([[9.0]]), np.array([1.5]))
    assert (single.norm, single.noise, single.signal, single.above_floor) == (2.0, None, None, None)
    for gram, sizes in ((np.eye(3), np.ones(3)), (np.eye(2), np.ones(3)), (np.eye(2), np.zeros(2)), (np.eye(14), np.ones(14))):
        with pytest.raises(ValueError, match="inner products"):
            split_half(gram, sizes)


def test_sign_patterns_by_hand():
    vectors = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])  # only the first two can cancel
    assert sign_flip_p_value(vectors @ vectors.T) == 0.5


# ---- the bound


def test_the_bound_is_met_with_equality_at_ddof_0_by_scores_that_follow_the_advantages():
    returns = np.array([0.0, 1.0, 1.0, 4.0])
    advantages = returns - returns.mean()
    check = check_bound(0, "p", returns, np.abs(advantages), float(np.mean(advantages**2)))
    assert check.bound == pytest.approx(check.norm)
    assert check.slack == pytest.approx(0.0, abs=1e-12)
    assert check.variance == pytest.approx(float(np.var(returns)))  # a smaller variance would break it
    with pytest.raises(BoundViolated, match="above its bound"):
        check_bound(0, "p", returns, np.abs(advantages), 1.001 * float(np.mean(advantages**2)))
    with pytest.raises(BoundViolated):
        check_bound(0, "p", returns, np.abs(advantages), math.nan)
    assert check_bound(1, "p", np.ones(4), np.ones(4), 0.0).slack is None


# ---- gradients against plain autograd


def maker_of(parts: Parts, **changes: Any) -> GradientMaker:
    algorithm = dataclasses.replace(parts.policy.algorithm, **changes)
    return GradientMaker(parts.model, algorithm, parts.arithmetic, 0.7, parts.policy.horizon, 200)


def filled(batch: RolloutBatch) -> list[UpdateRow]:
    rng = np.random.default_rng(5)
    rows = rows_for_update(batch, np.ones(len(batch.groups), dtype=bool))
    for row in rows:
        row.advantages_T = np.where(row.mask_T, rng.normal(size=len(row.suffix)), 0.0).astype(np.float32)
        row.reference_logprobs_T = np.where(row.mask_T, -rng.random(len(row.suffix)) * 8, 0.0).astype(np.float32)
    return rows


def by_hand(parts: Parts, rows: list[UpdateRow], part: str, weights_R: np.ndarray) -> torch.Tensor:
    """The same gradient from whole rows, one at a time, with the definitions written out."""
    parts.model.zero_grad()
    for row, weight in zip(rows, weights_R, strict=True):
        ids = torch.from_numpy(np.concatenate([row.prefix, row.suffix]).astype(np.int64))[None]
        logits = parts.model(input_ids=ids).logits[0, len(row.prefix) - 1 : -1].float() / 0.7
        logprobs_TV = torch.log_softmax(logits, -1)
        logprobs_T = logprobs_TV.gather(1, torch.from_numpy(row.suffix.astype(np.int64))[:, None])[:, 0]
        values_T = {
            "score": logprobs_T,
            "task": -torch.from_numpy(row.advantages_T) * torch.exp(logprobs_T - logprobs_T.detach()),
            "entropy": (logprobs_TV.exp() * logprobs_TV).sum(1),
            "kl": 0.5 * (logprobs_T - torch.from_numpy(row.reference_logprobs_T)) ** 2,
        }[part]
        (float(weight) * values_T[torch.from_numpy(row.mask_T)].sum()).backward()
    found = torch.cat([p.grad.flatten() for p in parts.model.parameters() if p.grad is not None]).clone()
    parts.model.zero_grad()
    return found


@pytest.mark.parametrize("part", ["task", "kl", "entropy", "score"])
@pytest.mark.parametrize("afresh", [False, True], ids=["one-row", "row-a-turn"])
def test_gradients_agree_with_plain_autograd(part, afresh):
    parts = tiny_parts(tiny_config())
    rows = filled(random_batch(1, afresh=afresh))
    maker = maker_of(parts)
    for row in rows:  # ratio 1, as in the analysis
        whole = torch.from_numpy(np.concatenate([row.prefix, row.suffix]).astype(np.int64))[None]
        with torch.no_grad():
            logits = parts.model(input_ids=whole).logits[0, len(row.prefix) - 1 : -1].float() / 0.7
        chosen = torch.log_softmax(logits, -1).gather(1, torch.from_numpy(row.suffix.astype(np.int64))[:, None])[:, 0].numpy()
        row.old_logprobs_T = np.where(row.mask_T, chosen, 0.0).astype(np.float32)
    weights_R = np.random.default_rng(2).random(len(rows))
    found = maker.zeros()
    maker.add(part, rows, weights_R, found)
    expected = by_hand(parts, rows, part, weights_R)
    assert expected.abs().max() > 1e-3
    assert (found - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_blocks_add_up_to_the_gradient_of_all_rows(mode):
    parts = tiny_parts(tiny_config())
    maker = maker_of(parts, aggregation=mode)
    rows = filled(random_batch(1, afresh=True))
    of_trajectory = {row.trajectory: row.trajectory % 4 for row in rows}
    blocks = [[row for row in rows if of_trajectory[row.trajectory] == block] for block in range(4)]
    found, mean_N = maker.measure("entropy", blocks, maker.zeros(4))
    whole_N = maker.zeros()
    maker.add("entropy", rows, aggregation_weights(rows, mode, maker.horizon), whole_N)
    assert (mean_N - whole_N).abs().max() <= 1e-6
    assert found.norm == pytest.approx(norm_of(whole_N), rel=1e-4)


def test_equal_blocks_agree_and_random_advantages_do_not():
    parts = tiny_parts(tiny_config())
    maker = maker_of(parts)
    (row, *_) = filled(random_batch(1))
    row.advantages_T = row.mask_T.astype(np.float32)
    blocks = [[dataclasses.replace(row, trajectory=number)] for number in range(8)]
    same, _ = maker.measure("task", blocks, maker.zeros(8))
    assert same.cosine == pytest.approx(1.0) and same.noise == pytest.approx(0.0, abs=1e-3 * same.norm)
    rng = np.random.default_rng(0)
    rows = rows_for_update(random_batch(2, groups=8, size=8), np.ones(8, dtype=bool))
    cosines = []
    for _ in range(6):
        for row in rows:
            row.advantages_T = np.where(row.mask_T, rng.normal(), 0.0).astype(np.float32)
        noise, _ = maker.measure("task", [rows[start::8] for start in range(8)], maker.zeros(8))
        cosines.append(noise.cosine)
    assert abs(np.mean(cosines)) < 0.15


def test_a_gradient_that_is_not_finite_is_named():
    parts = tiny_parts(tiny_config())
    with torch.no_grad():
        next(iter(parts.model.parameters())).fill_(math.nan)
    rows = filled(random_batch(1))
    with pytest.raises(NonFiniteLoss, match="entropy gradient is not finite"):
        maker_of(parts).add("entropy", rows, np.ones(len(rows)), maker_of(parts).zeros())


def test_inner_products_do_not_depend_on_the_chunk(monkeypatch):
    vectors = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    whole = inner_products(vectors)
    monkeypatch.setattr("ragen2.training.gradient_vectors.CHUNK", 7)
    np.testing.assert_allclose(inner_products(vectors), whole, rtol=1e-12)
    np.testing.assert_allclose(whole, vectors.double().numpy() @ vectors.double().numpy().T, rtol=1e-12)


# ---- a whole run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A PPO run of two iterations whose starting model can be taken away."""
    folder = tmp_path_factory.mktemp("gradients")
    shutil.copytree(tiny_folder(), folder / "start")
    model = {"name": str(folder / "start"), "critic_layers": 1}
    config = tiny_config(out=str(folder / "runs"), algorithm="ppo", iterations=2, model=model, validation={"levels": 2})
    start_run(config, lambda line: None)
    return only_run(folder / "runs")


@pytest.fixture(scope="module")
def loaded(run) -> Loaded:
    return load_for_analysis(str(run), SMALL, lambda line: None)


@pytest.fixture(scope="module")
def batch(loaded) -> RolloutBatch:
    return collect(loaded, SMALL)


def digests(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*") if p.is_file()}


def test_the_analysis_leaves_no_trace(run, loaded):
    before = digests(run)
    generators = (torch.get_rng_state(), np.random.get_state()[1].copy())  # pyright: ignore[reportArgumentType]
    modules = [loaded.parts.model, loaded.parts.critic.critic, loaded.reference]
    weights = [{name: value.clone() for name, value in module.state_dict().items()} for module in modules]
    batch = collect(loaded, SMALL)
    first = analyse_batch(loaded, batch, SMALL)
    for module, kept in zip(modules, weights, strict=True):
        assert all(torch.equal(value, kept[name]) for name, value in module.state_dict().items())
        assert all(parameter.grad is None for parameter in module.parameters())
    again = analyse_gradients(str(run), SMALL)
    assert again.to_json() == {**first.to_json(), "target": str(run)}
    assert digests(run) == before
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert (np.random.get_state()[1] == generators[1]).all()  # pyright: ignore[reportArgumentType]


def test_the_report_measures_what_it_says(loaded, batch):
    report = analyse_batch(loaded, batch, SMALL)
    assert len({trajectory.level_seed for trajectory in batch.trajectories}) == 6
    assert min(trajectory.level_seed for trajectory in batch.trajectories) >= 40_000_003
    scores = group_scores(np.array([[t.task_return for t in group] for group in batch.groups]))
    for bucket in report.buckets:
        own = [scores[group] for group in bucket.groups]
        assert (bucket.low, bucket.high) == (min(own), max(own))
        assert bucket.task.norm > 0 and bucket.entropy.norm > 0
        assert bucket.kl is not None and bucket.kl.norm > 0
        assert bucket.regulariser == pytest.approx(0.001 * bucket.entropy.norm, rel=1e-3)  # KL is off in the run
        assert abs(bucket.total - bucket.task.norm) <= bucket.regulariser * 1.001
        assert bucket.rho == pytest.approx(bucket.regulariser / (bucket.task.norm + bucket.regulariser))
        assert bucket.task.signal is not None and bucket.task.noise is not None
        assert bucket.snr == pytest.approx(bucket.task.signal / (bucket.task.noise + bucket.regulariser))
    assert len({bucket.tokens for bucket in report.buckets}) == 1
    assert min(bucket.tokens_there for bucket in report.buckets) == report.buckets[0].tokens
    assert sum(len(bucket.groups) for bucket in report.buckets) == 6
    assert len(report.bound) == 2
    assert all(0 <= check.slack <= 1 for check in report.bound if check.slack is not None)
    other = analyse_batch(loaded, collect(loaded, dataclasses.replace(SMALL, seed=1)), dataclasses.replace(SMALL, seed=1))
    assert other.buckets != report.buckets


def test_the_bound_holds_for_every_group_and_a_wrong_gradient_is_noticed(loaded, batch, monkeypatch):
    every = dataclasses.replace(SMALL, buckets=1, bound_groups=100)
    report = analyse_batch(loaded, batch, every)
    scores = group_scores(np.array([[t.task_return for t in group] for group in batch.groups]))
    assert sorted(check.group for check in report.bound) == [group for group in range(6) if scores[group] > 0]
    assert len(report.bound) >= 3
    for check in report.bound:
        assert check.variance == pytest.approx(scores[check.group] * 3 / 4)  # ddof 0 of 4 trajectories
        assert 0 < check.norm <= check.bound
    real = gradient_probe._plain_advantages
    monkeypatch.setattr(gradient_probe, "_plain_advantages", lambda *given: {k: 50 * a for k, a in real(*given).items()})
    with pytest.raises(BoundViolated):
        analyse_batch(loaded, batch, every)


def equal_returns(batch: RolloutBatch, group: int) -> RolloutBatch:
    """The batch with a group whose turns pay nothing, one of them with a penalty."""
    changed = []
    for number, (index, item) in enumerate(zip(batch.group_index, batch.trajectories, strict=True)):
        if index == group:
            penalty = -0.1 if number == batch.group_index.index(group) else 0.0
            turns = tuple(dataclasses.replace(turn, reward=0.0, penalty=penalty) for turn in item.turns)
            item = dataclasses.replace(item, turns=turns)
        changed.append(item)
    return dataclasses.replace(batch, trajectories=tuple(changed))


def test_groups_of_equal_returns_have_no_plain_gradient_but_may_have_one_of_the_runs_own(loaded, batch):
    for group in (0, 1):
        batch = equal_returns(batch, group)
    report = analyse_batch(loaded, batch, SMALL)
    zero = report.buckets[0]
    assert zero.label == ZERO and set(zero.groups) >= {0, 1}
    assert (zero.plain.norm, zero.plain.noise, zero.plain.cosine) == (0.0, 0.0, None)
    assert zero.task.norm > 0
    assert any("A = R - mean is exactly 0" in line for line in reading(report))


def test_broken_trajectories_are_left_out_and_counted(loaded, batch):
    broken = [
        dataclasses.replace(t, valid=False, fault="the board\nfell") if k < 3 else t for k, t in enumerate(batch.trajectories)
    ]
    report = analyse_batch(loaded, dataclasses.replace(batch, trajectories=tuple(broken)), SMALL)
    assert all(0 not in bucket.groups for bucket in report.buckets)  # one valid trajectory is no group
    assert any("3 trajectories broke" in note and "the board fell" in note for note in report.notes)
    assert any("1 groups with fewer than two" in note for note in report.notes)
    broken = [dataclasses.replace(t, valid=False, fault="x") for t in batch.trajectories]
    with pytest.raises(NotMeasurable, match="none of the 6 groups has two valid trajectories"):
        analyse_batch(loaded, dataclasses.replace(batch, trajectories=tuple(broken)), SMALL)


def test_without_its_starting_model_a_run_has_no_kl_gradient(run, tmp_path):
    moved = tmp_path / "start"
    start = run.parent.parent / "start"
    start.rename(moved)
    try:
        report = analyse_gradients(str(run / "checkpoints" / "step-000002"), SMALL)
    finally:
        moved.rename(start)
    assert all(bucket.kl is None for bucket in report.buckets)
    assert report.kl_missing is not None and "no model folder" in report.kl_missing
    assert any("KL gradient not measurable" in note for note in report.notes)
    assert all(bucket.task.norm > 0 for bucket in report.buckets)
    page = gradient_page(report)
    assert "KL gradient, not weighted" not in page


def test_a_ppo_checkpoint_without_its_critic_is_refused(run, monkeypatch):
    from ragen2.training import gradient_checkpoint

    real = gradient_checkpoint.load_checkpoint
    without = {"policy_optimizer": {}}
    monkeypatch.setattr(gradient_checkpoint, "load_checkpoint", lambda path: dataclasses.replace(real(path), tensors=without))
    with pytest.raises(CheckpointCorrupt, match="holds no critic that fits"):
        load_for_analysis(str(run), SMALL, lambda line: None)


def test_under_lora_only_adapters_count(tmp_path):
    pytest.importorskip("peft", reason="LoRA needs peft")
    model = {"name": str(tiny_folder()), "lora": {"r": 2, "alpha": 4}}
    start_run(tiny_config(out=str(tmp_path), iterations=1, model=model, validation={"levels": 2}), lambda line: None)
    report = analyse_gradients(str(only_run(tmp_path)), dataclasses.replace(SMALL, buckets=2, bound_groups=1))
    total = sum(parameter.numel() for parameter in tiny_parts(tiny_config()).model.parameters())
    assert 0 < report.parameters < total / 4
    assert report.algorithm == "grpo"
    assert report.buckets[-1].task.norm > 0
    assert report.buckets[-1].kl is not None and report.buckets[-1].kl.norm > 0


# ---- the command


def test_the_command_shows_and_writes(cli, run, tmp_path):  # noqa: F811
    before = digests(run)
    out = ("--json", tmp_path / "deep" / "g.json", "--html", tmp_path / "g.html")
    size = ("--groups", 6, "--group-size", 4, "--bound-groups", 1)
    finished: Finished = cli("gradients", run, *map(str, size), "--edges", "0,1e-9,0.5,inf", *out)
    assert finished.code == 0, finished.err
    words = " ".join(finished.out.split())
    assert "noise floor" in words and "The bound by reward variance holds for all 1 prompts" in words
    data = json.loads((tmp_path / "deep" / "g.json").read_text())
    assert data["schema"] == "ragen2.gradients/1"
    assert (data["step"], data["algorithm"], data["checkpoint"]) == (2, "ppo", "step-000002")
    assert {"task", "plain", "kl", "entropy", "snr", "rho", "tokens"} <= set(data["buckets"][0])
    assert data["buckets"][0]["task"]["halves"] == 35
    assert all(label.startswith(("0 to", "1e-09 to", "0.5 to")) for label in (item["label"] for item in data["buckets"]))
    page = (tmp_path / "g.html").read_text()
    assert page.count("<figure") == 4 and "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert digests(run) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--group-size", "1"], "group size is 1"),
        (["--groups", "0"], "groups is 0"),
        (["--groups", "4", "--buckets", "5"], "5 buckets for 4 groups"),
        (["--buckets", "0"], "0 buckets"),
        (["--edges", "0.5,0.1"], "they must ascend"),
        (["--edges", "0,nan"], "they must be numbers"),
        (["--edges", "0,abc"], "'abc' is not a number"),
        (["--edges", "0"], "at least two"),
        (["--edges", ""], "'' is not a number"),
        (["--edges", "0,1", "--buckets", "2"], "exclude one another"),
        (["--spread", "entropy"], "spread is 'entropy'; allowed: variance, std"),
        (["--blocks", "3"], "blocks is 3"),
        (["--seed", "-1"], "seed is -1"),
        (["--bound-groups", "-1"], "bound groups is -1"),
    ],
)
def test_bad_options_are_named(cli, run, arguments, expected):  # noqa: F811
    finished = cli("gradients", run, *arguments)
    assert finished.code == 2
    assert finished.complaint.startswith("ConfigError: ")
    assert expected in finished.complaint


@pytest.mark.parametrize("target", ["no/such/run", "", "x" * 5000, "a\0b"])
def test_a_checkpoint_that_is_not_there_is_named(cli, target):  # noqa: F811
    finished = cli("gradients", target)
    assert finished.code == 2
    assert "ConfigError" in finished.complaint


def test_a_folder_without_a_checkpoint_is_named(cli, run, tmp_path):  # noqa: F811
    (tmp_path / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    finished = cli("gradients", tmp_path)
    assert finished.code == 5
    assert "no checkpoint in" in finished.complaint


def test_the_reading_says_which_buckets_rise_above_their_floor_and_who_dominates(loaded, batch):
    report = analyse_batch(loaded, batch, dataclasses.replace(SMALL, bound_groups=0))
    real = report.buckets[0]
    strong = dataclasses.replace(real.task, norm=2.0, blocks=8, signal=1.9, noise=0.5, p_value=1 / 128)
    weak = dataclasses.replace(real.task, norm=0.5, blocks=8, signal=0.0, noise=0.52, p_value=0.6)
    few = dataclasses.replace(weak, blocks=2, p_value=0.5, signal=0.6)
    buckets = (
        dataclasses.replace(real, label="Q1", task=weak, kl=None, entropy=strong, regulariser=0.6),
        dataclasses.replace(real, label="Q2", task=few, kl=None, entropy=weak, regulariser=0.4),
        dataclasses.replace(real, label="Q3", task=strong, kl=None, entropy=weak, regulariser=0.6),
    )
    text = "\n".join(reading(dataclasses.replace(report, buckets=buckets, kl_missing="gone")))
    assert "task gradient 0.5, noise floor 0.52, p = 0.600: it does not rise above the floor." in text
    assert "task gradient 2, noise floor 0.5, p = 0.008: it rises above the floor." in text
    assert "The task gradient rises above its noise floor in Q2, Q3." in text
    assert "dominate in Q1: rho is 0.23 to 0.55" in text
    assert "Above their own noise floors: the entropy gradient in Q1." in text


def test_hostile_names_are_escaped(loaded, batch):
    report: GradientReport = analyse_batch(loaded, batch, dataclasses.replace(SMALL, buckets=1, bound_groups=0))
    page = gradient_page(dataclasses.replace(report, target="<script>alert(1)</script>", notes=("<b>",)))
    assert "<script>" not in page and "&lt;b&gt;" in page
