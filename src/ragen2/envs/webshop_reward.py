"""WebShop's reward of a purchase: the published formula, with its matching rules made exact.

    score = type_factor * (attributes matched + options matched + [price within the limit]) / (attributes + options + 1)

The published matching uses a part-of-speech tagger and fuzzy string ratios; here words are compared as they are, so that the
score never depends on a tagger's version and near misses ("size 1" for "size 10") do not pay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ragen2.envs.webshop_catalogue import Product
from ragen2.envs.webshop_goals import Goal

_WORD = re.compile(r"[a-z0-9]+")
_FAR_TITLE, _NEAR_TITLE = 0.1, 0.2


@dataclass(frozen=True)
class Score:
    """Parts of a purchase's score. `success` is a score of exactly 1: right type, all attributes and options, price kept."""

    type_factor: float
    attributes: int
    options: int
    price: bool
    wanted: int
    """Attributes + options + 1."""

    @property
    def matched(self) -> int:
        return self.attributes + self.options + int(self.price)

    @property
    def value(self) -> float:
        return self.type_factor * self.matched / self.wanted

    @property
    def success(self) -> bool:
        return self.type_factor == 1.0 and self.matched == self.wanted


def score_purchase(product: Product, chosen: Mapping[str, str], goal: Goal) -> Score:
    """Score of buying `product` with the `chosen` options (kind to value) for `goal`."""
    return Score(
        type_factor=type_factor(product, goal),
        attributes=sum(has_attribute(product, attribute) for attribute in goal.attributes),
        options=sum(_is_chosen(kind, value, chosen) for kind, value in goal.options),
        price=goal.price_limit is None or product.price <= goal.price_limit,
        wanted=len(goal.attributes) + len(goal.options) + 1,
    )


def type_factor(product: Product, goal: Goal) -> float:
    """How near the product's type is to the wanted one: 1, 0.5, 0.1 or 0.

    With t the share of the goal's type words in the product's title: 0 where t is 0, 0.1 where t is below 0.1; otherwise 1
    where the query is the goal's, or two categories are shared, or t is above 0.2, else 0.5. A goal without type words has t 0.2.
    """
    title = set(words(product.title))
    share = len(goal.type_words & title) / len(goal.type_words) if goal.type_words else _NEAR_TITLE
    if share == 0:
        return 0.0
    if share < _FAR_TITLE:
        return 0.1
    near = product.query == goal.query != "" or len(set(product.categories) & set(goal.categories)) >= 2
    return 1.0 if near or share > _NEAR_TITLE else 0.5


def has_attribute(product: Product, attribute: str) -> bool:
    """Whether one of the product's attributes has all words of `attribute`, or its title, a feature or its description has them
    in a row."""
    wanted = words(attribute)
    if any(set(wanted) <= set(words(own)) for own in product.attributes):
        return bool(wanted)
    texts = (product.title, *product.features, product.description)
    return bool(wanted) and any(f" {' '.join(wanted)} " in f" {' '.join(words(text))} " for text in texts)


def words(text: str) -> list[str]:
    """Lower-case ASCII words and numbers of a text."""
    return _WORD.findall(text.lower())


def _is_chosen(kind: str, value: str, chosen: Mapping[str, str]) -> bool:
    """Whether the value is chosen: under its kind, or under any where the goal names none."""
    wanted = same_value(value)
    return any(same_value(other) == wanted for name, other in chosen.items() if not kind or name == kind)


def same_value(value: str) -> str:
    """An option's value in the form in which values are compared: lower case, single spaces."""
    return " ".join(value.lower().split())
