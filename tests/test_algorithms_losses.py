"""Losses: what is masked cannot be felt, splits change nothing, and each formula by hand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen2.algorithms import (
    aggregate_loss,
    kl_penalty,
    loss_denominator,
    mean_entropy,
    policy_loss,
    rewards_less_kl,
    token_entropy,
    value_loss,
)
from ragen2.algorithms.config import AGGREGATIONS
from ragen2.errors import ConfigError, TokenMismatch

torch = pytest.importorskip("torch")

JUNK = [math.nan, math.inf, -math.inf, 1e30]


def test_aggregations_by_hand() -> None:
    loss = np.array([[2.0, 9.0, 9.0, 9.0], [1.0, 3.0, 5.0, 9.0]])
    mask = np.array([[1, 0, 0, 0], [1, 1, 1, 0]])
    assert aggregate_loss(loss, mask, "token-mean") == 11 / 4
    assert aggregate_loss(loss, mask, "seq-mean-token-mean") == 2.5
    assert aggregate_loss(loss, mask, "seq-mean-token-sum", 4) == 11 / 8


def test_empty_rows_count_where_they_should() -> None:
    loss, mask = np.ones((4, 3)), np.array([[1, 1, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]])
    assert aggregate_loss(loss, mask, "token-mean") == 1.0
    assert aggregate_loss(loss, mask, "seq-mean-token-mean") == 1.0
    assert aggregate_loss(loss, mask, "seq-mean-token-sum", 3) == 0.5


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("junk", JUNK)
def test_all_masked_is_zero_with_zero_gradient(mode: str, junk: float) -> None:
    assert aggregate_loss(np.full((2, 3), junk), np.zeros((2, 3)), mode, 3) == 0.0
    logprobs = torch.full((2, 3), junk, requires_grad=True)
    surrogate = policy_loss(logprobs, torch.full((2, 3), junk), torch.full((2, 3), junk), torch.zeros(2, 3), dual_clip=3.0)
    loss = aggregate_loss(surrogate.token_loss_BT, torch.zeros(2, 3), mode, 3)
    loss.backward()
    assert loss.item() == 0.0
    assert (logprobs.grad == 0).all()


def test_aggregation_refuses_what_it_cannot_do() -> None:
    ones = np.ones((2, 2))
    with pytest.raises(ConfigError, match="Did you mean 'token-mean'"):
        aggregate_loss(ones, ones, "token_mean", denominator=3)
    with pytest.raises(ConfigError, match="pass horizon"):
        aggregate_loss(ones, ones, "seq-mean-token-sum")
    with pytest.raises(ConfigError, match="horizon is 0"):
        aggregate_loss(ones, ones, "seq-mean-token-sum", 0)
    with pytest.raises(ConfigError, match="denominator is 0"):
        aggregate_loss(ones, ones, "token-mean", denominator=0)
    with pytest.raises(TokenMismatch):
        aggregate_loss(ones, np.ones((2, 3)), "token-mean")
    with pytest.raises(ConfigError, match=r"\(rows, tokens\)"):
        aggregate_loss(np.ones(3), np.ones(3), "token-mean")


def test_a_denominator_may_hold_the_horizon() -> None:
    loss, mask = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    whole = aggregate_loss(loss, mask, "seq-mean-token-sum", 3)
    assert whole == aggregate_loss(loss, mask, "seq-mean-token-sum", 3, denominator=2)
    assert whole == aggregate_loss(loss, mask, "seq-mean-token-sum", denominator=6)


def batch(seed: int, rows: int = 6, tokens: int = 7) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, tokens)) < 0.6
    mask[rng.integers(rows)] = False
    mask[0, 0] = True
    old = -rng.exponential(size=(rows, tokens))
    return {
        "new": torch.tensor(old + rng.normal(size=old.shape), requires_grad=True),
        "old": torch.tensor(old),
        "advantages": torch.tensor(rng.normal(size=old.shape)),
        "mask": torch.tensor(mask),
    }


def total_loss(data: dict[str, Any], mode: str, rows: slice = slice(None), denominator: float | None = None) -> Any:
    new, old, advantages, mask = (data[name][rows] for name in ("new", "old", "advantages", "mask"))
    token_loss = policy_loss(new, old, advantages, mask, dual_clip=3.0).token_loss_BT + 0.1 * kl_penalty(new, old, mask)
    return aggregate_loss(token_loss, mask, mode, 50, denominator=denominator)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), mode=st.sampled_from(AGGREGATIONS), cuts=st.sets(st.integers(1, 5)))
def test_micro_batches_add_up_to_the_whole(seed: int, mode: str, cuts: set[int]) -> None:
    whole, parts = batch(seed), batch(seed)
    expected = total_loss(whole, mode)
    expected.backward()
    edges = [0, *sorted(cuts), 6]
    denominator = loss_denominator(parts["mask"], mode)
    found = 0.0
    for start, stop in pairwise(edges):
        part = total_loss(parts, mode, slice(start, stop), denominator)
        part.backward()
        found += part.item()
    assert found == pytest.approx(expected.item(), abs=1e-12)
    np.testing.assert_allclose(parts["new"].grad, whole["new"].grad, rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), mode=st.sampled_from(AGGREGATIONS), junk=st.sampled_from(JUNK))
def test_inserted_masked_positions_change_no_loss_and_no_gradient(seed: int, mode: str, junk: float) -> None:
    plain = batch(seed)
    places = np.sort(np.random.default_rng(seed).choice(12, size=7, replace=False))
    wide: dict[str, Any] = {}
    for name in ("new", "old", "advantages"):
        wide[name] = torch.full((6, 12), junk, dtype=torch.float64)
        wide[name][:, places] = plain[name].detach()
        wide[name][:, places] = torch.where(plain["mask"], plain[name].detach(), junk)
    wide["new"].requires_grad_(True)
    wide["mask"] = torch.zeros(6, 12, dtype=torch.bool)
    wide["mask"][:, places] = plain["mask"]
    expected, found = total_loss(plain, mode), total_loss(wide, mode)
    expected.backward()
    found.backward()
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)
    np.testing.assert_allclose(wide["new"].grad[:, places], plain["new"].grad, rtol=0, atol=1e-14)
    assert (wide["new"].grad[~wide["mask"]] == 0).all()


def test_policy_loss_by_hand() -> None:
    ratios = np.array([[1.5, 0.5, 1.5, 0.5, 5.0, 1.1]])
    advantages = np.array([[1.0, 1.0, -1.0, -1.0, -1.0, 2.0]])
    found = policy_loss(
        np.log(ratios), np.zeros((1, 6)), advantages, np.ones((1, 6)), clip_low=0.2, clip_high=0.28, dual_clip=3.0
    )
    np.testing.assert_allclose(found.token_loss_BT, [[-1.28, -0.5, 1.5, 0.8, 3.0, -2.2]])
    assert found.clipped_high_BT.tolist() == [[True, False, False, False, False, False]]
    assert found.clipped_low_BT.tolist() == [[False, False, False, True, False, False]]
    assert found.dual_clipped_BT.tolist() == [[False, False, False, False, True, False]]
    assert found.clipped_BT.sum() == 3
    metrics = found.metrics()
    assert metrics["clip_fraction"] == pytest.approx(3 / 6)
    assert metrics["ratio_max"] == pytest.approx(5.0)
    assert metrics["tokens"] == 6
    off = policy_loss(np.log(ratios), np.zeros((1, 6)), advantages, np.ones((1, 6)), dual_clip=0.0)
    np.testing.assert_allclose(off.token_loss_BT[0, 4], 5.0)
    assert not off.dual_clipped_BT.any()


def test_clipped_tokens_pull_no_gradient() -> None:
    logprobs = torch.log(torch.tensor([[1.5, 1.1, 0.5, 5.0]])).requires_grad_(True)
    advantages = torch.tensor([[1.0, 1.0, -1.0, -1.0]])
    found = policy_loss(logprobs, torch.zeros(1, 4), advantages, torch.ones(1, 4), dual_clip=3.0)
    found.token_loss_BT.sum().backward()
    assert found.clipped_BT.tolist() == [[True, False, True, True]]
    np.testing.assert_allclose(logprobs.grad, [[0.0, -1.1, 0.0, 0.0]], rtol=1e-6)


def test_on_policy_gradient_is_the_advantage() -> None:
    logprobs = torch.randn(2, 3, dtype=torch.float64).requires_grad_(True)
    advantages = torch.tensor([[2.0], [-0.5]], dtype=torch.float64)
    policy_loss(logprobs, logprobs.detach(), advantages, torch.ones(2, 3)).token_loss_BT.sum().backward()
    np.testing.assert_allclose(logprobs.grad, -advantages.expand(2, 3))


def test_a_huge_ratio_is_finite() -> None:
    logprobs = torch.tensor([[0.0, 0.0]], requires_grad=True)
    found = policy_loss(logprobs, torch.tensor([[-1e4, -1e4]]), torch.tensor([[0.0, -1.0]]), torch.ones(1, 2))
    assert torch.isfinite(found.token_loss_BT).all()
    assert found.token_loss_BT[0, 0] == 0


def test_masked_log_probabilities_of_a_wrong_scale_reach_no_metric() -> None:
    found = policy_loss(np.array([[0.0, -1.0]]), np.array([[1.0, -1.0]]), np.ones((1, 2)), np.array([[0, 1]]))
    assert found.ratio_BT.tolist() == [[1.0, 1.0]]
    assert found.kl_BT.sum() == 0
    assert found.metrics()["tokens"] == 1


def test_numpy_and_torch_agree_and_half_precision_is_widened() -> None:
    data = batch(3)
    arrays = [data[name].detach().numpy() for name in ("new", "old", "advantages", "mask")]
    from_numpy = policy_loss(*arrays, dual_clip=3.0)
    from_torch = policy_loss(data["new"], data["old"], data["advantages"], data["mask"], dual_clip=3.0)
    assert isinstance(from_numpy.token_loss_BT, np.ndarray)
    np.testing.assert_allclose(from_torch.token_loss_BT.detach(), from_numpy.token_loss_BT, rtol=1e-12)
    half = policy_loss(data["new"].bfloat16(), data["old"], data["advantages"], data["mask"])
    assert half.token_loss_BT.dtype == torch.float32


def test_value_loss() -> None:
    values = torch.tensor([[1.0, 3.0, math.nan]], requires_grad=True)
    old, returns, mask = torch.tensor([[1.0, 1.0, math.inf]]), torch.tensor([[2.0, 1.4, math.nan]]), torch.tensor([[1, 1, 0]])
    loss = value_loss(values, old, returns, mask, clip=0.5)
    np.testing.assert_allclose(loss.detach(), [[0.5, 0.5 * 1.6**2, 0.0]], rtol=1e-6)
    loss.sum().backward()
    np.testing.assert_allclose(values.grad, [[-1.0, 1.6, 0.0]], rtol=1e-6)
    held = value_loss(np.array([[3.0]]), np.array([[1.0]]), np.array([[3.0]]), np.ones((1, 1)), clip=0.5)
    assert held.tolist() == [[0.5 * 1.5**2]]
    for off in (None, 0.0):
        assert value_loss(np.array([[3.0]]), np.array([[1.0]]), np.array([[3.0]]), np.ones((1, 1)), clip=off).tolist() == [[0.0]]


def test_divergence_estimates() -> None:
    one, zero = np.ones((1, 1)), np.zeros((1, 1))
    assert kl_penalty(one, zero, estimator="k1").item() == 1.0
    assert kl_penalty(one, zero, estimator="k2").item() == 0.5
    assert kl_penalty(one, zero, estimator="k3").item() == pytest.approx(math.exp(-1) - 1 + 1)
    with pytest.raises(ConfigError, match="k1, k2, k3"):
        kl_penalty(one, zero, estimator="low_var_kl")
    extreme = kl_penalty(np.array([[-1e4, 1e4]]), np.zeros((1, 2)), estimator="k3")
    assert np.isfinite(extreme).all()
    assert (extreme > 0).all()


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@pytest.mark.parametrize("drift", [-2.0, -0.1, 0.1, 2.0])
def test_the_divergence_grows_with_drift(estimator: str, drift: float) -> None:
    logprobs = torch.tensor([[drift]], requires_grad=True)
    kl_penalty(logprobs, torch.zeros(1, 1), estimator=estimator).sum().backward()
    assert logprobs.grad is not None
    assert math.copysign(1.0, logprobs.grad.item()) == math.copysign(1.0, drift)


def test_k2_has_the_gradient_of_the_reverse_divergence_on_policy() -> None:
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([0.0, 0.5, -0.5], dtype=torch.float64), -1)
    logprobs = torch.log_softmax(logits, -1)
    (exact,) = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), logits, retain_graph=True)
    weights = logprobs.exp().detach()
    found = {}
    for estimator in ("k1", "k2", "k3"):
        expected_loss = (weights * kl_penalty(logprobs[None], reference[None], estimator=estimator)[0]).sum()
        (found[estimator],) = torch.autograd.grad(expected_loss, logits, retain_graph=True)
    np.testing.assert_allclose(found["k2"], exact, atol=1e-12)
    np.testing.assert_allclose(found["k1"], np.zeros(3), atol=1e-12)
    forward = torch.autograd.grad(-(reference.exp() * logprobs).sum(), logits)[0]
    np.testing.assert_allclose(found["k3"], forward, atol=1e-12)


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_masked_divergence_is_zero(junk: float, estimator: str) -> None:
    logprobs = torch.tensor([[junk, -1.0]], requires_grad=True)
    penalty = kl_penalty(logprobs, torch.tensor([[junk, -2.0]]), torch.tensor([[0, 1]]), estimator=estimator)
    penalty.sum().backward()
    assert penalty[0, 0] == 0
    assert logprobs.grad is not None
    assert logprobs.grad[0, 0] == 0


def test_divergence_in_the_reward() -> None:
    found = rewards_less_kl([[0.0, 1.0, 5.0]], [[-1.0, -2.0, math.nan]], [[-2.0, -2.0, 0.0]], [[1, 1, 0]], 0.1)
    np.testing.assert_allclose(found, [[-0.1, 1.0, 0.0]])


def test_entropy_is_over_real_tokens_only() -> None:
    logits = np.zeros((1, 10, 4))
    logits[0, 1] = [100.0, 0.0, -np.inf, 0.0]
    logits[0, 2:] = np.nan
    mask = np.array([[1, 1] + [0] * 8])
    entropy = token_entropy(logits, mask)
    np.testing.assert_allclose(entropy[0, :2], [math.log(4), 0.0], atol=1e-12)
    assert (entropy[0, 2:] == 0).all()
    assert mean_entropy(entropy, mask) == pytest.approx(math.log(4) / 2)
    assert mean_entropy(entropy, np.zeros((1, 10))) == 0.0
    np.testing.assert_allclose(token_entropy(torch.tensor(logits), torch.tensor(mask)), entropy, atol=1e-12)


def test_entropy_lies_between_zero_and_log_v() -> None:
    logits = torch.randn(3, 5, 11, dtype=torch.float64) * 5
    entropy = token_entropy(logits)
    exact = torch.distributions.Categorical(logits=logits).entropy()
    np.testing.assert_allclose(entropy, exact, atol=1e-12)
    assert (entropy >= 0).all()
    assert (entropy <= math.log(11) + 1e-12).all()
