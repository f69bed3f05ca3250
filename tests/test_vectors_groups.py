"""Filter, advantages, estimation, aggregation and pass@k against numbers computed independently from the definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragen2.algorithms import (
    aggregate_loss,
    bi_level_gae_advantages,
    dr_grpo_advantages,
    gae_advantages,
    grpo_advantages,
    pass_at_k,
)
from ragen2.filtering import FilterConfig, group_scores, select_groups

VECTORS = Path(__file__).resolve().parents[2] / "shared" / "vectors"

SELECTIONS = {
    "top_p_mass_variance_0.9": FilterConfig(),
    "top_p_mass_variance_0.5": FilterConfig(top_p=0.5),
    "top_p_mass_std_0.9": FilterConfig(score="std"),
    "top_p_softmax_std_0.9_include_zero": FilterConfig(mode="softmax_top_p", score="std"),
    "top_p_softmax_std_0.9_exclude_zero": FilterConfig(mode="softmax_top_p", score="std", include_zero=False),
    "top_k_fraction_0.25": FilterConfig(mode="top_k", top_k=0.25),
    "top_k_count_4_smallest": FilterConfig(mode="top_k_count", top_k_count=4, direction="smallest"),
    "min_p_0.2_exclude_zero": FilterConfig(mode="min_p", min_p=0.2, include_zero=False),
}


def vectors(name: str) -> list[dict[str, Any]]:
    path = VECTORS / f"{name}.json"
    if not path.is_file():
        pytest.skip("the shared vectors are not beside this checkout")
    return json.loads(path.read_text())


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_scores_and_selections() -> None:
    for case in vectors("groups"):
        expected = case["expected"]
        close(group_scores(case["returns"]), expected["variance"])
        close(group_scores(case["returns"], "std") ** 2, expected["variance"])
        assert set(expected) == {"variance", *SELECTIONS}
        for name, config in SELECTIONS.items():
            decision = select_groups(case["returns"], config)
            assert np.nonzero(decision.kept_P)[0].tolist() == expected[name], name


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_group_advantages(library: str) -> None:
    for case in vectors("groups"):
        returns_PG = np.array(case["returns"])
        if library == "torch":
            torch = pytest.importorskip("torch")
            returns_PG = torch.tensor(case["returns"], dtype=torch.float64)
        for function, key in ((grpo_advantages, "grpo_advantage"), (dr_grpo_advantages, "dr_grpo_advantage")):
            advantages_PG = function(returns_PG)
            assert type(advantages_PG) is type(returns_PG)
            close(advantages_PG, case[key])


def test_token_and_turn_credit() -> None:
    for case in vectors("credit"):
        settings = {"gamma": case["gamma"], "lam": case["lam"]}
        advantages, returns = gae_advantages(case["rewards"], case["values"], case["model_mask"], **settings)
        close(advantages, case["gae_advantages"])
        close(returns, case["gae_returns"])
        values = np.array(case["values"])[np.array(case["model_mask"], dtype=bool)]
        advantages, returns = bi_level_gae_advantages(
            case["turn_rewards"], values, case["turn_of_model_token"], case["turn_gamma"], **settings
        )
        close(advantages, case["bi_level_advantages_of_model_tokens"])
        close(returns, case["bi_level_returns_of_model_tokens"])


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_aggregations(mode: str) -> None:
    for case in vectors("loss_aggregation"):
        close(aggregate_loss(np.array(case["token_loss"]), np.array(case["mask"]), mode, case["horizon"]), case[mode])


def test_pass_at_k() -> None:
    for case in vectors("pass_at_k"):
        close(pass_at_k(case["n"], case["c"], case["k"]), case["expected"])
