"""Names and settings of algorithms, pass@k, the overlong penalty, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest

from ragen2.algorithms import (
    Algorithm,
    AlgorithmConfig,
    dr_grpo_advantages,
    get_algorithm,
    grpo_advantages,
    list_algorithms,
    overlong_penalty,
    pass_at_k,
    register_algorithm,
    registry,
    resolve,
)
from ragen2.errors import ConfigError, UnknownName


def test_names() -> None:
    assert {"ppo", "grpo", "dr_grpo", "dapo", "rloo"} <= set(list_algorithms())
    for name in list_algorithms():
        algorithm = get_algorithm(name)
        assert algorithm.name == name
        assert algorithm.summary
        assert resolve(AlgorithmConfig(name=name)).name == name
    with pytest.raises(UnknownName, match="Did you mean 'grpo'"):
        get_algorithm("gropo")


def test_only_ppo_has_a_critic_and_takes_groups_of_one() -> None:
    assert get_algorithm("ppo").uses_critic
    get_algorithm("ppo").check_group_size(1)
    for name in ("grpo", "dr_grpo", "dapo", "rloo"):
        assert not get_algorithm(name).uses_critic
        get_algorithm(name).check_group_size(2)
        with pytest.raises(ConfigError, match="group size of at least 2, not 1"):
            get_algorithm(name).check_group_size(1)


def test_each_algorithm_has_its_own_settings() -> None:
    ppo, grpo, dr_grpo, dapo = (resolve(AlgorithmConfig(name=name)) for name in ("ppo", "grpo", "dr_grpo", "dapo"))
    assert (ppo.aggregation, ppo.whiten, ppo.clip_low, ppo.clip_high, ppo.value_clip) == ("token-mean", True, 0.2, 0.28, 0.5)
    assert (grpo.aggregation, grpo.whiten) == ("seq-mean-token-mean", False)
    assert dr_grpo.aggregation == "seq-mean-token-sum"
    assert (dapo.aggregation, dapo.dynamic_sampling, dapo.kl_coef, dapo.entropy_coef) == ("token-mean", True, 0.0, 0.0)
    assert dapo.overlong_factor > 0
    assert not ppo.dynamic_sampling
    assert get_algorithm("dapo").advantages is grpo_advantages


def test_a_setting_of_the_user_wins_even_when_it_is_zero_or_off() -> None:
    found = resolve(AlgorithmConfig(name="dapo", clip_high=0.4, overlong_factor=0.0, dynamic_sampling=False, dual_clip=0.0))
    assert (found.clip_high, found.overlong_factor, found.dynamic_sampling, found.dual_clip) == (0.4, 0.0, False, 0.0)
    assert all(getattr(found, field.name) is not None for field in fields(found))
    assert resolve(found) == found


def test_the_estimator_follows_the_place_of_the_divergence() -> None:
    assert resolve(AlgorithmConfig()).kl_estimator == "k2"
    assert resolve(AlgorithmConfig(kl_in="reward")).kl_estimator == "k1"
    assert resolve(AlgorithmConfig(kl_in="reward", kl_estimator="k3")).kl_estimator == "k3"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"aggregation": "token_mean"}, "Did you mean 'token-mean'"),
        ({"clip_low": 1.5}, "algorithm.clip_low is 1.5"),
        ({"clip_high": -0.1}, "at least 0"),
        ({"dual_clip": 0.5}, "(0 is off)"),
        ({"gamma": float("nan")}, "algorithm.gamma is nan"),
        ({"kl_estimator": "low-var-kl"}, "k1, k2, k3"),
        ({"whiten": 1}, "true or false"),
        ({"name": ""}, "algorithm.name"),
    ],
)
def test_bad_settings_are_explained(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        AlgorithmConfig(**change)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_settings_that_cannot_work_together() -> None:
    with pytest.raises(ConfigError, match="has no critic"):
        resolve(AlgorithmConfig(name="grpo", bi_level=True))
    with pytest.raises(UnknownName, match="algorithm"):
        resolve(AlgorithmConfig(name="reinforce"))


def test_an_algorithm_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    own = Algorithm("centred", "mean only", dr_grpo_advantages, defaults={"aggregation": "token-mean", "clip_high": 0.5})
    register_algorithm(own)
    register_algorithm(own)
    assert get_algorithm("centred") is own
    assert resolve(AlgorithmConfig(name="centred")).clip_high == 0.5
    with pytest.raises(ConfigError, match="already exists"):
        register_algorithm(Algorithm("ppo", "another", dr_grpo_advantages))
    with pytest.raises(UnknownName, match="Did you mean 'clip_high'"):
        register_algorithm(Algorithm("typo", "", dr_grpo_advantages, defaults={"clip_hi": 0.5}))
    with pytest.raises(ConfigError, match="clip_high"):
        register_algorithm(Algorithm("wild", "", dr_grpo_advantages, defaults={"clip_high": -1.0}))
    assert "wild" not in list_algorithms()


def test_overlong_penalty() -> None:
    lengths = np.array([0, 80, 90, 100, 130])
    np.testing.assert_allclose(overlong_penalty(lengths, 100, 20), [0.0, 0.0, -0.5, -1.0, -1.0])
    np.testing.assert_allclose(overlong_penalty(lengths, 100, 20, 0.5, mask=[1, 1, 1, 0, 1]), [0.0, 0.0, -0.25, 0.0, -0.5])
    with pytest.raises(ConfigError, match="overlong buffer is 0"):
        overlong_penalty(lengths, 100, 0)


def test_pass_at_k_by_hand() -> None:
    assert pass_at_k(4, 2, 1) == 0.5
    assert pass_at_k(4, 2, 2) == pytest.approx(5 / 6)
    assert pass_at_k(4, 2, 3) == 1.0
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)
    for n, c, k in ((4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)):
        with pytest.raises(ConfigError, match=f"n={n}, c={c}, k={k}"):
            pass_at_k(n, c, k)


def test_importing_loads_numpy_only() -> None:
    code = (
        "import sys, ragen2.filtering, ragen2.algorithms as a; a.list_algorithms(); a.grpo_advantages([[1, 0]]); "
        "print([m for m in ('torch', 'pydantic', 'transformers', 'yaml', 'typer', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
