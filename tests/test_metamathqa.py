"""MetaMathQA: attempts and rewards, generated problems, GSM-Symbolic, files of the real data, demonstrations."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs import metamathqa as module
from ragen2.envs.math_problems import gold_answer, read_metamath
from ragen2.envs.math_stories import MOST, draw_story
from ragen2.envs.metamathqa import MetaMathQA
from ragen2.envs.splits import SPLITS, split_of
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency


def gold(env: MetaMathQA) -> str:
    """The worked answer's result."""
    return env.demonstrate(np.random.default_rng(0), 1.0, 1).actions[0]


# Attempts and rewards


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
def test_every_further_attempt_is_worth_half(attempt: int) -> None:
    env = MetaMathQA(attempts=4)
    first = env.reset(3, 0).text
    right = gold(env)
    for used in range(1, attempt):
        result = env.step("-1")
        assert (result.reward, result.done, result.info["legal"]) == (0.0, False, True)
        assert "success" not in result.info
        left = 4 - used
        assert result.observation.text == f"{first}\nwrong, {left} {'attempt' if left == 1 else 'attempts'} left"
    result = env.step(right)
    assert (result.reward, result.terminated, result.truncated) == (0.5 ** (attempt - 1), True, False)
    assert result.info["success"] is True
    assert env.step(right).reward == 0.0


def test_the_last_wrong_attempt_ends_without_success() -> None:
    env = MetaMathQA(attempts=2)
    env.reset(0, 0)
    assert not env.step("no idea").done
    result = env.step("-1")
    assert (result.reward, result.terminated, result.truncated, result.info["success"]) == (0.0, True, False, False)
    after = env.step(gold_after_end(env))
    assert (after.reward, after.info["legal"], after.info["success"]) == (0.0, False, False)


def gold_after_end(env: MetaMathQA) -> str:
    env_again = MetaMathQA()
    env_again.reset(0, 0)
    return gold(env_again)


def test_one_attempt_is_the_default_and_unreadable_answers_use_it() -> None:
    env = MetaMathQA()
    env.reset(0, 0)
    result = env.step("twelve")
    assert (result.reward, result.terminated, result.info["legal"], result.info["success"]) == (0.0, True, False, False)
    assert env.multi_action is False
    assert "One attempt" in env.instructions
    assert "At most 3 attempts" in MetaMathQA(attempts=3).instructions


@given(st.text(max_size=60) | st.text(alphabet="0123456789.,/-$% or\\{}", max_size=12))
def test_only_the_gold_number_pays(text: str) -> None:
    env = MetaMathQA()
    env.reset(1, 0)
    right = gold(env)
    result = env.step(text)
    assert result.done
    assert result.reward in (0.0, 1.0)
    if result.reward:
        digits = re.sub(r"[^0-9./]", "", text).strip(".")
        assert Fraction(digits) == int(right)


# Generated problems


@pytest.mark.parametrize(("steps", "largest"), [(1, 20), (2, 20), (4, 9), (6, 49)])
def test_stories_are_worked_out_right(steps: int, largest: int) -> None:
    operators = set()
    for seed in range(120):
        story = draw_story(steps, largest, np.random.default_rng(seed))
        assert len(story.sums) == steps
        shown = [int(number) for number in re.findall(r"\d+", story.question)]
        first = story.sums[0]
        assert shown == [first.left, first.right, *(step.right for step in story.sums[1:])]
        result = first.left
        for step in story.sums:
            operators.add(step.operator)
            assert step.left == result
            value = {
                "+": Fraction(step.left + step.right),
                "-": Fraction(step.left - step.right),
                "*": Fraction(step.left * step.right),
                "/": Fraction(step.left, step.right),
            }[step.operator]
            assert value == step.result
            assert 1 <= step.result <= MOST
            result = step.result
        assert story.gold == str(result)
        assert story.question.endswith("?")
    assert operators == set("+-*/")


@pytest.mark.parametrize("source", ["generated", "gsm"])
def test_problems_repeat_and_belong_to_their_split(source: str) -> None:
    if source == "gsm":
        pytest.importorskip("reasoning_gym", reason="GSM-Symbolic comes with reasoning-gym")
    contents: dict[str, set[str]] = {}
    for split in SPLITS:
        env, twin = MetaMathQA(split, source=source), MetaMathQA(split, source=source)
        contents[split] = set()
        for seed in range(60):
            assert env.reset(seed, 0).text == twin.reset(seed, 4).text
            assert split_of(env.content()) == split
            contents[split].add(env.content())
    assert not contents["train"] & (contents["validation"] | contents["test"])
    assert not contents["validation"] & contents["test"]


def test_512_distinct_validation_problems() -> None:
    assert len(validation_seeds(MetaMathQA("validation"), 512)) == 512


_DIGEST = """
import hashlib, numpy as np
from ragen2.envs.metamathqa import MetaMathQA
seen = hashlib.sha256()
for source in {sources}:
    env = MetaMathQA(source=source, steps=2)
    for seed in range(20):
        seen.update(env.reset(seed, 0).text.encode())
        seen.update(repr(env.demonstrate(np.random.default_rng(seed), 0.7, 1)).encode())
print(seen.hexdigest())
"""


def test_problems_and_demonstrations_are_the_same_in_any_process() -> None:
    pytest.importorskip("reasoning_gym", reason="GSM-Symbolic comes with reasoning-gym")
    digests = set()
    for hash_seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        code = _DIGEST.format(sources=("generated", "gsm"))
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        digests.add(run.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize(
    "options",
    [{}, {"steps": 2, "attempts": 3}, {"source": "gsm", "attempts": 2}],
)
def test_registered_and_sound(options: dict[str, Any]) -> None:
    if options.get("source") == "gsm":
        pytest.importorskip("reasoning_gym", reason="GSM-Symbolic comes with reasoning-gym")
    env = ragen2.make("metamathqa", **options)
    report = check_env(env)
    assert report.ok, str(report)
    assert len(env.instructions.split()) <= 100


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": 1.5},
        {"steps": 0},
        {"steps": 7},
        {"largest": 2},
        {"largest": 90},
        {"source": ""},
        {"source": 3},
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MetaMathQA(**options)


def test_before_a_level_and_after_the_end_it_says_so() -> None:
    env = MetaMathQA()
    for call in (env.content, lambda: env.step("1"), lambda: env.demonstrate(np.random.default_rng(0), 1.0, 1)):
        with pytest.raises(EnvironmentFault, match="reset"):
            call()
    env.reset(0, 0)
    env.step("x")
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.demonstrate(np.random.default_rng(0), 1.0, 1)


# Demonstrations


@pytest.mark.parametrize("source", ["generated", "gsm"])
def test_worked_answers_are_right_and_guesses_seldom(source: str) -> None:
    if source == "gsm":
        pytest.importorskip("reasoning_gym", reason="GSM-Symbolic comes with reasoning-gym")
    env, rng = MetaMathQA(source=source, steps=2), np.random.default_rng(2)
    guessed, told = 0, set()
    for seed in range(100):
        env.reset(seed, 0)
        demonstration = env.demonstrate(rng, 1.0, 3)
        told.add(demonstration.reasoning)
        assert env.step(demonstration.actions[0]).reward == 1.0
        env.reset(seed, 0)
        guessed += env.step(env.demonstrate(rng, 0.0, 3).actions[0]).info["success"]
    assert len(told) == 100
    assert guessed < 15


def test_worked_sums_are_stated_and_true() -> None:
    env, rng = MetaMathQA(steps=2), np.random.default_rng(3)
    for seed in range(100):
        env.reset(seed, 0)
        reasoning = env.demonstrate(rng, 1.0, 1).reasoning
        stated = re.findall(r"(\d+) ([-+*/]) (\d+) (?:=|is) (\d+)", reasoning)
        assert len(stated) == 2
        for left, operator, right, result in stated:
            a, b = int(left), int(right)
            assert {"+": a + b, "-": a - b, "*": a * b, "/": Fraction(a, b)}[operator] == int(result)


# Files of the real data


def rows(count: int = 60) -> list[dict[str, str]]:
    made = [
        {
            "query": f"What is {k} plus {k}?",
            "response": f"We add.\n{k} + {k} = {2 * k}\n#### {2 * k}\nThe answer is: {2 * k}",
            "original_question": f"What is {k // 2} doubled?",
        }
        for k in range(count)
    ]
    return made


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_file_is_played(tmp_path: Path) -> None:
    env = ragen2.make("metamathqa", source=str(write(tmp_path / "math.jsonl", rows())), attempts=2)
    assert isinstance(env, MetaMathQA)
    report = check_env(env)
    assert report.ok, str(report)
    text = env.reset(0, 0).text
    number = int(re.findall(r"\d+", text)[0])
    assert env.step(f"\\boxed{{{2 * number}}}").reward == 1.0
    env.reset(0, 0)
    reasoning = env.demonstrate(np.random.default_rng(0), 1.0, 1).reasoning
    assert f"{number} + {number} = {2 * number}" in reasoning
    assert "####" not in reasoning


def test_rephrasings_of_a_question_stay_in_one_split(tmp_path: Path) -> None:
    path = str(write(tmp_path / "math.jsonl", rows(200)))
    families: dict[str, set[int]] = {}
    for split in SPLITS:
        env = MetaMathQA(split, source=path)
        families[split] = {int(re.findall(r"\d+", problem.question)[0]) // 2 for problem in env._problems}
    assert sum(map(len, families.values())) == 100
    assert not families["train"] & (families["validation"] | families["test"])


def test_rows_that_cannot_be_used_are_dropped_and_counted(tmp_path: Path) -> None:
    bad: list[Any] = [
        {"query": "q1", "response": "no mark here"},
        {"query": "q2", "response": "The answer is: None"},
        {"query": "q3", "response": "The answer is: "},
        {"query": "q4", "response": "The answer is: " + "9" * 500},
        {"query": "q5"},
        {"query": "  ", "response": "The answer is: 1"},
        {"query": "q6", "response": None},
        {"query": "\ud800", "response": "The answer is: 1"},
        {"query": "q" * 9000, "response": "The answer is: 1"},
        rows(1)[0],
    ]
    found = read_metamath(write(tmp_path / "math.jsonl", [*rows(), *bad]))
    assert len(found.problems) == 60
    assert found.dropped == {
        "no gold answer": 4,
        "no query or response": 3,
        "question too long or no text": 2,
        "repeated question": 1,
    }
    env = MetaMathQA(source=str(tmp_path / "math.jsonl"))
    assert env.dropped == dict(found.dropped)


def test_parquet_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="parquet needs pyarrow")
    parquet.write_table(pyarrow.Table.from_pylist(rows()), tmp_path / "math.parquet")
    assert read_metamath(tmp_path / "math.parquet").problems == read_metamath(write(tmp_path / "math.jsonl", rows())).problems


@pytest.mark.parametrize("text", ["", "{", "[1]\n", '{"query": "a", "response": "b"}\n', "[" * 100_000])
def test_a_file_without_problems_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "math.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"math\.jsonl"):
        MetaMathQA(source=str(path))


def test_a_missing_file_and_an_empty_split_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        MetaMathQA(source=str(tmp_path / "none.jsonl"))
    path = str(write(tmp_path / "one.jsonl", rows(1)))
    only = split_of(read_metamath(path).problems[0].content)
    for split in SPLITS:
        if split != only:
            with pytest.raises(ConfigError, match="belongs to split"):
                MetaMathQA(split, source=path)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("x\n#### 5\nThe answer is: 5", "5"),
        ("The answer is: 5\nand more text", "5"),
        ("The answer is: 4. No. The answer is: 5", "5"),
        ("The answer is: \\frac{1}{2}", "\\frac{1}{2}"),
        ("The answer is: nan", None),
        ("5", None),
        ("The answer is: \ud800", None),
    ],
)
def test_gold_answers(response: str, expected: str | None) -> None:
    assert gold_answer(response) == expected


def test_formulas_need_math_verify_and_numbers_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise MissingDependency("math-verify", "math", "this test")

    monkeypatch.setattr(module, "require_math_verify", absent)
    MetaMathQA(source=str(write(tmp_path / "numbers.jsonl", rows())))
    formulas = [{"query": f"Root {k}?", "response": f"The answer is: {k}\\sqrt{{3}}"} for k in range(2, 40)]
    with pytest.raises(MissingDependency, match="math-verify"):
        MetaMathQA(source=str(write(tmp_path / "formulas.jsonl", formulas)))


def test_a_broken_checker_makes_the_episode_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("math_verify", reason="formulas are compared by math-verify")

    def broken(given: str, wanted: str) -> bool:
        raise EnvironmentFault("the formula checker broke off")

    formulas = [{"query": f"Root {k}?", "response": f"The answer is: {k}\\sqrt{{3}}"} for k in range(2, 40)]
    env = MetaMathQA(source=str(write(tmp_path / "formulas.jsonl", formulas)))
    assert env.concurrency > 1
    env.reset(0, 0)
    monkeypatch.setattr(module, "same_formula", broken)
    with pytest.raises(EnvironmentFault):
        env.step("\\sqrt{12}")
