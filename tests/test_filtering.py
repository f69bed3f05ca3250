"""The group filter: the paper's rule, its edges, the modes, the controls, and what it says about itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen2.errors import ConfigError, NonFiniteReturn, Ragen2Error, UnknownName
from ragen2.filtering import (
    FILTER_PRESETS,
    FilterConfig,
    filter_preset,
    group_scores,
    select_groups,
    spread_ratio,
    wants_refill,
)
from ragen2.filtering.selection import choose

MODES = ["top_p", "softmax_top_p", "top_k", "top_k_count", "min_p"]


def kept(returns_PG: object, config: FilterConfig | None = None, **arguments: object) -> list[int]:
    decision = select_groups(returns_PG, config or FilterConfig(), **arguments)  # type: ignore[arg-type]
    return np.nonzero(decision.kept_P)[0].tolist()


def test_variance_is_a_variance() -> None:
    returns = [[0, 1, 0, 0], [0, 1, 0, 1], [0, 10, 0, 0]]
    np.testing.assert_allclose(group_scores(returns), [0.25, 1 / 3, 25.0], rtol=1e-12)
    np.testing.assert_allclose(group_scores(returns, "std"), np.sqrt([0.25, 1 / 3, 25.0]), rtol=1e-12)
    assert kept(returns) == [2]
    assert kept(returns, FilterConfig(score="std")) == [1, 2]


def test_mean_and_sum() -> None:
    np.testing.assert_allclose(group_scores([[1, 2], [10.9, 10.9]], "mean"), [1.5, 10.9])
    np.testing.assert_allclose(group_scores([[1, 2], [10.9, 10.9]], "sum"), [3.0, 21.8])


@pytest.mark.parametrize("value", [10.9, 10.8, 9.1, 0.1, -1.3, 3.3, 1e12])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_equal_returns_score_exactly_zero(value: float, kind: type) -> None:
    scores = group_scores(np.full((2, 16), value, dtype=kind))
    assert scores.tolist() == [0.0, 0.0]
    assert scores.dtype == np.float64


def test_returns_summed_in_another_order_are_equal() -> None:
    assert group_scores([[0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]]).tolist() == [0.0]
    assert group_scores([[0.0, 2e-9]])[0] > 0


def test_prefix_stops_as_soon_as_the_mass_is_reached() -> None:
    config = FilterConfig()
    assert choose([4.0, 1.0, 0.0], config) == [0, 1]
    assert choose([9.0, 1.0, 0.0], config) == [0]
    assert choose([0.1] * 10, config) == list(range(9))


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e-3, 1.0, 1e6])
def test_the_filter_does_not_depend_on_the_scale_of_rewards(scale: float) -> None:
    returns = np.random.default_rng(1).normal(size=(8, 16))
    scores = group_scores(returns)
    assert choose((scores * scale).tolist(), FilterConfig()) == choose(scores.tolist(), FilterConfig())


def test_small_spreads_are_kept_and_no_spread_is_not() -> None:
    assert choose([0.004, 0.002, 0.002, 0.0], FilterConfig()) == [0, 1, 2]
    assert choose([0.001] * 8, FilterConfig()) == list(range(8))
    for include in (None, True, False):
        assert choose([0.0] * 4, FilterConfig(include_zero=include)) == []


def test_ties_keep_the_lower_index() -> None:
    assert choose([1.0, 1.0 + 1e-11, 1.0, 5.0], FilterConfig(mode="top_k_count", top_k_count=2)) == [0, 3]
    assert choose([1.0, 1.0 - 1e-11, 1.0, 5.0], FilterConfig(mode="top_k_count", top_k_count=1, direction="smallest")) == [0]
    assert choose([1.0, 1.1, 1.0, 5.0], FilterConfig(mode="top_k_count", top_k_count=2)) == [1, 3]


@pytest.mark.parametrize("mode", ["softmax_top_p", "top_k", "top_k_count", "min_p"])
def test_other_modes_keep_zero_groups_as_candidates(mode: str) -> None:
    assert choose([0.0, 0.0], FilterConfig(mode=mode, top_k=1.0))  # type: ignore[arg-type]
    assert choose([0.0, 0.0], FilterConfig(mode=mode, include_zero=False)) == []  # type: ignore[arg-type]


def test_each_mode_by_hand() -> None:
    scores = [0.0, 1.0, 4.0, 2.0]
    assert choose(scores, FilterConfig(mode="top_k", top_k=0.5)) == [2, 3]
    assert choose(scores, FilterConfig(mode="top_k", top_k=0.01)) == [2]
    assert choose(scores, FilterConfig(mode="top_k_count", top_k_count=9, include_zero=False)) == [1, 2, 3]
    assert choose(scores, FilterConfig(mode="min_p", min_p=0.5)) == [2, 3]
    assert choose(scores, FilterConfig(mode="min_p", min_p=0.25)) == [1, 2, 3]
    assert choose(scores, FilterConfig(mode="min_p", min_p=0.5, direction="smallest", include_zero=False)) == [1, 3]
    assert choose(scores, FilterConfig(mode="top_p", top_p=1.0)) == [1, 2, 3]
    assert choose(scores, FilterConfig(mode="top_p", top_p=0.3, direction="smallest")) == [0, 1, 3]
    assert choose(scores, FilterConfig(mode="top_p", top_p=0.3, direction="smallest", include_zero=False)) == [1, 3]
    # softmax of (4, 2, 1, 0): .83, .11, .04, .02
    assert choose(scores, FilterConfig(mode="softmax_top_p")) == [2, 3]
    assert choose(scores, FilterConfig(mode="softmax_top_p", direction="smallest")) == [0, 1, 3]
    assert choose(scores, FilterConfig(mode="none")) == [0, 1, 2, 3]
    assert choose([float(i) for i in range(100)], FilterConfig(mode="top_k", top_k=0.29)) == list(range(71, 100))


def test_softmax_survives_large_scores() -> None:
    assert choose([1e5, 0.0, 1e5], FilterConfig(mode="softmax_top_p")) == [0, 2]


def test_negative_scores_hold_no_mass() -> None:
    assert choose([-5.0, 3.0, 1.0], FilterConfig(score="mean")) == [1, 2]
    assert choose([-5.0, -3.0], FilterConfig(score="mean")) == []


def test_selection_runs_within_each_environment() -> None:
    returns = [[0, 10], [0, 8], [0, 1], [0, 0.9], [1, 1]]
    env_P = ["sokoban", "sokoban", "bandit", "bandit", "bandit"]
    assert kept(returns) == [0, 1]
    decision = select_groups(returns, FilterConfig(), env_P=env_P)
    assert np.nonzero(decision.kept_P)[0].tolist() == [0, 1, 2, 3]
    assert "sokoban: kept 2 of 2" in decision.reason
    assert "bandit: kept 2 of 3" in decision.reason
    assert kept(returns, FilterConfig(within_environment=False), env_P=env_P) == [0, 1]
    with pytest.raises(ConfigError, match="env_P has 2 entries"):
        select_groups(returns, FilterConfig(), env_P=["a", "b"])


def test_invalid_trajectories_enter_no_statistic() -> None:
    returns = np.array([[0.0, 1.0, np.nan, np.inf], [np.nan, np.nan, np.nan, 3.0], [0.0, 1.0, 0.0, 1.0]])
    valid = np.isfinite(returns)
    np.testing.assert_allclose(group_scores(returns, valid_PG=valid), [0.5, 0.0, 1 / 3])
    assert kept(returns, valid_PG=valid) == [0, 2]
    assert kept(returns, FilterConfig(mode="none"), valid_PG=valid) == [0, 1, 2]
    valid[1, 3] = False
    assert kept(returns, FilterConfig(mode="none"), valid_PG=valid) == [0, 2]
    assert kept(returns, FilterConfig(mode="top_k", top_k=1.0), valid_PG=valid) == [0, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_a_broken_return_is_named(bad: float) -> None:
    returns = [[0.0, 1.0], [0.0, bad]]
    with pytest.raises(NonFiniteReturn, match="group 1, trajectory 1") as caught:
        select_groups(returns, FilterConfig())
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, Ragen2Error)


@pytest.mark.parametrize("returns", [[1.0, 2.0], [], [[]], [[1.0], [1.0, 2.0]], [["x", "y"]]])
def test_wrong_shapes_are_refused(returns: object) -> None:
    with pytest.raises(ConfigError, match="task_returns_PG"):
        select_groups(returns, FilterConfig())


def test_groups_of_one_give_an_empty_batch_with_the_reason() -> None:
    decision = select_groups([[1.0], [2.0]], FilterConfig())
    assert decision.empty
    assert decision.reason == "all 2 groups have fewer than two valid trajectories"
    assert kept([[1.0], [2.0]], FilterConfig(mode="none")) == [0, 1]


def test_an_empty_batch_says_why() -> None:
    returns = [[10.9] * 4] * 5 + [[-1.0] * 4] * 3
    decision = select_groups(returns, FilterConfig())
    assert decision.empty
    assert decision.reason == "all 8 groups have equal returns (5 at 10.9, 3 at -1)"
    nobody = select_groups(returns, FilterConfig(), valid_PG=np.zeros((8, 4)))
    assert nobody.reason == "no group has a valid trajectory"
    valid = np.ones((8, 4))
    valid[0, 1:] = 0
    mixed = select_groups(returns, FilterConfig(), valid_PG=valid)
    assert mixed.reason == "7 groups have equal returns (4 at 10.9, 3 at -1) and 1 group has fewer than two valid trajectories"
    passed = select_groups([[0, 1], [0, 1]], FilterConfig(), scores_P=[0.0, 0.0])
    assert "none of 2 groups has a score above 0" in passed.reason


def test_scores_can_be_passed() -> None:
    returns = [[0, 1], [0, 1], [0, 1]]
    assert kept(returns, FilterConfig(score="length", mode="top_k_count", top_k_count=1), scores_P=[5, 9, 7]) == [1]
    with pytest.raises(ConfigError, match="pass scores_P"):
        select_groups(returns, FilterConfig(score="length"))
    with pytest.raises(ConfigError, match="one number for each of the 3 groups"):
        select_groups(returns, FilterConfig(), scores_P=[1.0])
    with pytest.raises(NonFiniteReturn, match="group 2"):
        select_groups(returns, FilterConfig(), scores_P=[1.0, 2.0, math.nan])


def test_random_control_keeps_the_same_count_of_other_groups() -> None:
    returns = np.random.default_rng(3).choice([0.0, 1.0], p=[0.8, 0.2], size=(32, 8))
    env_P = np.array(["a"] * 20 + ["b"] * 12)
    paper = select_groups(returns, FilterConfig(), env_P=env_P)
    draws = [
        select_groups(returns, FilterConfig(control="random"), env_P=env_P, rng=np.random.default_rng(seed)) for seed in (0, 0, 1)
    ]
    for draw in draws:
        for name in ("a", "b"):
            assert draw.kept_P[env_P == name].sum() == paper.kept_P[env_P == name].sum()
    assert (draws[0].kept_P == draws[1].kept_P).all()
    assert (draws[0].kept_P != draws[2].kept_P).any()
    assert (draws[0].kept_P != paper.kept_P).any()
    with pytest.raises(ConfigError, match="pass rng"):
        select_groups(returns, FilterConfig(control="random"))


def test_the_gate_leaves_alike_groups_alone() -> None:
    alike = [[0, 1.0], [0, 1.1], [0, 0.9], [0, 1.05]]
    assert spread_ratio(np.sqrt(group_scores(alike))) < 0.33
    decision = select_groups(alike, FilterConfig(gate=0.5, top_p=0.5))
    assert decision.gated
    assert decision.kept_groups == 4
    assert "alike" in decision.reason
    assert not select_groups(alike, FilterConfig(top_p=0.5)).gated
    assert kept([[0, 1], [1, 0], [2, 3]], FilterConfig(gate=0.5, top_p=0.5)) == [0, 1, 2]
    apart = [[0, 6.0], [0, 0.1], [0, 0], [0, 0]]
    assert spread_ratio(np.sqrt(group_scores(apart))) > 0.5
    assert kept(apart, FilterConfig(gate=0.5)) == [0]
    assert select_groups([[1, 1], [2, 2]], FilterConfig(gate=0.5)).empty


def test_loss_scale_and_metrics() -> None:
    returns = [[0, 1], [0, 0], [1, 1], [2, 2]]
    scales = {name: select_groups(returns, FilterConfig(loss_scaling=name)).loss_scale for name in ("none", "kept", "sqrt")}  # type: ignore[arg-type]
    assert scales == {"none": 1.0, "kept": 0.25, "sqrt": 0.5}
    metrics = select_groups(returns, FilterConfig()).metrics()
    assert metrics["filter/kept_groups"] == 1
    assert metrics["filter/kept_share"] == 0.25
    assert metrics["filter/groups"] == 4
    assert metrics["filter/score_unevenness"] == pytest.approx(2.0)
    assert metrics["filter/zero_groups"] == 3
    assert metrics["filter/score_max"] == 0.5


def test_refills_are_bounded() -> None:
    assert not wants_refill(0, 8, 0, FilterConfig())
    once = FilterConfig(on_empty="refill", max_refills=2)
    assert wants_refill(0, 8, 0, once)
    assert not wants_refill(1, 8, 0, once)
    assert not wants_refill(0, 8, 2, once)
    full = filter_preset("dynamic-sampling")
    assert wants_refill(7, 8, 0, full)
    assert not wants_refill(8, 8, 0, full)


def test_presets() -> None:
    assert filter_preset("paper") == FilterConfig()
    assert filter_preset("paper-runs").score == "std"
    stds = [0.0, 0.35, 0.5, 0.45, 0.5, 0.3, 0.9, 0.4]
    assert len(choose(stds, filter_preset("paper-runs"))) == 7
    assert choose([0.0] * 6 + [2.88, 5.94], filter_preset("paper-runs")) == [7]
    assert choose([0.0, 1e-9, 1e9], filter_preset("dynamic-sampling")) == [1, 2]
    with pytest.raises(UnknownName, match="paper-runs"):
        filter_preset("paper-run")
    assert FILTER_PRESETS["off"].mode == "none"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mode": "topp"}, "Did you mean 'top_p'"),
        ({"top_p": 0.0}, "filter.top_p is 0.0; it must be a number above 0 and at most 1"),
        ({"top_p": 1.5}, "at most 1"),
        ({"top_p": math.nan}, "filter.top_p is nan"),
        ({"top_p": "0.9"}, "filter.top_p is '0.9'"),
        ({"top_p": True}, "filter.top_p is True"),
        ({"top_k_count": 0}, "a whole number of at least 1"),
        ({"top_k_count": 2.5}, "a whole number"),
        ({"score": "varience"}, "Did you mean 'variance'"),
        ({"include_zero": "yes"}, "true or false"),
        ({"mode": "none", "control": "random"}, "choose the mode to imitate"),
    ],
)
def test_bad_settings_are_explained(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FilterConfig(**change)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_torch_returns() -> None:
    torch = pytest.importorskip("torch")
    returns = torch.tensor([[0.0, 1.0], [1.0, 1.0]], requires_grad=True)
    decision = select_groups(returns, FilterConfig(), valid_PG=torch.ones(2, 2, dtype=torch.bool))
    assert decision.kept_P.tolist() == [True, False]


scores_lists = st.lists(st.floats(0.0, 1e6, allow_subnormal=False), min_size=1, max_size=20)


@settings(deadline=None, max_examples=100)
@given(scores=scores_lists, share=st.floats(0.01, 1.0))
def test_top_p_keeps_the_shortest_prefix_that_holds_the_mass(scores: list[float], share: float) -> None:
    chosen = choose(scores, FilterConfig(top_p=share))
    total = math.fsum(scores)
    if total == 0.0:
        assert chosen == []
        return
    mass = math.fsum(scores[index] for index in chosen)
    assert mass >= share * total * (1 - 1e-9)
    if share < 1.0:
        least = min(scores[index] for index in chosen)
        assert len(chosen) == 1 or mass - least < share * total * (1 + 1e-9)
    rest = [score for index, score in enumerate(scores) if index not in chosen]
    assert not rest or max(rest) <= min(scores[index] for index in chosen) + 1e-9 * max(scores)


@settings(deadline=None, max_examples=50)
@given(scores=scores_lists, mode=st.sampled_from(MODES), direction=st.sampled_from(["largest", "smallest"]), data=st.data())
def test_every_mode_gives_sorted_indices_and_honours_include_zero(
    scores: list[float], mode: str, direction: str, data: st.DataObject
) -> None:
    include = data.draw(st.sampled_from([None, True, False]))
    config = FilterConfig(mode=mode, direction=direction, include_zero=include)  # type: ignore[arg-type]
    chosen = choose(scores, config)
    assert chosen == sorted(set(chosen))
    assert all(0 <= index < len(scores) for index in chosen)
    if include is False:
        assert all(scores[index] > 0 for index in chosen)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10_000), junk=st.sampled_from([math.nan, math.inf, 1e300, 7.0]))
def test_masked_trajectories_change_no_decision(seed: int, junk: float) -> None:
    rng = np.random.default_rng(seed)
    returns = rng.choice([-1.0, -0.1, 0.0, 1.0, 10.9], size=(6, 5))
    padded = np.concatenate([returns, np.full((6, 2), junk)], axis=1)
    valid = np.concatenate([np.ones((6, 5)), np.zeros((6, 2))], axis=1)
    plain, masked = select_groups(returns, FilterConfig()), select_groups(padded, FilterConfig(), valid_PG=valid)
    assert (plain.kept_P == masked.kept_P).all()
    assert (plain.scores_P == masked.scores_P).all()
