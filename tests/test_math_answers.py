"""Answers of mathematics: what equals the gold answer, what does not, and hostile answers."""

from __future__ import annotations

import os
import signal
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen2.envs import math_checker
from ragen2.envs.math_answers import is_formula, judge, needs_formulas
from ragen2.envs.math_checker import ask, formula_child, same_formula
from ragen2.envs.math_numbers import read_number
from ragen2.envs.math_text import tidy
from ragen2.errors import EnvironmentFault, MissingDependency


def never(given: str, wanted: str) -> bool:
    raise AssertionError(f"math-verify was asked about {given!r} and {wanted!r}")


def right_by_numbers(answer: str, gold: str) -> bool:
    return judge(answer, gold, never).right


# Numbers


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(
            ("72", text)
            for text in ("72", "72.0", "72.", " 72 ", "$72", "\\$72", "\\boxed{72}", "$\\boxed{72}$.", "+72", "072", "72.00")
        ),
        *(("72", text) for text in ("$$72$$", "\\(72\\)", "\\[72\\]", "\\text{72}", "x=72", "n = 72", "144/2", "\\frac{144}{2}")),
        *(("1000", text) for text in ("1,000", "1000", "1{,}000", "1,\\!000", "$1,000.00")),
        *(("1,234,567", text) for text in ("1234567", "1,234,567.0")),
        *(("1/2", text) for text in ("\\frac{1}{2}", "\\dfrac{1}{2}", "\\tfrac12", ".5", "0.5", "2/4", "0.50")),
        *((".5", text) for text in ("1/2", "0.5")),
        *(("-3", text) for text in ("\u22123", "-3.0", "- 3", "-6/2")),
        *(("-5", text) for text in ("-$5", "$-5", "-5.")),
        *(("3/2", text) for text in ("1 1/2", "1\\frac{1}{2}", "1.5")),
        *(("-3/2", text) for text in ("-1 1/2", "-\\frac{3}{2}", "\\frac{-3}{2}")),
        *(("50", text) for text in ("50%", "50\\%", "50 %")),
        *(("50\\%", text) for text in ("50", "50%")),
        *(("5\\text{ cm}", text) for text in ("5", "5\\text{ cm}", "5 \\text{cm}", "5\\mathrm{ cm}")),
        *(("90^\\circ", text) for text in ("90", "90^{\\circ}")),
    ],
)
def test_the_same_number_written_otherwise_is_right(gold: str, answer: str) -> None:
    assert right_by_numbers(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *(
            ("10", text)
            for text in ("9 or 10", "9, 10", "10 or 9", "10 10", "{9, 10}", "\\{10\\}", "(10)", "10,", "10;", "~10", "<=10")
        ),
        *((".5", text) for text in ("50%", "50\\%", "0.49999999999", "5", "1/3")),
        *(("50", text) for text in (".5", "0.5%", "5000%", "50%%")),
        *(
            ("5", text)
            for text in ("\\pm 5", "\u00b15", "+-5", "--5", "-5", "5!", "5^1", "5*1", "10-5", "5e0", "5_", "|5|", "five")
        ),
        *(("2021", text) for text in ("\\pm2021", "\u00b12021")),
        *(("1:00", text) for text in ("12:00", "01:00", "1")),
        *(("1/2006!", text) for text in ("1/2004!", "1/2006")),
        *(("n=1,2,3", text) for text in ("n=2,3,4", "1,2", "n=1,2,3,4")),
        *(("72", text) for text in ("8*9", "70+2", "1e2", "7_2", "0x48", "7 2", "720", "72/0", "72/1/1", "7,2", "72,0", "7.2e1")),
        *(("1000", text) for text in ("1,00", "10,00", "1,0000", "1.000", ",1000", "1,000,")),
        *(("12", text) for text in ("1 2", "12 1/2", "12/2", "twelve", "XII", "12 apples or 13", "1212")),
        *(("1/3", text) for text in ("0.333333", "0.3333333333333333", ".33", "33.3%")),
        *(
            ("3", text)
            for text in ("\u0663", "\uff13", "\u2162", "\u00b3", "3\u200b", "\u202e3", "3\x00", "\ud800", "3\n4", "3||3")
        ),
        *(("5\\text{ cm}", text) for text in ("5\\text{ m}", "5%", "50")),
        *(("0", text) for text in ("", " ", ".", "-", "$", "\\boxed{}", "\\text{}", "nan", "None", "False", "0/0", "1/0")),
    ],
)
def test_what_is_not_that_number_is_wrong(gold: str, answer: str) -> None:
    assert not right_by_numbers(answer, gold)


BOMBS = (
    *("9**9**9", "10**10**10", "2003^{2002^{2001}}", "9^9^9", "2^{2^{2^{2}}}", "(9^9)^(9^9)", "99999999999999999999!", "9!!!!!!"),
    *(
        "1/2004!",
        "\\sum_{n=1}^{99999999} n",
        "\\prod_{n=1}^{9999} n",
        "\\int_0^1 x^x dx",
        "\\binom{99999}{5000}",
        "\\lim_{x\\to 0} x",
    ),
    *(
        "__import__('os').system('true')",
        "().__class__.__base__.__subclasses__()",
        "eval('5')",
        "exec('5')",
        "lambda: 5",
        "5 if 5 else 0",
    ),
    *(
        "9" * 1_000_000,
        "(" * 100_000,
        "\\frac{" * 50_000,
        "\\boxed{" * 50_000 + "5",
        "$" * 100_000,
        "-" * 100_000 + "5",
        " " * 10**6 + "5",
    ),
    *(
        "1," * 500_000,
        "1,000" * 100_000,
        "\\left" * 30_000,
        "\\sqrt{" * 30 + "5" + "}" * 30,
        "a" * 100_000 + "!",
        "0" * 199 + "x",
    ),
    *(
        "<answer>5</answer>",
        "</think><answer>5</answer>",
        "5 || 5",
        "The answer is: 5",
        "5 # right",
        "5; DROP TABLE",
        "\\input{/etc/passwd}",
    ),
)


@pytest.mark.parametrize("text", BOMBS, ids=lambda text: ascii(text[:24]))
@pytest.mark.parametrize("gold", ["5", "x+5", "5\\sqrt{3}", "(5,5)"])
def test_bombs_earn_nothing_and_reach_no_library(text: str, gold: str) -> None:
    asked: list[str] = []
    judged = judge(text, gold, lambda given, wanted: bool(asked.append(given)))
    assert not judged.right
    assert all(is_formula(given) and len(given) <= 200 for given in asked)
    assert not any(bad in given for given in asked for bad in ("!", "**", "sum", "prod", "int", "binom", "lim", "_"))


@given(st.fractions(-(10**9), 10**9, max_denominator=10_000) | st.integers(-(10**12), 10**12).map(Fraction))
def test_numbers_read_back(value: Fraction) -> None:
    assert read_number(f"{value.numerator}/{value.denominator}") == value
    if value.denominator == 1:
        assert read_number(f"{value.numerator:,}") == value
        assert read_number(f"{value.numerator}.000") == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**6), max_value=10**6))
def test_decimals_are_exact(value: object) -> None:
    assert read_number(f"{value:f}") == Fraction(str(value))


@given(st.text(max_size=220) | st.text(alphabet="0123456789.,/-+$%\\frac{} ", max_size=40))
def test_any_text_is_judged(text: str) -> None:
    judged = judge(text, "5", never)
    if judged.right:
        assert judged.legal
        written = tidy(text)
        assert written is not None
        assert "5" in written.text or "/" in written.text or "\\frac" in written.text


# Words and structures, without the library


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("\\text{Monday}", "monday"),
        ("Monday", "\\text{Monday}."),
        ("\\text{(A)}", "(A)"),
        ("(3,5)", "( 3, 5.0)"),
        ("2,3", "3, 2"),
        ("\\{1,2\\}", "\\{2,1\\}"),
        ("[0,1)", "[0, 1)"),
        ("x=5", "5"),
        ("5", "x = 5"),
        ("\\pm 3", "\\pm3"),
        ("12:00", "12:00"),
        ("n=1,2,3", "1, 2, 3"),
        ("x > 5", "x>5"),
    ],
)
def test_words_and_lists_are_right_without_the_library(gold: str, answer: str) -> None:
    assert right_by_numbers(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("(3,5)", "(5,3)"),
        ("(3,5)", "[3,5]"),
        ("(3,5)", "3,5"),
        ("(3,5)", "(3,5,5)"),
        ("2,2,3", "2,3,3"),
        ("[0,1)", "[0,1]"),
        ("(0,1)", "[0,1)"),
        ("Monday", "Sunday or Monday"),
        ("yes", "no"),
        ("x>5", "x<5"),
        ("x+5", "\\pm x+5"),
    ],
)
def test_other_words_and_lists_are_wrong(gold: str, answer: str) -> None:
    assert not right_by_numbers(answer, gold)


def test_which_golds_need_the_library() -> None:
    assert [gold for gold in ("5", "1/2", "Monday", "(3,5)", "50\\%", "12:00") if needs_formulas(gold)] == []
    formulas = ["\\sqrt{2}", "x^2+1", "(3,\\pi)", "2\\pi", "\\frac{\\sqrt{3}}{2}"]
    assert [gold for gold in formulas if needs_formulas(gold)] == formulas


def test_formulas_are_bounded() -> None:
    for text in ("x^2", "x^{99}", "(x+1)^3", "\\frac{x}{y}", "2\\pi", "x^{n+1}", "x^{-2}"):
        assert is_formula(text), text
    for text in (
        "x^{100}",
        "x^{y^2}",
        "x^2^2",
        "x^",
        "x^(9)",
        "x^{9",
        "1234567890",
        "abc",
        "x or y",
        "a=b",
        "a<b",
        "\\foo",
        "x**2",
        "()",
    ):
        assert not is_formula(text), text
    assert not is_formula("x^2+" * 5 + "1")


# The library, in its child process


@pytest.fixture(scope="module")
def needs_library() -> None:
    pytest.importorskip("math_verify", reason="formulas are compared by math-verify")


@pytest.mark.usefixtures("needs_library")
@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("\\frac{\\sqrt{2}}{2}", "\\frac{1}{\\sqrt{2}}", True),
        ("x^2+2x+1", "(x+1)^2", True),
        ("2\\sqrt{3}", "\\sqrt{12}", True),
        ("3\\pi", "\\pi \\cdot 3", True),
        ("(1,\\sqrt{8})", "(1, 2\\sqrt{2})", True),
        ("\\sqrt{16}", "4", True),
        ("y = 2x+2", "2(x+1)", True),
        ("x", "y", False),
        ("\\sqrt{2}", "1.414214", False),
        ("\\sqrt{2}", "\\sqrt{3}", False),
        ("2\\sqrt{3}", "2\\sqrt{3} or 4", False),
        ("x^2+1", "x^2", False),
        ("\\pi", "3.14159265", False),
        ("(1,\\sqrt{8})", "(2\\sqrt{2}, 1)", False),
        ("\\sqrt{2}", "\\sqrt{", False),
        ("x+1", "}{", False),
    ],
)
def test_formulas(gold: str, answer: str, right: bool) -> None:
    assert judge(answer, gold, same_formula).right is right


@pytest.mark.usefixtures("needs_library")
def test_a_hanging_formula_ends_with_its_child_and_the_next_is_answered() -> None:
    checker = formula_child(seconds=0.5)
    try:
        assert ask(checker, "(((2^{99})^{99})^{99})^{99}", "x+1") is False
        assert ask(checker, "x+x", "2x") is True
        child = checker._child
        assert child is not None
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert ask(checker, "x+x", "2x") is True
    finally:
        checker.close()
        checker.close()
    assert checker._child is None


def script(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "child.py"
    path.write_text("import json, sys, time\n" + body)
    return path


READY = "print(json.dumps({'ready': True}), flush=True)\n"


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("sys.exit(3)\n", "formula checker ended or was not ready"),
        (READY + "sys.stdin.readline()\nsys.exit(3)\n", "ended with status 3"),
        (READY + "sys.stdin.readline()\ntime.sleep(60)\n", "gave no answer in 0.5 s"),
        (READY + "sys.stdin.readline()\nprint('x' * 100000, flush=True)\ntime.sleep(60)\n", "formula checker said"),
        (READY + "sys.stdin.readline()\nprint('no json', flush=True)\n", "no reply"),
        (READY + "sys.stdin.readline()\nprint(json.dumps({'odd': 1}), flush=True)\n", "no verdict"),
    ],
)
def test_a_child_that_fails_makes_the_episode_invalid(
    body: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(math_checker, "_PROGRAM", script(tmp_path, body))
    checker = formula_child(wall_seconds=0.5)
    try:
        with pytest.raises(EnvironmentFault, match=match):
            ask(checker, "x", "x+1")
    finally:
        checker.close()


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.setattr(math_checker.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"ragen2\[math\]"):
        math_checker.require_math_verify()
