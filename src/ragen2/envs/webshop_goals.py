"""WebShop's goals: what a buyer asks for, in words and in the parts that the reward counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from ragen2.envs.webshop_catalogue import Product

PRICE_STEP = 10
PRICE_LIMITS = 3
"""A generated goal's price limit is one of the next three multiples of ten dollars above the product's price."""


@dataclass(frozen=True)
class Goal:
    """What to buy.

    `type_words` name the kind of product; with `query` and `categories` they decide the type factor of the reward. `options` are
    (kind, value) pairs; the kind is empty where the data does not name it. `price_limit` None: any price. `product_id` is the
    product that the goal was written for; buying another that fits pays the same.
    """

    instruction: str
    product_id: str
    type_words: frozenset[str]
    query: str
    categories: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    price_limit: float | None

    @property
    def content(self) -> str:
        """Canonical text: the instruction is all that tells one goal from another, and is shown."""
        return f"webshop {self.instruction}"


class GeneratedGoals(Sequence[Goal]):
    """All goals of generated products, made when asked for.

    Each product has one goal for each choice of its options, each set of two or more of its attributes and each of three price
    limits. Products must have the same number of choices.
    """

    def __init__(self, products: Sequence[Product]) -> None:
        self._products = tuple(products)
        self._each = sum(1 for _ in _variants(self._products[0]))

    def __len__(self) -> int:
        return len(self._products) * self._each

    @overload
    def __getitem__(self, index: int) -> Goal: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Goal]: ...

    def __getitem__(self, index: int | slice) -> Goal | Sequence[Goal]:
        if isinstance(index, slice):
            return [self._goal(place) for place in range(*index.indices(len(self)))]
        return self._goal(index)

    def _goal(self, index: int) -> Goal:
        place = range(len(self))[index]
        product = self._products[place // self._each]
        attributes, options, step = next(itertools.islice(_variants(product), place % self._each, None))
        limit = (int(product.price) // PRICE_STEP + 1 + step) * PRICE_STEP
        return Goal(
            instruction=write_instruction(product.query, attributes, options, limit),
            product_id=product.id,
            type_words=frozenset(product.query.split()),
            query=product.query,
            categories=product.categories,
            attributes=attributes,
            options=options,
            price_limit=float(limit),
        )


def write_instruction(
    type_name: str, attributes: Sequence[str], options: Sequence[tuple[str, str]], price_limit: int | None
) -> str:
    """The buyer's sentence, as `i need a soft warm scarf with color red and size large, and price lower than 40 dollars`."""
    described = " ".join([*attributes, type_name])
    chosen = " and ".join(f"{kind} {value}" for kind, value in options)
    article = "an" if described[0] in "aeiou" else "a"
    parts = [f"i need {article} {described}"]
    if chosen:
        parts.append(f" with {chosen}")
    if price_limit is not None:
        parts.append(f", and price lower than {price_limit} dollars")
    return "".join(parts)


def _variants(product: Product) -> Iterator[tuple[tuple[str, ...], tuple[tuple[str, str], ...], int]]:
    """Attributes, options and the step of the price limit of each goal of a product."""
    kinds = tuple(product.options)
    for size in range(2, len(product.attributes) + 1):
        for attributes in itertools.combinations(product.attributes, size):
            for values in itertools.product(*product.options.values()):
                for step in range(PRICE_LIMITS):
                    yield attributes, tuple(zip(kinds, values, strict=True)), step
