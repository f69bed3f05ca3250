"""WebShop's products: what a product is, and a shop of any size generated from a seed and WordNet's words."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ragen2.envs.options import whole_number
from ragen2.errors import ConfigError

WORDS_FILE = Path(__file__).parent / "data" / "webshop" / "words.json"

MAX_ITEMS, MAX_TYPES = 5000, 200
PRICES = (5, 90)
VALUES_AN_OPTION = 3
ATTRIBUTES_A_PRODUCT = 3
SHORT_ID_ITEMS = 100
"""Up to this many products are called a0 to j9, which are one token each for the smallest models."""

_SHOP_STREAM = 0x73686F70


@dataclass(frozen=True)
class Product:
    """One product. All texts are lower case; `categories` goes from the department to the narrowest category."""

    id: str
    title: str
    query: str
    categories: tuple[str, ...]
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    price: float
    description: str = ""
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShopSettings:
    """Size and seed of a generated shop.

    `items` products of `types` product types and `attributes` different attributes, each product with three of them. `hidden` of
    the three are named on the page of features only, the others in the title too.
    """

    items: int = 500
    types: int = 60
    attributes: int = 60
    hidden: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ConfigError for a value that cannot be used."""
        whole_number("webshop items", self.items, 1, MAX_ITEMS)
        whole_number("webshop types", self.types, 1, MAX_TYPES)
        whole_number("webshop attributes", self.attributes, ATTRIBUTES_A_PRODUCT, len(shop_words().attributes))
        whole_number("webshop hidden", self.hidden, 0, ATTRIBUTES_A_PRODUCT - 1)
        whole_number("webshop shop_seed", self.seed, 0, 2**63 - 1)


@dataclass(frozen=True)
class ProductType:
    """A kind of product: its department, what it is, the two options that a buyer chooses."""

    name: str
    department: str
    gloss: str
    option_kinds: tuple[str, ...]


@dataclass(frozen=True)
class ShopWords:
    """What the generated shop is made of."""

    types: tuple[ProductType, ...]
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@functools.cache
def shop_words() -> ShopWords:
    """The packaged words, made from WordNet by `ragen2.envs.webshop_build`."""
    read = json.loads(WORDS_FILE.read_text(encoding="utf-8"))
    types = tuple(
        ProductType(entry["name"], department["name"], entry["gloss"], tuple(department["options"]))
        for department in read["departments"]
        for entry in department["types"]
    )
    return ShopWords(types, tuple(read["attributes"]), {kind: tuple(values) for kind, values in read["options"].items()})


@functools.lru_cache(maxsize=8)
def generate_products(settings: ShopSettings) -> tuple[Product, ...]:
    """The products of a generated shop: the same for the same settings in any process.

    Types take turns, so that each has about items / types products, whose sets of attributes all differ. Raises ConfigError
    where there are more products than sets of attributes.
    """
    words = shop_words()
    rng = np.random.Generator(np.random.PCG64([settings.seed, _SHOP_STREAM]))
    types = [words.types[index] for index in rng.permutation(len(words.types))[: settings.types].tolist()]
    pool = sorted(words.attributes[index] for index in rng.permutation(len(words.attributes))[: settings.attributes].tolist())
    taken: set[tuple[str, tuple[str, ...]]] = set()
    products = []
    for number in range(settings.items):
        kind = types[number % len(types)]
        attributes = _new_attributes(kind, pool, taken, rng)
        options = {
            name: tuple(words.options[name][i] for i in sorted(rng.permutation(len(words.options[name]))[:VALUES_AN_OPTION]))
            for name in kind.option_kinds
        }
        shown = [attributes[i] for i in sorted(rng.permutation(ATTRIBUTES_A_PRODUCT)[settings.hidden :].tolist())]
        products.append(
            Product(
                id=_id(number, settings.items),
                title=" ".join([*shown, kind.name]),
                query=kind.name,
                categories=(kind.department, kind.name),
                attributes=attributes,
                options=options,
                price=_price(rng),
                description=kind.gloss.lower(),
                features=attributes,
            )
        )
    return tuple(products)


def _new_attributes(
    kind: ProductType, pool: list[str], taken: set[tuple[str, tuple[str, ...]]], rng: np.random.Generator
) -> tuple[str, ...]:
    for _ in range(500):
        chosen = tuple(sorted(pool[index] for index in rng.permutation(len(pool))[:ATTRIBUTES_A_PRODUCT].tolist()))
        if (kind.name, chosen) not in taken:
            taken.add((kind.name, chosen))
            return chosen
    raise ConfigError(
        f"webshop: {len(pool)} attributes give too few sets of {ATTRIBUTES_A_PRODUCT} to tell so many products of a type apart; "
        "raise attributes or types, or lower items"
    )


def _id(number: int, items: int) -> str:
    if items <= SHORT_ID_ITEMS:
        return f"{'abcdefghij'[number // 10]}{number % 10}"
    return f"b{number:05d}"


def _price(rng: np.random.Generator) -> float:
    """Whole dollars, never a multiple of ten: price limits are, so no product stands on a limit."""
    price = int(rng.integers(*PRICES))
    return float(price + 1 if price % 10 == 0 else price)
