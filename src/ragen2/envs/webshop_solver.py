"""What a buyer who knows the shop does next: search, open a product that fits, look, choose the options, buy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ragen2.envs.webshop_catalogue import Product
from ragen2.envs.webshop_goals import Goal
from ragen2.envs.webshop_pages import (
    BACK,
    BUY,
    DESCRIPTION,
    FEATURES,
    NEXT,
    PREV,
    Page,
    clicks,
    listed,
    option_buttons,
    pages_of,
)
from ragen2.envs.webshop_reward import has_attribute, score_purchase, words
from ragen2.envs.webshop_shop import Shop


@dataclass(frozen=True)
class Plan:
    """The next action and why: `why` names a situation of `webshop_words`, `about` the product, `say` words to tell it with."""

    why: str
    argument: str
    about: Product | None = None
    say: str = ""

    @property
    def action(self) -> str:
        return f"search[{self.argument}]" if self.why in ("search", "try search") else f"click[{self.argument}]"


def fits(product: Product, goal: Goal) -> bool:
    """Whether buying the product with the right options scores 1."""
    return right_options(product, goal) is not None and score_purchase(product, right_options(product, goal) or {}, goal).success


def right_options(product: Product, goal: Goal) -> dict[str, str] | None:
    """The options that the goal asks for, by kind; None where the product does not have them."""
    chosen: dict[str, str] = {}
    for wanted, value in goal.options:
        kinds = [kind for kind, values in product.options.items() if value in values and wanted in ("", kind)]
        free = [kind for kind in kinds if kind not in chosen]
        if not free:
            return None
        chosen[free[0]] = value
    return chosen


def plan(page: Page, goal: Goal, shop: Shop, looked: Collection[str], page_size: int, max_results: int) -> Plan:
    """The expert's next action. `looked` are ids of products whose features were read."""
    if page.kind == "search":
        return Plan("search", best_query(goal, shop, max_results))
    if page.kind == "results":
        return _plan_results(page, goal, page_size)
    if page.product is None or page.kind in (DESCRIPTION, FEATURES):
        return Plan("features" if page.kind == FEATURES else "back", PREV, page.product, _seen_features(page, goal))
    return _plan_item(page, page.product, goal, looked)


def guess(page: Page, goal: Goal, shop: Shop, page_size: int, rng: np.random.Generator) -> Plan:
    """A random action that the page allows."""
    if page.kind == "search":
        own = [*goal.attributes, *sorted(goal.type_words)]
        other = words(shop.products[int(rng.integers(len(shop.products)))].title)
        pool = own if rng.random() < 0.7 else other
        return Plan("try search", " ".join(pool[index] for index in sorted(rng.permutation(len(pool))[:2].tolist())))
    offered = clicks(page, page_size)
    return Plan("try click", offered[int(rng.integers(len(offered)))], page.product)


def best_query(goal: Goal, shop: Shop, max_results: int) -> str:
    """Attributes and query of the goal where they find a product that fits, else the title that the goal was written for."""
    kind = goal.query or " ".join(sorted(goal.type_words))
    query = " ".join([*goal.attributes, kind])
    found = shop.search.find(query, max_results)
    if any(fits(shop.products[place], goal) for place in found):
        return query
    return " ".join(words(shop.product(goal.product_id).title)[:20])


def hidden_attributes(product: Product, goal: Goal) -> list[str]:
    """Attributes of the goal that the title does not name."""
    title = set(words(product.title))
    return [attribute for attribute in goal.attributes if not set(words(attribute)) <= title]


def _plan_results(page: Page, goal: Goal, page_size: int) -> Plan:
    good = [place for place, product in enumerate(page.results) if fits(product, goal)]
    here = [page.results[place] for place in good if place // page_size == page.number]
    if here:
        return Plan("open", here[0].id, here[0])
    if any(place // page_size > page.number for place in good) and page.number + 1 < pages_of(page, page_size):
        return Plan("next", NEXT)
    if good:
        return Plan("previous", PREV)
    return Plan("nothing", BACK, say=str(len(listed(page, page_size))))


def _plan_item(page: Page, product: Product, goal: Goal, looked: Collection[str]) -> Plan:
    if not fits(product, goal):
        return Plan("wrong", PREV, product)
    unseen = [attribute for attribute in hidden_attributes(product, goal) if has_attribute(product, attribute)]
    if unseen and product.id not in looked:
        return Plan("look", FEATURES, product, " and ".join(unseen))
    wanted = right_options(product, goal) or {}
    names = {pair: name for name, pair in option_buttons(product).items()}
    for kind, value in wanted.items():
        if page.chosen.get(kind) != value:
            return Plan("choose", names[kind, value], product, f"{kind} {value}")
    return Plan("buy", BUY, product, " and ".join(wanted.values()))


def _seen_features(page: Page, goal: Goal) -> str:
    if page.product is None:
        return ""
    return " and ".join(
        attribute for attribute in hidden_attributes(page.product, goal) if has_attribute(page.product, attribute)
    )
