"""Comparing short answers: exact match, F1, empty texts, numbers and units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen2.envs.answer_match import MAX_CHARS, f1, is_exact, normalise, score_answer


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("accra", "Accra"),
        ("The Gambia", "Gambia"),
        ("2908 metres", "2,908 m"),
        ("35.3 million", "35,300,000"),
        ("72", "72.0"),
        ("10 percent", "10%"),
        ("Cote d\u2019Ivoire", "Côte d'Ivoire"),
        ("266,000 square kilometres", "266000 km2"),
        ("\u22125 C", "-5 C"),
        ("gh", ".gh"),
        ("\uff11\uff12", "12"),
        ("007", "7"),
    ],
)
def test_the_same_answer_written_otherwise_is_exact(answer: str, gold: str) -> None:
    assert is_exact(answer, [gold])
    assert is_exact(gold, [answer])


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("-5", "5"),
        ("2,908 km", "2,908 m"),
        ("3.5", "35"),
        ("1,234", "1.234"),
        ("18-27", "1827"),
        ("72", "72.5"),
        ("Guinea", "Guinea-Bissau"),
        ("5 million", "5"),
        ("\u0663", "3"),
        ("Niger", "Nigeria"),
        ("Accra or Lagos", "Accra"),
    ],
)
def test_another_answer_is_not_exact(answer: str, gold: str) -> None:
    assert not is_exact(answer, [gold])


@pytest.mark.parametrize("empty", ["", " ", "the", "A, an: the!", "...", "\u0301", "\U0001f600", "x" * (MAX_CHARS + 1)])
def test_what_is_empty_after_normalising_matches_nothing(empty: str) -> None:
    assert normalise(empty) == ""
    for gold in (empty, "the", "", "Accra"):
        assert score_answer(empty, [gold]) == (0.0, False)
    assert score_answer("Accra", [empty]) == (0.0, False)


def test_f1_by_hand() -> None:
    # 2 shared words of 3 and 4: precision 2/3, recall 1/2
    assert f1("god bless ghana", "god bless our homeland") == pytest.approx(4 / 7)
    assert f1("accra accra accra", "accra") == pytest.approx(0.5)
    assert f1("yes it is", "yes") == 0.0
    assert f1("no", "yes") == 0.0


def test_f1_below_three_tenths_earns_nothing_and_partial_is_no_success() -> None:
    gold = "one"
    assert score_answer("one two three four five", [gold]) == (pytest.approx(1 / 3), False)
    assert score_answer("one two three four five six", [gold]) == (0.0, False)
    assert score_answer("bless god", ["God Bless"]) == (1.0, False)
    assert score_answer("x", ["y", "X"]) == (1.0, True)
    assert score_answer("x", []) == (0.0, False)


@given(st.text(max_size=60), st.text(max_size=60))
def test_scores_are_bounded_symmetric_and_agree(answer: str, gold: str) -> None:
    reward, exact = score_answer(answer, [gold])
    assert reward == 0.0 or 0.3 <= reward <= 1.0
    assert f1(answer, gold) == f1(gold, answer)
    assert exact == (normalise(answer) == normalise(gold) != "")
    assert not exact or (reward == 1.0 and f1(answer, gold) == 1.0)


@given(st.text(max_size=80))
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert not set(once.split()) & {"a", "an", "the"}
