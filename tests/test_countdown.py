"""Countdown: the reader of expressions, the exact solver, rewards, puzzles, demonstrations, hostile answers."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import outputs_under_hash_seeds

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs.arithmetic import MAX_DEPTH, MAX_LENGTH, NotArithmetic, read_expression
from ragen2.envs.countdown import Countdown, Puzzle, score
from ragen2.envs.countdown_solver import OPERATORS, combine, number, reachable, solvable, solve, uses_allowed
from ragen2.envs.splits import SPLITS, split_of
from ragen2.errors import ConfigError, EnvironmentFault

SHARED = Path(__file__).resolve().parents[2] / "shared"


def value(text: str) -> Fraction:
    return read_expression(text).value


def all_values(numbers: tuple[int, ...]) -> set[Fraction]:
    """Every value of the numbers, each used exactly once: joins any two and goes on. Shares no code with the solver."""
    found: set[Fraction] = set()

    def go_on(left: tuple[Fraction, ...]) -> None:
        if len(left) == 1:
            found.add(left[0])
        for first, second in itertools.permutations(range(len(left)), 2):
            rest = tuple(x for index, x in enumerate(left) if index not in (first, second))
            a, b = left[first], left[second]
            for joined in [a + b, a - b, a * b] + ([a / b] if b else []):
                go_on((*rest, joined))

    go_on(tuple(map(Fraction, numbers)))
    return found


# Reading expressions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2+5*3", Fraction(17)),
        ("(2 + 5) * 3", Fraction(21)),
        ("10 - 4 - 3", Fraction(3)),
        ("24 / 4 / 3", Fraction(2)),
        ("24 / (4 / 3)", Fraction(18)),
        ("809/10", Fraction(809, 10)),
        ("1/3 + 1/6", Fraction(1, 2)),
        ("-3 + 10", Fraction(7)),
        ("2 * -(3 - 5)", Fraction(4)),
        ("--4", Fraction(4)),
        (" \t7\n", Fraction(7)),
        ("0", Fraction(0)),
        ("2 \u00d7 3 \u2212 4 \u00f7 8", Fraction(11, 2)),
        ("((((3))))", Fraction(3)),
    ],
)
def test_expressions_have_their_exact_value(text: str, expected: Fraction) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "()", "3 +", "+ 3", "* 3", "3 5 2", "(3", "3)", ")3(", "3 (4)", "(3)(4)", "2 3"),
        *("1e2", "1_0", "1.5", "0x10", "007", "00", "5 or 3", "(3,5)[1]", "3**2", "7//2", "6^3", "5%3", "5<<1", "~5", "1j"),
        *(
            "5 if 3 else 2",
            "2+3 # 4",
            "3==3",
            "3=3",
            "2+3=5",
            "3 := 4",
            "x",
            "True",
            "None",
            "abs(-3)",
            "lambda: 3",
            "[3]",
            "{3}",
        ),
        *("9**9**9", "10**10**10", "().__class__.__base__.__subclasses__()", "__import__('os').system('true')", "exec('1')"),
        *(
            "\u0663+\u0664",
            "\uff13+4",
            "\u00b2",
            "\u2167",
            "3\u00a0+ 4",
            "3+4\x00",
            "\ud800",
            "\u202e3+4",
            "3+4\u200b",
            "3\x0b+4",
        ),
        *("1/0", "4/(2-2)", "1234567890", "9" * 6000, "(" * 5000, "-" * 150 + "3", "(" * 60 + "3" + ")" * 60, "1+" * 5000 + "1"),
    ],
)
def test_anything_else_is_no_expression(text: str) -> None:
    with pytest.raises(NotArithmetic):
        read_expression(text)


def test_a_trailing_claim_must_be_the_very_target() -> None:
    assert read_expression("2 + 5 - 3 = 4", claim=4).numbers == (2, 5, 3)
    for text in ("2 + 5 - 3 = 5", "2 + 5 = 4 = 4", "4 = 2 + 5 - 3", "= 4", "2 + 5 - 3 =", "2 + 5 - 3 = 4.0", "2 + 5 - 3 = (4)"):
        with pytest.raises(NotArithmetic):
            read_expression(text, claim=4)


def test_bounds_hold_at_their_edge() -> None:
    widest = "1" + "+1" * ((MAX_LENGTH - 1) // 2)
    assert value(widest) == len(widest) // 2 + 1
    deepest = "(" * MAX_DEPTH + "3" + ")" * MAX_DEPTH
    assert value(deepest) == 3
    with pytest.raises(NotArithmetic, match="nested"):
        read_expression(f"({deepest})")
    assert value("999999999 * 999999999") == 999_999_999**2


@given(st.text(max_size=60) | st.text(alphabet="0123456789+-*/()= \u00d7_e.", max_size=40))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    try:
        expression = read_expression(text)
    except NotArithmetic:
        return
    assert expression.numbers
    assert not set(text) - set("0123456789+-*/() \t\r\n\u00d7\u00f7\u2212")


_trees = st.recursive(
    st.integers(0, 99).map(number),
    lambda inner: st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda join: combine(*join) or join[0]),
    max_leaves=6,
)


@given(_trees)
def test_written_terms_read_back_as_the_same_value(term: Any) -> None:
    assert read_expression(term.text).value == term.value


# The solver


def test_solver_agrees_with_the_given_vectors() -> None:
    path = SHARED / "vectors" / "countdown.json"
    if not path.exists():
        pytest.skip("shared/vectors/countdown.json is not beside this checkout")
    cases = json.loads(path.read_text())
    assert len(cases) >= 50
    for case in cases:
        assert solvable(case["numbers"], case["target"]) is case["solvable"], case
        found = solve(case["numbers"], case["target"])
        if found is not None:
            assert score(found, Puzzle(tuple(case["numbers"]), case["target"])).reward == 1.0


@pytest.mark.parametrize("numbers", [(2, 3), (1, 1), (5, 5, 5), (1, 7, 12), (3, 8, 8), (1, 2, 3, 4), (2, 2, 9, 10), (3, 3, 8, 8)])
def test_solver_finds_exactly_what_brute_force_finds(numbers: tuple[int, ...]) -> None:
    truth = all_values(numbers)
    made = reachable(numbers)
    assert set(made) == truth
    for found, term in made.items():
        assert read_expression(term.text).value == found
        assert uses_allowed(read_expression(term.text).numbers, numbers)
    for target in range(-20, 101):
        text = solve(numbers, target)
        assert (text is not None) == (target in truth)
        if text is not None:
            assert value(text) == target


def test_known_hard_ones() -> None:
    assert solve((2, 3), 6) == "2 * 3"
    assert solvable((1, 2, 3, 4, 5), 10)
    assert solvable((1, 2, 3, 4, 5), 15)
    text = solve((3, 3, 8, 8), 24)
    assert text is not None
    assert value(text) == 24
    assert solve((7,), 7) == "7"
    assert solve((7,), 8) is None


def test_at_most_once_also_uses_fewer_numbers() -> None:
    assert solve((1, 81, 1, 1), 81, exactly_once=False) == "81"
    assert solve((50, 3, 7), 21, exactly_once=False) == "3 * 7"
    assert solve((50, 3, 7), 21) is None
    assert solve((2, 4), 5, exactly_once=False) is None
    assert solve((2, 3), 5, exactly_once=False) == "2 + 3"


@pytest.mark.parametrize("numbers", [(), tuple(range(1, 8))])
def test_solver_refuses_what_would_take_too_long(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="takes 1 to 6"):
        solve(numbers, 5)


# Rewards


@pytest.mark.parametrize(
    ("numbers", "target", "answer", "reward"),
    [
        ((3, 7), 21, "3 * 7", 1.0),
        ((3, 7), 21, "7*3", 1.0),
        ((3, 7), 21, "3 + 7", 0.1),
        ((3, 7), 21, "3 / 7", 0.1),
        ((3, 7), 21, "21", 0.0),
        ((3, 7), 21, "3 * 7 * 1", 0.0),
        ((3, 7), 21, "3 * 7 + 3 - 3", 0.0),
        ((3, 7), 21, "10 + 11", 0.0),
        ((3, 7), 21, "(3 * 7) = 21", 1.0),
        ((3, 7), 21, "-3 * -7", 1.0),
        ((1, 1, 1, 81), 81, "81*1", 0.0),
        ((1, 1, 1, 81), 81, "81*1*1*1", 1.0),
        ((10, 809), 80, "809/10", 0.1),
        ((2, 3, 5), 4, "2 + 5 - 3 = 4", 1.0),
        ((2, 3), 6, "2 \u00d7 3", 1.0),
        ((1, 2), 100, "1e2", 0.0),
        ((1, 0), 10, "1_0", 0.0),
        ((3, 5), 5, "5 or 3", 0.0),
        ((1, 3, 5), 5, "(3,5)[1]", 0.0),
        ((2, 3), 9, "3**2", 0.0),
        ((2, 7), 3, "7//2", 0.0),
        ((3, 6), 5, "6^3", 0.0),
        ((2, 3, 5), 5, "5 if 3 else 2", 0.0),
        ((2, 3, 4), 5, "2+3 # 4", 0.0),
        ((3, 3), 1, "3==3", 0.0),
        ((2, 3, 5), 1, "3 5 2", 0.0),
        ((9, 9, 9), 1, "9**9**9", 0.0),
        ((2, 2, 4), 1, "4 / (2 - 2)", 0.0),
        ((1, 2), 3, "().__class__.__base__.__subclasses__()", 0.0),
    ],
)
def test_rewards(numbers: tuple[int, ...], target: int, answer: str, reward: float) -> None:
    assert score(answer, Puzzle(numbers, target)).reward == reward


def test_rewards_of_at_most_once() -> None:
    puzzle = Puzzle((1, 1, 1, 81), 81)
    assert [score(answer, puzzle, exactly_once=False).reward for answer in ("81", "81*1", "81*1*1*1*1", "1+1", "80+1", "")] == [
        *(1.0, 1.0, 0.0, 0.1, 0.0, 0.0)
    ]


def test_one_turn_ends_the_episode() -> None:
    env = Countdown(numbers=2)
    env.reset(0, 0)
    (action,) = env.demonstrate(np.random.default_rng(0), 1.0, 5).actions
    result = env.step(action)
    assert (result.reward, result.terminated, result.truncated) == (1.0, True, False)
    assert (result.info["legal"], result.info["success"]) == (True, True)
    after = env.step(action)
    assert (after.reward, after.terminated, after.info["legal"], after.info["success"]) == (0.0, True, False, True)
    env.reset(0, 0)
    wrong = env.step("import os")
    assert (wrong.reward, wrong.terminated, wrong.info["legal"], wrong.info["success"]) == (0.0, True, False, False)
    assert env.multi_action is False


@given(st.text(max_size=80) | st.text(alphabet="0123456789+-*/()= ", max_size=30))
def test_hostile_answers_pay_only_for_the_right_numbers(text: str) -> None:
    env = Countdown(numbers=2)
    env.reset(1, 0)
    result = env.step(text)
    assert result.done
    assert result.reward in (0.0, 0.1, 1.0)
    if result.reward:
        used = Counter(re.findall(r"\d+", text.partition("=")[0]))
        assert used == Counter(env.content().split("numbers ")[1].split(" target")[0].split())


# Puzzles


def read_puzzle(text: str) -> tuple[list[int], int]:
    numbers, _, target = text.splitlines()[-1].removeprefix("numbers ").partition(" target ")
    return [int(word) for word in numbers.split()], int(target)


@pytest.mark.parametrize("options", [{"numbers": 2}, {}, {"numbers": 4}, {"numbers": 2, "low": 5, "high": 9, "max_target": 30}])
def test_puzzles_are_solvable_and_not_trivial(options: dict[str, Any]) -> None:
    env = Countdown(**options)
    for seed in range(60):
        numbers, target = read_puzzle(env.reset(seed, 0).text)
        assert len(numbers) == options.get("numbers", 3)
        assert numbers == sorted(numbers)
        assert options.get("low", 1) <= numbers[0] <= numbers[-1] <= options.get("high", 99)
        assert 1 <= target <= options.get("max_target", 99)
        assert target not in numbers
        assert solvable(numbers, target)


def test_no_operator_solves_most_puzzles_of_two_numbers() -> None:
    env, solved = Countdown(numbers=2), Counter[str]()
    for seed in range(400):
        numbers, target = read_puzzle(env.reset(seed, 0).text)
        small, large = numbers
        solved.update(
            name
            for name, made in (("+", large + small), ("-", large - small), ("*", large * small), ("/", Fraction(large, small)))
            if made == target
        )
    assert all(60 <= solved[name] <= 160 for name in "+-*/"), solved


def test_puzzles_repeat_and_belong_to_their_split() -> None:
    contents: dict[str, set[str]] = {}
    for split in SPLITS:
        env, twin = Countdown(split, numbers=2), Countdown(split, numbers=2)
        contents[split] = set()
        for seed in range(150):
            assert env.reset(seed, 0).text == twin.reset(seed, 5).text
            assert split_of(env.content()) == split
            contents[split].add(env.content())
    assert not contents["train"] & (contents["validation"] | contents["test"])
    assert not contents["validation"] & contents["test"]


@pytest.mark.parametrize("numbers", [2, 3])
def test_512_distinct_validation_puzzles(numbers: int) -> None:
    assert len(validation_seeds(Countdown("validation", numbers=numbers), 512)) == 512


_DIGEST = """
import hashlib, numpy as np
from ragen2.envs.countdown import Countdown
seen = hashlib.sha256()
for numbers in (2, 3, 4):
    env = Countdown(numbers=numbers)
    for seed in range(30):
        seen.update(env.reset(seed, 0).text.encode())
        seen.update(repr(env.demonstrate(np.random.default_rng(seed), 0.7, 1)).encode())
print(seen.hexdigest())
"""


def test_puzzles_and_demonstrations_are_the_same_in_any_process() -> None:
    assert len(outputs_under_hash_seeds(_DIGEST)) == 1


@pytest.mark.parametrize(
    "options",
    [
        *({"numbers": 1}, {"numbers": 6}, {"numbers": 2.5}, {"low": 0}, {"low": 10, "high": 9}, {"max_target": 0}),
        *({"exactly_once": "yes"}, {"high": 10**7}, {"split": "dev"}),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Countdown(**options)


def test_numbers_that_reach_no_target_end_in_a_clear_error() -> None:
    with pytest.raises(EnvironmentFault, match="level seed 0 gave no train level"):
        Countdown(numbers=2, high=1, max_target=1).reset(0, 0)


def test_registered_and_sound() -> None:
    tried: list[dict[str, Any]] = [{}, {"numbers": 2}, {"exactly_once": False}]
    for options in tried:
        report = check_env(ragen2.make("countdown", **options))
        assert report.ok, str(report)
    assert "at most once" in Countdown(exactly_once=False).instructions
    assert "exactly once" in Countdown().instructions
    assert len(Countdown().instructions.split()) <= 100


# Demonstrations


def statements(reasoning: str) -> list[tuple[str, str]]:
    """Every "expression is value" that the reasoning states."""
    said = r"((?:[-(]*\d+\)*(?: [-+*/] )?)+),? (?:is|gives|it is|that is|which is) (not whole|over 999|under -999|-?\d+)"
    return [(text, told) for text, told in re.findall(said, reasoning) if re.search(r" [-+*/] ", text)]


@pytest.mark.parametrize("numbers", [2, 3])
@pytest.mark.parametrize("expertise", [0.0, 1.0])
def test_reasoning_is_true_and_names_the_puzzle(numbers: int, expertise: float) -> None:
    env, rng = Countdown(numbers=numbers), np.random.default_rng(3)
    told = set()
    for seed in range(150):
        given_numbers, target = read_puzzle(env.reset(seed, 0).text)
        demonstration = env.demonstrate(rng, expertise, 2)
        reasoning, (action,) = demonstration.reasoning, demonstration.actions
        assert {str(x) for x in [*given_numbers, target]} <= set(re.findall(r"\d+", reasoning))
        assert action in reasoning
        stated = statements(reasoning)
        assert stated[-1][0] == action
        for text, claimed in stated:
            truth = value(text)
            if claimed == "not whole":
                assert truth.denominator > 1
            elif claimed in ("over 999", "under -999"):
                assert (truth > 999) if claimed == "over 999" else (truth < -999)
            else:
                assert truth == int(claimed)
        above = re.search(r"(\d+) is (above|below|more than|less than) (\d+)", reasoning)
        assert above is not None
        assert (int(above[1]) > int(above[3])) == (above[2] in ("above", "more than"))
        for text, _, verdict in re.findall(r"([-+*/() \d]+) is (-?\d+), (too big|too much|too small|not enough)", reasoning):
            assert (value(text) > target) == (verdict in ("too big", "too much"))
        assert env.step(action).reward == (1.0 if value(action) == target else 0.1)
        told.add(re.sub(r"\d+", "?", reasoning))
    assert len(told) > 60


def test_experts_are_right_and_guesses_pick_any_operator() -> None:
    env, rng = Countdown(numbers=2), np.random.default_rng(4)
    rewards, guessed = [], Counter[str]()
    for seed in range(200):
        env.reset(seed, 0)
        guessed.update(env.demonstrate(rng, 0.0, 1).actions[0].split()[1:2])
        rewards.append(env.step(env.demonstrate(rng, 1.0, 1).actions[0]).reward)
    assert rewards == [1.0] * 200
    assert all(25 <= guessed[name] <= 80 for name in "+-*/"), guessed


def test_demonstrations_with_at_most_once_and_after_the_end() -> None:
    env = Countdown(exactly_once=False)
    for seed in range(20):
        env.reset(seed, 0)
        (action,) = env.demonstrate(np.random.default_rng(seed), 1.0, 1).actions
        assert env.step(action).reward == 1.0
        with pytest.raises(EnvironmentFault, match="after the end"):
            env.demonstrate(np.random.default_rng(seed), 1.0, 1)
    for use in (lambda: Countdown().content(), lambda: Countdown().step("1")):
        with pytest.raises(EnvironmentFault, match="reset"):
            use()
