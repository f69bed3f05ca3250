"""Bandit: pairs and splits, one prompt a group, payouts, demonstrations, hostile answers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs.bandit import PAIRS, Bandit
from ragen2.envs.splits import SPLITS
from ragen2.errors import ConfigError, EnvironmentFault

RISKY = {pair.risky for pairs in PAIRS.values() for pair in pairs}


def arms_of(env: Bandit) -> tuple[str, str]:
    _, first, _, second = env.step("show").observation.text.split()
    return first, second


def test_twelve_training_and_eight_test_pairs_share_no_name() -> None:
    assert [len(PAIRS[split]) for split in SPLITS] == [12, 4, 8]
    names = [name for pairs in PAIRS.values() for pair in pairs for name in (pair.steady, pair.risky)]
    assert len(names) == len({name.casefold() for name in names}) == 48
    assert all(name.isalpha() for name in names)


def test_splits_are_disjoint_by_unordered_pair() -> None:
    contents: dict[str, set[str]] = {}
    orders = set()
    for split in SPLITS:
        env = Bandit(split)
        contents[split] = set()
        for seed in range(300):
            orders.add(env.reset(seed, 0).text)
            contents[split].add(env.content())
    assert [len(contents[split]) for split in SPLITS] == [12, 4, 8]
    assert len(orders) == 48
    assert all(not contents[a] & contents[b] for a, b in itertools.combinations(SPLITS, 2))


def test_training_arms_for_every_split_on_request() -> None:
    for split in SPLITS:
        env = Bandit(split, arms="train")
        seeds = validation_seeds(env, 12)
        contents = set()
        for seed in seeds:
            env.reset(seed, 0)
            contents.add(env.content())
        assert contents == {"bandit " + " ".join(sorted((pair.steady, pair.risky))) for pair in PAIRS["train"]}
    with pytest.raises(ConfigError, match="hold only 12 distinct"):
        validation_seeds(Bandit("validation", arms="train"), 512)
    assert len(set(validation_seeds(Bandit("validation", arms="train"), 512, repeats=True))) == 512


def test_a_group_sees_one_prompt() -> None:
    envs = [Bandit() for _ in range(16)]
    prompts = {env.reset(7, noise_seed).text for noise_seed, env in enumerate(envs)}
    for _ in range(3):
        prompts |= {envs[0].reset(7, noise_seed).text for noise_seed in range(16)}
    assert len(prompts) == 1


def test_payouts() -> None:
    env = Bandit()
    paid: dict[bool, list[float]] = {True: [], False: []}
    for noise_seed in range(4000):
        env.reset(3, noise_seed)
        first, second = arms_of(env)
        arm = (first, second)[noise_seed % 2]
        result = env.step(arm)
        assert result.terminated
        assert result.info["legal"] is True
        assert result.info["success"] is (arm in RISKY)
        paid[arm in RISKY].append(result.reward)
    assert set(paid[False]) == {0.1}
    assert set(paid[True]) == {0.0, 1.0}
    assert abs(sum(paid[True]) - 500) < 4 * (2000 * 0.25 * 0.75) ** 0.5


def test_payout_depends_on_the_noise_seed_only_through_the_seed() -> None:
    env = Bandit()
    rewards = []
    for noise_seed in [*range(30), *range(30)]:
        env.reset(3, noise_seed)
        rewards.append(env.step(next(arm for arm in arms_of(env) if arm in RISKY)).reward)
    assert rewards[:30] == rewards[30:]
    assert len(set(rewards)) == 2


def test_one_choice_only() -> None:
    env = Bandit()
    env.reset(0, 0)
    first, second = arms_of(env)
    wrong = env.step(f"{first} and {second}")
    assert wrong.info["legal"] is False
    assert not wrong.done
    assert wrong.reward == 0.0
    chosen = env.step(f" {first.upper()}\n")
    after = env.step(second)
    assert chosen.done
    assert after.done
    assert after.reward == 0.0
    assert after.info["success"] == chosen.info["success"]
    with pytest.raises(EnvironmentFault, match="step before reset"):
        Bandit().step("x")
    with pytest.raises(EnvironmentFault, match="without an open choice"):
        env.demonstrate(np.random.default_rng(0), 1.0, 1)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"arms": "tran"}, "Did you mean 'train'"),
        ({"high_probability": 2.0}, "from 0 to 1"),
        ({"low_reward": float("inf")}, "from -1e"),
        ({"high_probability": 0.1}, "is not above the steady arm's"),
    ],
)
def test_values_that_cannot_be_used(config: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ragen2.make("bandit", **config)


def test_contract() -> None:
    for config in ({}, {"arms": "train"}):
        for split in SPLITS:
            report = check_env(ragen2.make("bandit", split=split, **config))
            assert report.ok, str(report)
    assert Bandit.multi_action is False


def test_demonstrations_name_both_arms_and_follow_expertise() -> None:
    env = Bandit()
    rng = np.random.default_rng(2)
    texts = set()
    for expertise, low, high in ((1.0, 300, 300), (0.0, 0, 0), (0.4, 90, 150)):
        risky = 0
        for seed in range(300):
            env.reset(seed, 0)
            demo = env.demonstrate(rng, expertise, 1)
            assert all(arm in demo.reasoning for arm in arms_of(env))
            assert len(demo.actions) == 1
            assert demo.reasoning.endswith(f"{demo.actions[0]}.")
            risky += demo.actions[0] in RISKY
            texts.add(demo.reasoning)
        assert low <= risky <= high
    assert len(texts) > 300


SHARED_BANDIT = Bandit()


@given(st.lists(st.text(max_size=80), max_size=6), st.integers(0, 50))
def test_hostile_answers_never_raise_or_pay(answers: list[str], seed: int) -> None:
    SHARED_BANDIT.reset(seed, seed)
    for answer in answers:
        result = SHARED_BANDIT.step(answer)
        assert result.info["legal"] is False
        assert result.reward == 0.0
        assert not result.done
