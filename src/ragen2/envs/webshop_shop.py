"""A shop: products, what is asked of them and the search over them. Built once for its settings and shared, read-only."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragen2.envs.splits import SPLITS, split_of
from ragen2.envs.webshop_catalogue import Product, ShopSettings, generate_products
from ragen2.envs.webshop_files import ShopFiles, read_shop_files
from ragen2.envs.webshop_goals import GeneratedGoals, Goal
from ragen2.envs.webshop_search import ShopSearch
from ragen2.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Shop:
    """`files` counts what was read and left out; None for a generated shop."""

    products: tuple[Product, ...]
    goals: Sequence[Goal]
    search: ShopSearch
    places: dict[str, int]
    """Position of each product by its id."""
    files: ShopFiles | None = None

    def product(self, id: str) -> Product:
        return self.products[self.places[id]]


@functools.lru_cache(maxsize=8)
def generated_shop(settings: ShopSettings) -> Shop:
    """The shop of these settings. Raises MissingDependency where bm25s is not installed and what `generate_products` raises."""
    products = generate_products(settings)
    return Shop(products, GeneratedGoals(products), ShopSearch(products), _places(products))


def shop_of_files(items: str | Path, instructions: Sequence[str | Path]) -> Shop:
    """The shop of files in the published format (see `webshop_files`), kept while the files stay as they are.

    Raises ConfigError for a file that cannot be read, and where a split is left without goals.
    """
    paths = tuple(str(path) for path in (items, *instructions))
    return _shop_of_files(paths, tuple(_stamp(path) for path in paths))


@functools.lru_cache(maxsize=2)
def _shop_of_files(paths: tuple[str, ...], _stamps: tuple[tuple[int, int], ...]) -> Shop:
    read = read_shop_files(Path(paths[0]), [Path(path) for path in paths[1:]])
    for split in SPLITS:
        if not any(split_of(goal.content) == split for goal in read.goals):
            raise ConfigError(
                f"webshop: {len(read.goals)} goals of {', '.join(paths)} leave the {split} split empty; a goal's split follows "
                f"from its instruction (a tenth validation, a tenth test). Give more instructions. {read.remark}"
            )
    return Shop(read.products, read.goals, ShopSearch(read.products), _places(read.products), read)


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError as error:
        raise ConfigError(f"webshop: {path} cannot be read: {error}") from error
    return found.st_mtime_ns, found.st_size


def _places(products: Sequence[Product]) -> dict[str, int]:
    return {product.id: place for place, product in enumerate(products)}
