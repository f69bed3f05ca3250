"""Advantages: exact zeros where nothing is to be compared, masks that cannot leak, turn ends that come from the turns."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen2.algorithms import (
    bi_level_gae_advantages,
    dr_grpo_advantages,
    gae_advantages,
    grpo_advantages,
    ppo_advantages,
    rloo_advantages,
    whiten,
)
from ragen2.errors import ConfigError, NonFiniteReturn, TokenMismatch

GROUP_ALGORITHMS = [grpo_advantages, dr_grpo_advantages, rloo_advantages]
EQUAL = [10.9, 10.8, 10.7, 9.1, 3.3, -1.3, 0.1, 0.0, 1e9]


@pytest.mark.parametrize("advantages", GROUP_ALGORITHMS)
@pytest.mark.parametrize("size", [2, 3, 7, 8, 16])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_equal_returns_give_exactly_zero(advantages, size: int, kind: str) -> None:
    torch = pytest.importorskip("torch")
    for value in EQUAL:
        returns_PG = np.full((2, size), value, dtype=kind)
        assert (advantages(returns_PG) == 0.0).all()
        assert (advantages(torch.from_numpy(returns_PG)) == 0.0).all()


def test_by_hand() -> None:
    returns_PG = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    np.testing.assert_allclose(grpo_advantages(returns_PG)[0], [1.5, -0.5, -0.5, -0.5], atol=1e-5)
    np.testing.assert_allclose(dr_grpo_advantages(returns_PG)[0], [0.75, -0.25, -0.25, -0.25])
    np.testing.assert_allclose(rloo_advantages(returns_PG)[0], [1.0, -1 / 3, -1 / 3, -1 / 3])
    np.testing.assert_allclose(rloo_advantages(returns_PG)[1], [-2.0, -2 / 3, 2 / 3, 2.0])


def test_each_prompt_is_compared_with_itself() -> None:
    np.testing.assert_allclose(dr_grpo_advantages([[1.0, 0.0], [0.0, 1.0]]), [[0.5, -0.5], [-0.5, 0.5]])
    np.testing.assert_allclose(dr_grpo_advantages([[10.0, 10.0], [0.0, 1.0]]), [[0.0, 0.0], [-0.5, 0.5]])


@pytest.mark.parametrize("advantages", GROUP_ALGORITHMS)
def test_a_group_of_one_gives_zero_and_a_warning(advantages) -> None:
    with pytest.warns(UserWarning, match="single valid trajectory"):
        assert advantages(np.array([[10.9]])).tolist() == [[0.0]]
    valid = np.array([[1, 0, 0, 0], [1, 1, 1, 1]])
    with pytest.warns(UserWarning, match="single valid trajectory"):
        mixed = advantages(np.array([[10.9, 0, 0, 0], [1.0, 0, 0, 0]]), valid_PG=valid)
    assert mixed[0].tolist() == [0.0] * 4
    assert mixed[1, 0] > 0


@pytest.mark.parametrize("advantages", GROUP_ALGORITHMS)
def test_invalid_trajectories_get_zero_and_enter_no_mean(advantages) -> None:
    returns_PG = np.array([[1.0, 0.0, math.nan, 0.0], [math.nan, math.inf, math.nan, math.nan]])
    valid_PG = np.array([[1, 1, 0, 1], [0, 0, 0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = advantages(returns_PG, valid_PG=valid_PG)
    np.testing.assert_array_equal(found[0, [0, 1, 3]], advantages(np.array([[1.0, 0.0, 0.0]]))[0])
    assert found[0, 2] == 0.0
    assert found[1].tolist() == [0.0] * 4


@pytest.mark.parametrize("advantages", GROUP_ALGORITHMS)
def test_same_library_and_dtype_out(advantages) -> None:
    torch = pytest.importorskip("torch")
    plain = [[1.0, 0.0, 0.5], [2.0, 2.5, 2.0]]
    expected = advantages(np.array(plain))
    assert expected.dtype == np.float64
    assert advantages(np.array(plain, dtype=np.float32)).dtype == np.float32
    for dtype in (torch.float32, torch.float64):
        found = advantages(torch.tensor(plain, dtype=dtype), valid_PG=torch.ones(2, 3))
        assert found.dtype == dtype
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    assert advantages(torch.tensor([[1, 0], [1, 1]])).dtype == torch.float32


def test_group_advantages_stay_differentiable() -> None:
    torch = pytest.importorskip("torch")
    returns_PG = torch.tensor([[1.0, 0.0, 0.0], [10.9, 10.9, 10.9]], dtype=torch.float64, requires_grad=True)
    grpo_advantages(returns_PG)[:, 0].sum().backward()
    assert returns_PG.grad is not None
    assert torch.isfinite(returns_PG.grad).all()
    assert returns_PG.grad[0, 0] > 0
    assert (returns_PG.grad[1] == 0).all()


@pytest.mark.parametrize("advantages", GROUP_ALGORITHMS)
def test_bad_returns_are_named(advantages) -> None:
    with pytest.raises(NonFiniteReturn, match="group 1, trajectory 0"):
        advantages([[0.0, 1.0], [math.nan, 1.0]])
    with pytest.raises(ConfigError, match=r"shape \(3,\)"):
        advantages([1.0, 2.0, 3.0])
    with pytest.raises(TokenMismatch, match="mask has shape"):
        advantages([[1.0, 2.0]], valid_PG=[[1, 1, 1]])


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), junk=st.sampled_from([math.nan, math.inf, 1e300, 3.0]))
def test_added_invalid_trajectories_change_no_advantage(seed: int, junk: float) -> None:
    rng = np.random.default_rng(seed)
    returns_PG = rng.normal(size=(4, 5))
    places = np.sort(rng.choice(8, size=5, replace=False))
    padded, valid = np.full((4, 8), junk), np.zeros((4, 8), dtype=bool)
    padded[:, places], valid[:, places] = returns_PG, True
    for advantages in GROUP_ALGORITHMS:
        found = advantages(padded, valid_PG=valid)
        np.testing.assert_allclose(found[:, places], advantages(returns_PG), rtol=1e-12, atol=1e-12)
        assert (found[~valid] == 0).all()


def test_an_outcome_reward_crosses_observation_tokens() -> None:
    rewards, mask = [0, 0, 0, 0, 0, 1], [1, 1, 0, 0, 1, 1]
    advantages, returns = gae_advantages(rewards, np.zeros(6), mask, 1.0, 1.0)
    assert returns.tolist() == [1, 1, 0, 0, 1, 1]
    assert advantages.tolist() == [1, 1, 0, 0, 1, 1]


def test_values_of_observation_tokens_are_not_bootstrapped() -> None:
    values = np.array([0.5, 0.2, 99.0, math.nan, 0.1, 0.3])
    rewards = np.array([0.0, 0.2, math.nan, 5.0, 0.0, 1.0])
    mask = np.array([1, 1, 0, 0, 1, 1])
    advantages, returns = gae_advantages(rewards, values, mask, 0.9, 0.8)
    kept = mask == 1
    expected = gae_advantages(rewards[kept], values[kept], np.ones(4), 0.9, 0.8)
    assert advantages[kept].tolist() == expected[0].tolist()
    assert returns[kept].tolist() == expected[1].tolist()
    assert advantages[~kept].tolist() == returns[~kept].tolist() == [0.0, 0.0]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), gamma=st.floats(0.0, 1.0), lam=st.floats(0.0, 1.0))
def test_masked_positions_and_padding_change_no_token_advantage(seed: int, gamma: float, lam: float) -> None:
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(2, 3, 6))
    mask = np.ones((3, 6), dtype=bool)
    places = np.sort(rng.choice(11, size=6, replace=False))
    wide = np.full((2, 3, 11), math.nan)
    wide[:, :, places] = rewards, values
    wide_mask = np.zeros((3, 11), dtype=bool)
    wide_mask[:, places] = mask
    plain = gae_advantages(rewards, values, mask, gamma, lam)
    padded = gae_advantages(wide[0], wide[1], wide_mask, gamma, lam)
    for left, right in zip(plain, padded, strict=True):
        assert (left == right[:, places]).all()
        assert (right[~wide_mask] == 0).all()
    np.testing.assert_allclose(whiten(plain[0], mask), whiten(padded[0], wide_mask)[:, places], rtol=1e-9, atol=1e-12)


def test_rows_of_a_batch_are_independent() -> None:
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 4, 7))
    mask = rng.random((4, 7)) < 0.6
    together = gae_advantages(rewards, values, mask, 0.99, 0.95)
    for row in range(4):
        alone = gae_advantages(rewards[row], values[row], mask[row], 0.99, 0.95)
        assert together[0][row].tolist() == alone[0].tolist()
        assert together[1][row].tolist() == alone[1].tolist()


def test_token_advantages_in_torch_are_constants_of_the_same_dtype() -> None:
    torch = pytest.importorskip("torch")
    values = torch.randn(2, 5, requires_grad=True)
    advantages, returns = gae_advantages(torch.ones(2, 5), values, torch.ones(2, 5, dtype=torch.bool), 1.0, 1.0)
    assert advantages.dtype == returns.dtype == torch.float32
    assert not advantages.requires_grad
    assert not returns.requires_grad
    with pytest.raises(TokenMismatch, match="must be equal"):
        gae_advantages([0.0], [0.0, 1.0], [1, 1], 1.0, 1.0)


def test_turns_that_pay_nothing_are_turns() -> None:
    turns = np.array([0, 0, 1, 1, 2])
    zeros = np.zeros(5)
    silent = bi_level_gae_advantages([0.0, 0.0, 1.0], zeros, turns, 0.95, 1.0, 1.0)[1]
    np.testing.assert_allclose(silent, [0.95**2, 0.95**2, 0.95, 0.95, 1.0])
    barely = bi_level_gae_advantages([1e-12, 0.0, 1.0], zeros, turns, 0.95, 1.0, 1.0)[1]
    np.testing.assert_allclose(silent, barely, atol=1e-11)


@pytest.mark.parametrize("rewards", [[0.0, 0.0], [1.0, 0.0]])
def test_turns_without_a_last_reward_are_no_error(rewards: list[float]) -> None:
    advantages, returns = bi_level_gae_advantages(rewards, np.zeros(3), [0, 1, 1], 0.9, 1.0, 1.0)
    assert returns.tolist() == [rewards[0], 0.0, 0.0]
    assert advantages.tolist() == returns.tolist()


def test_one_turn_of_bi_level_is_ordinary_estimation() -> None:
    values = np.random.default_rng(5).normal(size=6)
    bi_level = bi_level_gae_advantages([0.7], values, np.zeros(6), 0.9, 0.99, 0.95)
    plain = gae_advantages([0, 0, 0, 0, 0, 0.7], values, np.ones(6), 0.99, 0.95)
    np.testing.assert_allclose(bi_level[0], plain[0], rtol=1e-12)
    np.testing.assert_allclose(bi_level[1], plain[1], rtol=1e-12)


def test_bi_level_refuses_what_does_not_belong_together() -> None:
    with pytest.raises(TokenMismatch, match=r"turn 1 has the reward 0.5 but no sampled token"):
        bi_level_gae_advantages([0.0, 0.5, 1.0], np.zeros(2), [0, 2], 0.9, 1.0, 1.0)
    with pytest.raises(TokenMismatch, match="rise from 0 to 1"):
        bi_level_gae_advantages([0.0, 0.5], np.zeros(2), [1, 0], 0.9, 1.0, 1.0)
    with pytest.raises(TokenMismatch, match="rise from 0 to 0"):
        bi_level_gae_advantages([0.0], np.zeros(2), [0, 1], 0.9, 1.0, 1.0)
    assert len(bi_level_gae_advantages([], np.zeros(0), np.zeros(0), 0.9, 1.0, 1.0)[0]) == 0
    skipped = bi_level_gae_advantages([1.0, 0.0, 1.0], np.zeros(2), [0, 2], 0.5, 1.0, 1.0)[1]
    assert skipped.tolist() == [1.5, 1.0]


def test_whitening() -> None:
    values = np.array([[1.0, 2.0, math.nan], [3.0, 1e30, math.inf]])
    mask = np.array([[1, 1, 0], [1, 0, 0]])
    white = whiten(values, mask)
    np.testing.assert_allclose(white[mask == 1], [-1.0, 0.0, 1.0], atol=1e-7)
    assert (white[mask == 0] == 0).all()
    for equal in EQUAL:
        assert (whiten(np.full((2, 8), equal, dtype=np.float32), np.ones((2, 8))) == 0).all()
    assert whiten([[5.0, 1.0]], [[1, 0]]).tolist() == [[0.0, 0.0]]
    assert whiten([[5.0, 1.0]], [[0, 0]]).tolist() == [[0.0, 0.0]]


def test_ppo_whitens_when_asked() -> None:
    rng = np.random.default_rng(2)
    rewards, values = rng.normal(size=(2, 3, 4))
    mask = np.array([[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]])
    raw, returns = ppo_advantages(rewards, values, mask)
    white, same = ppo_advantages(rewards, values, mask, whitened=True)
    assert (returns == same).all()
    np.testing.assert_allclose(white, whiten(raw, mask))
    assert abs(white[mask == 1].mean()) < 1e-12
