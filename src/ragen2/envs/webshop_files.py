"""Reads a shop from files in the format of the published WebShop data set.

Items: a JSON list of objects (items_shuffle*.json). Fields read: `asin`, `name` (or `Title`), `query`, `product_category` (parts
divided by the sign ›), `full_description` (or `Description`), `small_description` (or `BulletPoints`, text or list), `pricing`
(text such as "$12.50" or "$10.00$12.00": the lowest counts), `customization_options` (kind to a list of {"value": text}),
`Attributes`. Instructions: JSON objects from asin to {"attributes", "instruction", "instruction_attributes"} (items_ins*.json:
they also give a product its attributes) or to a list of {"instruction", "instruction_attributes", "instruction_options"}
(items_human_ins.json). What cannot be used is left out and counted, by reason.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen2.envs.webshop_catalogue import Product
from ragen2.envs.webshop_goals import PRICE_STEP, Goal
from ragen2.envs.webshop_reward import has_attribute, same_value, words
from ragen2.errors import ConfigError

MAX_ID, MAX_TEXT, MAX_INSTRUCTION = 32, 4000, 600
MAX_KINDS, MAX_VALUES, MAX_VALUE = 6, 30, 60
_PRICE = re.compile(r"\d{1,3}(?:,\d{3}){1,3}(?:\.\d{1,2})?|\d{1,9}(?:\.\d{1,2})?")
_ID = re.compile(r"[a-z0-9]+")
_COMMON = "a an and the of for with in on to by from or your our is are pack set size color inch inches"
_NO_TYPE_WORDS = frozenset(_COMMON.split())


@dataclass(frozen=True)
class ShopFiles:
    """Products and goals that were read. `dropped` counts, by reason, what was left out."""

    products: tuple[Product, ...]
    goals: tuple[Goal, ...]
    dropped: Mapping[str, int]

    @property
    def remark(self) -> str:
        left = ", ".join(f"{count} {reason}" for reason, count in sorted(self.dropped.items())) or "nothing"
        return f"Read {len(self.products)} products and {len(self.goals)} goals; left out: {left}."


def read_shop_files(items: Path, instructions: Sequence[Path]) -> ShopFiles:
    """The shop of these files. Raises ConfigError for a file that is no such JSON, or that leaves no product or no goal."""
    dropped: Counter[str] = Counter()
    listed = _load(items)
    if not isinstance(listed, list):
        raise ConfigError(f"webshop: {items} holds a {type(listed).__name__}; items are a JSON list of objects")
    told = [_instructions(path) for path in instructions]
    products: dict[str, Product] = {}
    for entry in listed:
        product = _product(entry, told)
        if product is None:
            dropped["items without id, name or price"] += 1
        elif product.id in products:
            dropped["items with the id of an earlier one"] += 1
        else:
            products[product.id] = product
    goals = _goals(products, told, dropped)
    read = ShopFiles(tuple(products.values()), goals, dict(dropped))
    if not products or not goals:
        raise ConfigError(f"webshop: {items} and its instructions make no shop. {read.remark}")
    return read


def _product(entry: object, told: Sequence[Mapping[str, list[Mapping[str, Any]]]]) -> Product | None:
    if not isinstance(entry, Mapping):
        return None
    id = _text(entry.get("asin")).lower()
    title = _text(entry.get("name") or entry.get("Title"))
    price = _price(entry.get("pricing"))
    if not _ID.fullmatch(id) or id == "nan" or len(id) > MAX_ID or not title or price is None:
        return None
    attributes = _texts(entry.get("Attributes")) or tuple(
        text for source in told for about in source.get(id, ()) for text in _texts(about.get("attributes"))
    )
    return Product(
        id=id,
        title=title,
        query=_text(entry.get("query")),
        categories=tuple(part.strip() for part in _text(entry.get("product_category")).split("›") if part.strip()),
        attributes=attributes,
        options=_options(entry.get("customization_options") or entry.get("options")),
        price=price,
        description=_text(entry.get("full_description") or entry.get("Description")),
        features=_texts(entry.get("small_description") or entry.get("BulletPoints")),
    )


def _options(found: object) -> dict[str, tuple[str, ...]]:
    """Values of each kind, each once; kinds and values beyond the bounds of a page are left out."""
    options: dict[str, tuple[str, ...]] = {}
    for kind, contents in list(found.items())[:MAX_KINDS] if isinstance(found, Mapping) else []:
        entries = contents if isinstance(contents, list) else []
        values = (same_value(_button(entry.get("value") if isinstance(entry, Mapping) else entry)) for entry in entries)
        kept = tuple(dict.fromkeys(value for value in values if value and len(value) <= MAX_VALUE))[:MAX_VALUES]
        if kept and same_value(_button(kind)):
            options[same_value(_button(kind))[:MAX_VALUE]] = kept
    return options


def _goals(
    products: Mapping[str, Product], told: Sequence[Mapping[str, list[Mapping[str, Any]]]], dropped: Counter[str]
) -> tuple[Goal, ...]:
    """Goals that their own product fulfils, in the order of the files; of equal instructions the first."""
    goals: dict[str, Goal] = {}
    for source in told:
        for id, abouts in source.items():
            for about in abouts:
                if "instruction" not in about:
                    continue
                product = products.get(id)
                instruction = _text(about.get("instruction")).strip(" .")[:MAX_INSTRUCTION]
                attributes = _texts(about.get("instruction_attributes"))
                if product is None:
                    dropped["instructions for no product"] += 1
                    continue
                if not instruction or not attributes:
                    dropped["instructions without text or attributes"] += 1
                    continue
                wanted = _wanted_options(about.get("instruction_options"))
                options = tuple((kind if kind in product.options else "", value) for kind, value in wanted)
                goal = _goal(product, instruction, attributes, options)
                if not _fulfils(product, goal):
                    dropped["goals that their own product does not fulfil"] += 1
                elif goal.instruction in goals:
                    dropped["goals with the instruction of an earlier one"] += 1
                else:
                    goals[goal.instruction] = goal
    return tuple(goals.values())


def _goal(product: Product, instruction: str, attributes: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> Goal:
    """A goal whose price limit is the second multiple of ten dollars above the price: fixed, whatever the order of reading."""
    limit = (int(product.price) // PRICE_STEP + 2) * PRICE_STEP
    described = {word for text in (*attributes, *(value for _, value in options)) for word in words(text)}
    kind = frozenset(words(product.title)) - described - _NO_TYPE_WORDS
    return Goal(
        instruction=f"{instruction}, and price lower than {limit} dollars",
        product_id=product.id,
        type_words=frozenset(word for word in kind if not word.isdigit()),
        query=product.query,
        categories=product.categories,
        attributes=attributes,
        options=options,
        price_limit=float(limit),
    )


def _fulfils(product: Product, goal: Goal) -> bool:
    """Whether buying the product with the right options can score 1: one value of a kind, everything on offer."""
    taken: set[str] = set()
    for wanted, value in goal.options:
        kinds = [kind for kind, values in product.options.items() if value in values and wanted in ("", kind)]
        free = [kind for kind in kinds if kind not in taken]
        if not free:
            return False
        taken.add(free[0])
    return bool(goal.type_words) and all(has_attribute(product, attribute) for attribute in goal.attributes)


def _wanted_options(found: object) -> list[tuple[str, str]]:
    """(kind, value) pairs of a mapping, of "kind: value" texts, or of bare values (kind empty)."""
    if isinstance(found, Mapping):
        pairs = [(_text(kind), _text(value)) for kind, value in found.items()]
    else:
        pairs = [(text.partition(": ")[0], text.partition(": ")[2]) if ": " in text else ("", text) for text in _texts(found)]
    return [(same_value(_button(kind)), same_value(_button(value))) for kind, value in pairs if value]


def _instructions(path: Path) -> dict[str, list[Mapping[str, Any]]]:
    found = _load(path)
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"webshop: {path} holds a {type(found).__name__}; instructions are a JSON object from asin to instructions"
        )
    entries = {str(id).lower(): about if isinstance(about, list) else [about] for id, about in found.items()}
    return {id: [entry for entry in abouts if isinstance(entry, Mapping)] for id, abouts in entries.items()}


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"webshop: {path} cannot be read as JSON: {error}") from error


def _price(pricing: object) -> float | None:
    """The lowest price named, a number or in a text; 100 dollars where none is given, as in the published environment."""
    if pricing is None or pricing == "" or pricing == []:
        return 100.0
    if isinstance(pricing, (int, float)) and not isinstance(pricing, bool):
        return float(pricing) if math.isfinite(pricing) and 0 <= pricing < 1e9 else None
    text = " ".join(map(str, pricing)) if isinstance(pricing, list) else str(pricing)
    found = [float(number.replace(",", "")) for number in _PRICE.findall(text[:200])]
    return min(found) if found else None


def _button(value: object) -> str:
    """A text that can stand in click[...]: brackets would end it."""
    return _text(value).replace("[", "(").replace("]", ")").replace("/", " | ")


def _texts(found: object) -> tuple[str, ...]:
    entries = found if isinstance(found, list) else [found]
    return tuple(text for entry in entries if (text := _text(entry)))


def _text(found: object) -> str:
    """Lower-case text on one line, bounded; empty for what is no text or number."""
    if not isinstance(found, (str, int, float)) or isinstance(found, bool):
        return ""
    return " ".join(str(found)[:MAX_TEXT].split()).lower()
