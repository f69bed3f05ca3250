"""WebShop: the generated shop, its goals, splits, options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("bm25s", reason="webshop searches with bm25s (extra search)")

from processes import outputs_under_hash_seeds

import ragen2
from ragen2.envs import check_env
from ragen2.envs.splits import SPLITS, split_of, validation_seeds
from ragen2.envs.webshop import WebShop
from ragen2.envs.webshop_build import read_nouns, read_senses, short_gloss
from ragen2.envs.webshop_catalogue import ShopSettings, generate_products, shop_words
from ragen2.envs.webshop_goals import GeneratedGoals
from ragen2.envs.webshop_pages import option_buttons
from ragen2.envs.webshop_reward import score_purchase
from ragen2.envs.webshop_search import MAX_QUERY_WORDS, ShopSearch
from ragen2.envs.webshop_solver import best_query, fits, right_options
from ragen2.errors import ConfigError, MissingDependency, UnknownName

SMALL: dict[str, Any] = {"items": 60, "types": 6, "attributes": 12, "hidden": 0, "page_size": 4, "max_results": 12}


# The generated shop


@pytest.mark.parametrize("options", [{}, SMALL])
def test_every_goal_of_the_generated_shop_can_be_bought_for_1(options: dict[str, Any]) -> None:
    """All goals: the product for which it was written scores 1, and a search that the solver knows finds one that does."""
    env = WebShop(**options)
    shop = env.shop
    step = 1 if options else 7
    for index in range(0, len(shop.goals), step):
        goal = shop.goals[index]
        product = shop.product(goal.product_id)
        chosen = right_options(product, goal)
        assert chosen is not None and chosen == dict(goal.options)
        assert score_purchase(product, chosen, goal).value == 1.0
    for index in range(0, len(shop.goals), 27 * (1 if options else 5)):
        goal = shop.goals[index]
        found = shop.search.find(best_query(goal, shop, env.max_results), env.max_results)
        assert any(fits(shop.products[place], goal) for place in found)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, SMALL])
def test_every_goal_is_reached_by_play(options: dict[str, Any]) -> None:
    """Every goal of the packaged shop, played action by action by the solver, in at most 15 actions with reward 1."""
    rng = np.random.default_rng(0)
    env = WebShop(**options)
    for index in range(len(env.shop.goals)):
        env.reset(0, 0)
        env._goal = env.shop.goals[index]
        result = None
        for _ in range(15):
            result = env.step(env.demonstrate(rng, 1.0, 1).actions[0])
            if result.done:
                break
        assert result is not None and result.done and result.reward == 1.0, env.shop.goals[index]


@pytest.mark.parametrize("options", [{}, SMALL, {**SMALL, "hidden": 2}, {"reward": "binary", "items": 1, "types": 1}])
def test_demonstrated_purchases_succeed(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    for split in SPLITS:
        env = WebShop(split, **options)
        for seed in range(12):
            env.reset(seed, seed)
            results = []
            while not results or not results[-1].done:
                results.append(env.step(env.demonstrate(rng, 1.0, 1).actions[0]))
                assert len(results) <= 15
            assert results[-1].info["success"] is True
            assert results[-1].reward == 1.0
            assert all(result.info["legal"] for result in results)
            assert all(result.reward == 0.0 for result in results[:-1])
            if options == SMALL:
                assert len(results) <= 9


def test_products_are_told_apart_and_bounded() -> None:
    products = generate_products(ShopSettings(items=300, types=30, attributes=20))
    assert len({product.id for product in products}) == 300
    assert len({(product.query, product.attributes) for product in products}) == 300
    for product in products:
        assert 5 <= product.price < 91 and product.price % 10
        assert len(product.attributes) == 3
        assert [len(values) for values in product.options.values()] == [3, 3]
        assert sum(attribute in product.title.split() for attribute in product.attributes) == 2
        assert len(option_buttons(product)) == 6
    assert {product.id for product in generate_products(ShopSettings(items=100))} == {
        f"{c}{n}" for c in "abcdefghij" for n in range(10)
    }
    assert generate_products(ShopSettings(seed=1)) != generate_products(ShopSettings(seed=2))


def test_words_are_many_and_clean() -> None:
    found = shop_words()
    names = [kind.name for kind in found.types]
    assert len(names) == len(set(names)) >= 200
    assert len(found.attributes) == len(set(found.attributes)) >= 50
    values = [value for kind in found.options.values() for value in kind]
    assert not set(values) & (set(found.attributes) | set(names))
    assert all(kind.gloss and len(kind.gloss) <= 140 for kind in found.types)
    assert all(name in found.options for kind in found.types for name in kind.option_kinds)


def test_glosses_are_cut_at_a_word() -> None:
    assert short_gloss('a seat for one; "he sat"; more') == "a seat for one"
    assert short_gloss("word " * 100) == "word " * 27 + "word"


def test_generated_goals_are_distinct_and_behave_as_a_sequence() -> None:
    products = generate_products(ShopSettings(items=20, types=4, attributes=8))
    goals = GeneratedGoals(products)
    assert len(goals) == 20 * 4 * 9 * 3 == len(list(goals))
    assert goals[-1] == goals[len(goals) - 1]
    assert [goal.instruction for goal in goals[:3]] == [goals[index].instruction for index in range(3)]
    with pytest.raises(IndexError):
        goals[len(goals)]
    own: dict[str, set[tuple[Any, ...]]] = {}
    for goal in goals:
        parts = (goal.type_words, goal.query, goal.categories, goal.attributes, goal.options, goal.price_limit)
        own.setdefault(goal.content, set()).add(parts)
    assert all(len(parts) == 1 for parts in own.values())


def test_search_ranks_the_title_first_and_bounds_the_query() -> None:
    search, products = WebShop(**SMALL).shop.search, WebShop(**SMALL).shop.products
    for place in range(0, 60, 7):
        assert products[search.find(products[place].title, 5)[0]].title == products[place].title
    assert search.find("", 5) == search.find("zzzz qqqq", 5) == ()
    assert len(search.known_words(" ".join(product.description for product in products))) == MAX_QUERY_WORDS
    assert search.find("table " * 50, 5) == search.find("TABLE", 5)


def test_without_bm25s_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingDependency, match=r"ragen2\[search\]"):
        ShopSearch(generate_products(ShopSettings(items=3)))


def test_the_build_reads_wordnets_files_and_refuses_a_folder_without_them(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(
        "  1 licence\n"
        "00000001 03 n 02 seat 0 sitting_place 1 001 ~ 00000002 n 0000 | furniture for sitting  \n"
        '00000002 06 n 01 chair 0 002 @ 00000001 n 0000 + 00000009 v 0101 | a seat for one; "he sat"  \n'
    )
    (tmp_path / "index.noun").write_text("  1 licence\nchair n 2 1 @ 2 1 00000002 00000007  \n")
    nouns = read_nouns(tmp_path)
    assert nouns["00000001"].words == ("seat", "sitting_place") and nouns["00000001"].above == ()
    assert nouns["00000002"].above == ("00000001",)
    assert short_gloss(nouns["00000002"].gloss) == "a seat for one"
    assert read_senses(tmp_path / "index.noun") == {"chair": ("00000002", "00000007")}
    with pytest.raises(ConfigError, match=r"index\.adj is not there"):
        read_senses(tmp_path / "index.adj")


# Splits and seeds


def test_levels_repeat_and_belong_to_their_split() -> None:
    contents: dict[str, set[str]] = {}
    for split in SPLITS:
        env, twin = WebShop(split, **SMALL), WebShop(split, **SMALL)
        contents[split] = set()
        for seed in range(200):
            assert env.reset(seed, 0).text == twin.reset(seed, 9).text
            assert split_of(env.content()) == split
            contents[split].add(env.content())
    assert not contents["train"] & (contents["validation"] | contents["test"])
    assert not contents["validation"] & contents["test"]
    assert len(validation_seeds(WebShop("validation", **SMALL), 512)) == 512


_DIGEST = """
import hashlib, numpy as np
from ragen2.envs.webshop import WebShop
seen = hashlib.sha256()
for options in ({}, {"items": 40, "types": 8, "attributes": 12, "page_size": 4}):
    env = WebShop(**options)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        seen.update(env.reset(seed, 0).text.encode())
        for _ in range(12):
            shown = env.demonstrate(rng, 0.6, 1)
            result = env.step(shown.actions[0])
            seen.update(f"{shown!r}{result!r}".encode())
            if result.done:
                break
print(seen.hexdigest())
"""


def test_episodes_are_the_same_in_any_process() -> None:
    assert len(outputs_under_hash_seeds(_DIGEST)) == 1


def test_registered_and_sound() -> None:
    tried: list[dict[str, Any]] = [{}, SMALL, {**SMALL, "reward": "binary"}, {**SMALL, "max_steps": 3}]
    for options in tried:
        report = check_env(ragen2.make("webshop", **options))
        assert report.ok, str(report)
    assert len(WebShop(**SMALL).instructions.split()) <= 80
    assert WebShop.multi_action is False


@pytest.mark.parametrize(
    "options",
    [
        *({"items": 0}, {"items": 10**6}, {"types": 0}, {"attributes": 2}, {"attributes": 1000}, {"hidden": 3}),
        *({"page_size": 0}, {"max_steps": 0}, {"max_results": 0}, {"shop_seed": -1}, {"instruction_files": ("x.json",)}),
        *({"items_file": "no such file.json"}, {"items": 500, "types": 1, "attributes": 5}, {"items": 2.5}),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WebShop(**options)
    with pytest.raises(UnknownName):
        WebShop(reward="sparse")
