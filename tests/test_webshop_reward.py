"""WebShop: the score of a purchase."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("bm25s", reason="webshop searches with bm25s (extra search)")

from ragen2.envs.webshop_catalogue import Product
from ragen2.envs.webshop_goals import Goal
from ragen2.envs.webshop_reward import has_attribute, score_purchase, type_factor

TABLE = Product(
    id="t1",
    title="sturdy oak table",
    query="table",
    categories=("furniture", "table"),
    attributes=("sturdy", "easy to clean"),
    options={"color": ("red", "blue"), "size": ("small", "large")},
    price=35.0,
    description="a flat top on legs, scratch proof",
    features=("fast assembly",),
)
GOAL = Goal(
    instruction="i need a sturdy table with color red and size large, and price lower than 40 dollars",
    product_id="t1",
    type_words=frozenset({"table"}),
    query="table",
    categories=("furniture", "table"),
    attributes=("sturdy", "easy to clean"),
    options=(("color", "red"), ("size", "large")),
    price_limit=40.0,
)
RIGHT = {"color": "red", "size": "large"}


# Reward


@pytest.mark.parametrize(
    ("product", "chosen", "goal", "value"),
    [
        ({}, RIGHT, {}, 1.0),
        ({}, {"color": "RED ", "size": " Large"}, {}, 1.0),
        ({}, {"color": "red"}, {}, 4 / 5),
        ({}, {}, {}, 3 / 5),
        ({}, {"color": "blue", "size": "large"}, {}, 4 / 5),
        ({}, {"color": "large", "size": "red"}, {}, 3 / 5),
        ({"price": 40.0}, RIGHT, {}, 1.0),
        ({"price": 40.01}, RIGHT, {}, 4 / 5),
        ({"price": 900.0}, RIGHT, {"price_limit": None}, 1.0),
        ({}, RIGHT, {"attributes": ("sturdy", "soft")}, 4 / 5),
        ({}, RIGHT, {"attributes": ("scratch proof", "fast assembly")}, 1.0),
        ({}, RIGHT, {"attributes": ("scratch assembly", "fast proof")}, 3 / 5),
        ({}, {}, {"options": ()}, 1.0),
        ({"title": "sturdy oak chair", "query": "chair", "categories": ("furniture", "chair")}, RIGHT, {}, 0.0),
        ({}, RIGHT, {"options": (("", "red"), ("", "large"))}, 1.0),
    ],
)
def test_scores_worked_out_by_hand(product: dict[str, Any], chosen: dict[str, str], goal: dict[str, Any], value: float) -> None:
    score = score_purchase(dataclasses.replace(TABLE, **product), chosen, dataclasses.replace(GOAL, **goal))
    assert score.value == pytest.approx(value, abs=1e-12)
    assert score.success is (score.value == 1.0)


@pytest.mark.parametrize(
    ("title", "query", "categories", "wanted", "factor"),
    [
        ("oak table", "desk", ("home",), "table", 1.0),
        ("oak chair", "table", ("furniture", "table"), "table", 0.0),
        ("round table", "desk", ("home",), "table lamp bulb shade cord", 0.5),
        ("round table", "table", ("home",), "table lamp bulb shade cord", 1.0),
        ("round table", "desk", ("furniture", "table"), "table lamp bulb shade cord", 1.0),
        ("round table", "desk", ("furniture", "desk"), "table lamp bulb shade cord", 0.5),
        ("round table", "table", ("furniture", "table"), "table a b c d e f g h i j k", 0.1),
        ("round tables", "table", ("furniture", "table"), "table", 0.0),
        ("anything", "desk", ("home",), "", 0.5),
        ("anything", "table", ("home",), "", 1.0),
    ],
)
def test_type_factor(title: str, query: str, categories: tuple[str, ...], wanted: str, factor: float) -> None:
    product = dataclasses.replace(TABLE, title=title, query=query, categories=categories)
    assert type_factor(product, dataclasses.replace(GOAL, type_words=frozenset(wanted.split()))) == factor


def test_two_empty_queries_are_no_match() -> None:
    product = dataclasses.replace(TABLE, title="round table", query="", categories=())
    goal = dataclasses.replace(GOAL, query="", type_words=frozenset({"table", "a", "b", "c", "d"}))
    assert type_factor(product, goal) == 0.5


@given(
    st.lists(st.sampled_from(["sturdy", "soft", "red", "easy to clean"]), max_size=4, unique=True),
    st.dictionaries(st.sampled_from(["color", "size"]), st.sampled_from(["red", "blue", "small", "large"])),
    st.lists(st.tuples(st.sampled_from(["", "color", "size"]), st.sampled_from(["red", "large"])), max_size=2),
    st.none() | st.floats(0, 100),
)
def test_score_properties(
    attributes: list[str], chosen: dict[str, str], options: list[tuple[str, str]], limit: float | None
) -> None:
    goal = dataclasses.replace(GOAL, attributes=tuple(attributes), options=tuple(options), price_limit=limit)
    score = score_purchase(TABLE, chosen, goal)
    assert 0.0 <= score.value <= 1.0
    assert score.success is (score.value == 1.0)
    assert score.matched <= score.wanted == len(attributes) + len(options) + 1
    more = score_purchase(TABLE, {**chosen, **dict(options)}, goal) if all(kind for kind, _ in options) else score
    assert more.price == score.price and more.attributes == score.attributes


@given(st.text(max_size=30))
def test_attribute_matching_takes_any_text(text: str) -> None:
    assert has_attribute(TABLE, text) in (True, False)
    assert not has_attribute(TABLE, "")
    assert not has_attribute(TABLE, "!!!")
