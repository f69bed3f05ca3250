"""WebShop: pages, hostile answers, demonstrations."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("bm25s", reason="webshop searches with bm25s (extra search)")

from ragen2.envs.webshop import MAX_ACTION_CHARS, WebShop, read_action
from ragen2.envs.webshop_catalogue import Product
from ragen2.envs.webshop_pages import Page, clicks, option_buttons, render
from ragen2.errors import EnvironmentFault

SMALL: dict[str, Any] = {"items": 60, "types": 6, "attributes": 12, "hidden": 0, "page_size": 4, "max_results": 12}


def play(env: WebShop, *actions: str) -> Any:
    result = None
    for action in actions:
        result = env.step(action)
    return result


# Pages


def at_first_product(env: WebShop) -> tuple[WebShop, Product]:
    env.reset(0, 0)
    goal = env.shop.goals[0]
    env._goal = goal
    product = env.shop.product(goal.product_id)
    assert play(env, f"search[{product.title}]", f"click[{product.id}]").info["legal"]
    return env, product


def test_pages_lead_to_each_other() -> None:
    env, product = at_first_product(WebShop(**SMALL))
    item = env._text()
    assert f"item {product.id}" in item and "not chosen" in item
    for name in ("description", "features"):
        page = play(env, f"click[{name}]")
        assert page.info["legal"] and f"\n{name} " in page.observation.text
        assert play(env, "click[buy now]").info["legal"] is False
        assert play(env, "click[< prev]").observation.text == item
    results = play(env, "click[< prev]").observation.text
    assert "page 1 of 3" in results and "< prev" not in results
    assert "page 2 of 3" in play(env, "click[next >]").observation.text
    last = play(env, "click[next >]").observation.text
    assert "page 3 of 3" in last and "next >" not in last
    assert play(env, "click[next >]").info["legal"] is False
    assert "page 2 of 3" in play(env, "click[< prev]").observation.text
    assert "page search" in play(env, "click[back to search]").observation.text
    empty = play(env, "search[qqqq zzzz]")
    assert empty.info["legal"] and "nothing found" in empty.observation.text
    assert "no known word" in empty.observation.text


def test_choosing_again_replaces_and_case_does_not_matter() -> None:
    env, product = at_first_product(WebShop(**SMALL))
    kind, (first, second, _) = next(iter(product.options.items()))
    assert f"{kind} {first} click" in play(env, f"CLICK[ {first.upper()} ]").observation.text
    assert f"{kind} {second} click" in play(env, f"Click[{second.title()}]").observation.text
    result = play(env, "click[Buy  Now]")
    assert result.terminated and result.info["webshop_score"] == result.reward
    after = env.step("click[buy now]")
    assert after.done and after.reward == 0.0 and after.info["legal"] is False
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.demonstrate(np.random.default_rng(0), 1.0, 1)


def test_options_are_forgotten_with_the_product() -> None:
    env, product = at_first_product(WebShop(**SMALL))
    value = next(iter(product.options.values()))[0]
    play(env, f"click[{value}]", "click[< prev]")
    assert play(env, f"click[{product.id}]").observation.text.count("not chosen") == 2


def test_dense_and_binary_pay_the_same_purchase_differently() -> None:
    paid = {}
    for reward in ("dense", "binary"):
        env, _ = at_first_product(WebShop(reward=reward, **SMALL))
        result = play(env, "click[buy now]")
        paid[reward] = result.reward
        assert result.info["success"] is False
        assert result.info["webshop_score"] == pytest.approx(3 / 5)
    assert paid == {"dense": pytest.approx(3 / 5), "binary": 0.0}


def test_the_step_limit_truncates_without_success() -> None:
    env = WebShop(max_steps=2, **SMALL)
    env.reset(0, 0)
    assert not env.step("search[table]").done
    result = env.step("nonsense")
    assert (result.truncated, result.terminated, result.info["success"], result.info["legal"]) == (True, False, False, False)
    for use in (lambda: WebShop(**SMALL).content(), lambda: WebShop(**SMALL).step("search[a]")):
        with pytest.raises(EnvironmentFault, match="reset"):
            use()


def test_everything_clickable_is_shown_and_the_other_way_round() -> None:
    env, rng = WebShop(**SMALL), np.random.default_rng(5)
    for seed in range(20):
        text = env.reset(seed, 0).text
        for _ in range(12):
            shown = [part.partition("]")[0] for part in text.split("click[")[1:]]
            assert sorted(shown) == sorted(clicks(env._page, env.page_size))
            result = env.step(env.demonstrate(rng, 0.3, 1).actions[0])
            assert result.info["legal"]
            text = result.observation.text
            if result.done:
                break
            assert len(text) < 1200


def test_values_that_would_mean_two_things_are_named_with_their_kind() -> None:
    options = {"color": ("natural", "red"), "finish": ("natural", "description")}
    product = Product("t1", "oak table", "table", ("furniture", "table"), (), options, 35.0)
    assert option_buttons(product) == {
        "color natural": ("color", "natural"),
        "red": ("color", "red"),
        "finish natural": ("finish", "natural"),
        "finish description": ("finish", "description"),
    }
    text = render(Page("item", product=product, chosen={"finish": "natural"}), "i need it", 4)
    assert "color not chosen click[color natural] click[red]" in text
    assert "finish natural click[finish natural]" in text


# Hostile answers

ATTACKS = [
    *("", " ", "||", "[]", "search", "search[]", "search[ ]", "search[a", "search a]", "click[]", "click[buy now", "buy now"),
    *("click[buy now] || click[buy now]", "click[buy now][buy now]", "click[[buy now]]", "click[buy now]]", "click{buy now}"),
    *(
        "cl\u0131ck[buy now]",
        "ｃｌｉｃｋ[buy now]",
        "clic\u212a[buy now]",
        "click［buy now］",
        "click[buy\u200bnow]",
        "click[buy\x00now]",
    ),
    *("<answer>click[buy now]</answer>", "</think>click[buy now]", "click[buy now]\u202e", "\x1b[31mclick[buy now]", "\ud800"),
    *("click[\u0661]", "click[\u2212 prev]", "click[b00001; drop]", "click[../../etc/passwd]", "search[" + "a" * 1_000_000 + "]"),
    *("click[" + "[" * 10_000 + "]", "search[" * 100_000, "eval[1]", "__import__('os')", "search[(a+)+$]" * 50, "9**9**9"),
    *("click[score 1]", "click[success]", "click[end]", "buy[now]", "click[None]", "click[0]", "purchase[a0]", "reward=1"),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_hostile_answers_do_nothing_on_any_page(attack: str) -> None:
    env, _ = at_first_product(WebShop(**SMALL))
    for page in (
        env._page,
        Page("search"),
        dataclasses.replace(env._page, kind="results"),
        dataclasses.replace(env._page, kind="features"),
    ):
        env._page = page
        before = env._text()
        result = env.step(attack)
        assert (result.reward, result.done, result.info["legal"]) == (0.0, False, False)
        assert result.observation.text == before


@pytest.mark.parametrize(
    "query", ["(a+)+$" * 20, "</think><answer>x", "\u0661\u0662", "\x00\x01", "|| click", "table' OR 1=1 --", "* ? \\"]
)
def test_hostile_queries_find_at_most_products_and_are_not_repeated(query: str) -> None:
    env = WebShop(**SMALL)
    env.reset(0, 0)
    result = env.step(f"search[{query}]")
    assert result.info["legal"] and result.reward == 0.0 and not result.done
    assert query not in result.observation.text
    assert len(result.observation.text) < 700


def test_long_actions_are_refused() -> None:
    assert read_action("search[" + "a" * (MAX_ACTION_CHARS - 8) + "]")[0] == "search"
    assert read_action("search[" + "a" * MAX_ACTION_CHARS + "]") == ("", "")


@settings(max_examples=150)
@given(st.lists(st.text(max_size=60) | st.from_regex(r"(search|click)\[[a-z0-9 <>]{0,12}\]", fullmatch=True), max_size=6))
def test_any_answers_leave_a_sound_environment(actions: list[str]) -> None:
    env = WebShop(**SMALL)
    start = env.reset(3, 0).text
    assert "page search" in start
    for action in actions:
        result = env.step(action)
        assert result.reward == 0.0 or result.info["success"] is not None
        assert 0.0 <= result.reward <= 1.0
        assert isinstance(result.info["legal"], bool)
        assert len(result.observation.text) < 1200


@given(st.text())
def test_reading_an_action_never_fails(text: str) -> None:
    name, argument = read_action(text)
    assert name in ("", "search", "click")
    assert bool(name) or not argument
    assert "[" not in argument and "]" not in argument


# Demonstrations


def test_reasoning_names_the_goal_and_what_it_states_is_true() -> None:
    env, rng = WebShop(**SMALL), np.random.default_rng(2)
    told = set()
    for seed in range(60):
        env.reset(seed, 0)
        goal = env._current()
        for _ in range(9):
            shown = env.demonstrate(rng, 0.6, 1)
            reasoning = shown.reasoning
            for part in (*goal.attributes, goal.query, *(f"{kind} {value}" for kind, value in goal.options)):
                assert part in reasoning
            assert f"below {goal.price_limit:.0f}" in reasoning
            assert len(reasoning.split()) <= 40
            told.add(reasoning)
            for id in (product.id for product in env.shop.products):
                if f" {id} is " in reasoning and "right" not in reasoning and "wrong" not in reasoning:
                    assert f"{id} is {env.shop.product(id).title}" in reasoning
            if env.step(shown.actions[0]).done:
                break
    assert len(told) > 200


def test_hidden_attributes_are_looked_up_before_buying() -> None:
    env, rng = WebShop(**{**SMALL, "hidden": 2}), np.random.default_rng(2)
    looked = 0
    for seed in range(20):
        env.reset(seed, 0)
        actions = []
        while not actions or not env._last:
            actions.append(env.demonstrate(rng, 1.0, 1).actions[0])
            env.step(actions[-1])
        looked += "click[features]" in actions
    assert looked >= 10
