"""The adapter of reasoning-gym: items, gates, scores, hostile answers."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import outputs_under_hash_seeds

import ragen2
from ragen2.envs import check_env
from ragen2.envs.adapters import reasoning_gym_items
from ragen2.envs.adapters.reasoning_gym import ReasoningGym
from ragen2.envs.adapters.reasoning_gym_gates import form_fault, surely_wrong
from ragen2.envs.adapters.reasoning_gym_names import NAMES, SANDBOXED
from ragen2.errors import ConfigError, EnvironmentFault, UnknownName

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")

SAMPLE = (
    "chain_sum",
    "maze",
    "game_of_life_halting",
    "word_sorting",
    "pool_matrix",
    "isomorphic_strings",
    "graph_color",
    "list_functions",
)


def make(name: str, **options: Any) -> ReasoningGym:
    env = ragen2.make(f"reasoning-gym/{name}", **options)
    assert isinstance(env, ReasoningGym)
    return env


def answer_of(env: ReasoningGym) -> str:
    return env.demonstrate(np.random.default_rng(0), 1.0, 1).actions[0]


def test_names_are_those_of_the_package() -> None:
    code = "from reasoning_gym.factory import DATASETS; print(*sorted(DATASETS))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - {"composite"} >= set(NAMES)


@pytest.mark.parametrize("name", SAMPLE)
def test_contract(name: str) -> None:
    report = check_env(make(name), seeds=(0, 1, 2), steps=2)
    assert report.ok, str(report)


def test_one_answer_ends_the_episode_and_success_is_the_full_score() -> None:
    env = make("chain_sum")
    shown = env.reset(3, 0).text
    right = env.step(answer_of(env))
    assert (right.reward, right.terminated, right.truncated) == (1.0, True, False)
    assert right.info["legal"] is True and right.info["success"] is True
    assert env.step("again").reward == 0.0
    env.reset(3, 0)
    wrong = env.step("12")
    assert wrong.reward == 0.0 and wrong.info["success"] is False and shown in wrong.observation.text


def test_score_pays_part_of_the_way_and_right_does_not() -> None:
    for reward, paid in (("score", True), ("right", False)):
        env = make("spell_backward", reward=reward)
        env.reset(1, 0)
        part = env.step(answer_of(env)[:2])
        assert (0.0 < part.reward < 1.0) is paid
        assert part.info["success"] is False


def test_options_reach_the_data_set_and_bad_ones_are_named() -> None:
    env = make("chain_sum", options={"min_terms": 6, "max_terms": 6})
    assert sum(env.reset(0, 0).text.count(sign) for sign in "+-") >= 5
    with pytest.raises(ConfigError, match="set by the level seed"):
        make("chain_sum", options={"seed": 3})
    with pytest.raises(ConfigError, match="refused the options"):
        make("chain_sum", options={"min_term": 6}).reset(0, 0)
    with pytest.raises(UnknownName, match="Did you mean 'score'"):
        make("chain_sum", reward="scores")
    with pytest.raises(EnvironmentFault, match="call reset"):
        make("chain_sum").step("1")


def test_items_are_the_same_under_any_hash_seed() -> None:
    code = (
        "import ragen2\n"
        "for name in ('isomorphic_strings', 'ransom_note', 'list_functions', 'word_sorting'):\n"
        "    for seed in (0, 1): print(ragen2.make('reasoning-gym/' + name, 'validation').reset(seed, 0).text)"
    )
    assert len(outputs_under_hash_seeds(code)) == 1


BOMBS = (
    "",
    "x" * 9000,
    "\ud800",
    "\x00",
    "1e999999999",
    "1e-999999999",
    "9**9**9",
    "9" * 5000,
    "nan",
    "inf",
    "-inf",
    "None",
    "[[[[" * 1500,
    '{"a": ' * 1000,
    "𝟘",
    "٤٢",
    "−1",
    "1_0",
    "<answer>1</answer>",
    "1 || 2",
    "aaaa" * 1500 + "!",
    "((((" * 1900,
    "__import__('os').getcwd()",
)


@pytest.mark.parametrize(
    "name",
    [
        "decimal_arithmetic",
        "coin_flip",
        "complex_arithmetic",
        "power_function",
        "game_of_life_halting",
        "jugs",
        "prime_factorization",
    ],
)
def test_hostile_answers_pay_nothing(name: str) -> None:
    env = make(name)
    for answer in BOMBS:
        env.reset(2, 0)
        result = env.step(answer)
        assert result.reward == 0.0 and result.terminated, answer[:40]


ESCAPES = {
    "spiral_matrix": [
        "__import__('sys')._getframe(1).f_locals['oracle_answer'].split()",
        "[*(1,2)]",
        "[i for i in [1]]",
        "open('x')",
    ],
    "string_insertion": ["oracle_answer", "list(entry['answer'])", "'A'.join('B')", "[x for x in 'A']"],
    "binary_matrix": ["exec('import os')", "[[0]]*9**9", "0 0 0\n0 0 0 #", "lambda: 0"],
    "n_queens": ["valid_solutions[0]", "eval('1')", "[q for q in 'Q']", "().__class__"],
    "simple_integration": [
        "Symbol('x')",
        "x.__class__",
        "(lambda: x)()",
        "integrate(x, x)",
        "'x'",
        "x**9**9",
        "x**99999",
        "S('x')",
        "x[0]",
    ],
    "countdown": ["9**9**9", "int('1')", "1+1 or 2", "1e3", "٣+٤", "(1).real", "1//1"],
    "puzzle24": ["6*4+1-1", "24", "4!", "8*3*1*1", "49/2*1*1"],
}


@needs_bwrap
@pytest.mark.parametrize("name", sorted(ESCAPES))
def test_answers_that_are_code_never_reach_the_verifier(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make(name)

    def reached(*_: object) -> float:
        raise AssertionError("the verifier was reached")

    monkeypatch.setattr(reasoning_gym_items.ItemSource, "score", reached)
    for answer in ESCAPES[name]:
        env.reset(4, 0)
        result = env.step(answer)
        assert result.reward == 0.0 and result.info["success"] is False, answer


@needs_bwrap
@pytest.mark.parametrize("name", ["spiral_matrix", "countdown", "puzzle24", "simple_integration"])
def test_executing_verifiers_score_in_the_sandbox(name: str) -> None:
    env = make(name)
    env.reset(1, 0)
    assert env.step(answer_of(env)).reward == 1.0


def test_executing_data_sets_refuse_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigError("no bubblewrap here")

    monkeypatch.setattr("ragen2.envs.adapters.reasoning_gym._require_sandbox", missing)
    for name in SANDBOXED:
        with pytest.raises(ConfigError, match="no bubblewrap"):
            make(name)
    make("chain_sum")


@pytest.mark.parametrize(
    "right", ["1/3*X**3 + C", "-3*x**3*sin(x) - 9*x**2*cos(x) + C", "exp(2*x)/4 + C", "(x + 1)**(1/2)", "2.5*x"]
)
def test_formulas_pass_the_gate(right: str) -> None:
    assert form_fault("simple_integration", right) is None


@given(st.text(max_size=60))
def test_the_gate_lets_no_attribute_text_or_call_through(text: str) -> None:
    if form_fault("simple_integration", text) is None:
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,+-*/^()") | set(
            filter(str.isspace, text)
        )
        assert not any(before.isalpha() and after == "." for before, after in itertools.pairwise(text))


@given(st.lists(st.integers(1, 10), min_size=4, max_size=4))
def test_puzzle24_needs_the_given_numbers(numbers: list[int]) -> None:
    wrong = surely_wrong("puzzle24", "6*4*1*1", None, numbers)
    assert wrong is (sorted(numbers) != [1, 1, 4, 6])


def test_a_verifier_that_hangs_costs_only_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning_gym_items, "SCORE_SECONDS", 0.5)
    monkeypatch.setattr("ragen2.envs.adapters.reasoning_gym.form_fault", lambda *_: None)
    monkeypatch.setattr("ragen2.envs.adapters.reasoning_gym.surely_wrong", lambda *_: False)
    env = make("coin_flip")
    env.reset(0, 0)
    assert env.step("1e99999999").reward == 0.0
    env.reset(0, 0)
    assert env.step(answer_of(env)).reward == 1.0


@needs_bwrap
@pytest.mark.slow
@pytest.mark.parametrize("answer", ["9**(9**9)", "x**(x**(x**(9**(99**99))))", "(" * 190 + "x" + ")" * 190])
def test_formulas_that_hang_the_verifier_end_in_the_sandbox(answer: str) -> None:
    env = make("simple_integration")
    env.reset(0, 0)
    assert env.step(answer).reward == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_data_set_keeps_the_contract_and_takes_its_own_answers(name: str) -> None:
    if name in SANDBOXED and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    env = make(name)
    report = check_env(env, seeds=(0, 1), steps=1)
    assert report.ok, str(report)
    for seed in range(3):
        env.reset(seed, 0)
        try:
            answer = answer_of(env)
        except NotImplementedError:
            continue
        assert env.step(answer).info["success"] is True
