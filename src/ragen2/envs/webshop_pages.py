"""WebShop's pages: which one is shown, what it says, which actions it offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ragen2.envs.webshop_catalogue import Product

BUY, BACK, NEXT, PREV = "buy now", "back to search", "next >", "< prev"
DESCRIPTION, FEATURES = "description", "features"
SEARCH_HINT = "search[words]"

_TITLE_CHARS, _TEXT_CHARS = 160, 600

_BUTTONS = frozenset({BUY, BACK, NEXT, PREV, DESCRIPTION, FEATURES})


@dataclass(frozen=True)
class Page:
    """One page. `kind` is search, results, item, description, features or end.

    `results` are all products that the last search found, `number` counts its pages from 0. `chosen` maps an option's kind to its
    value. `note` is said above the page.
    """

    kind: str
    results: tuple[Product, ...] = ()
    query: str = ""
    number: int = 0
    product: Product | None = None
    chosen: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def listed(page: Page, page_size: int) -> tuple[Product, ...]:
    """The products on this page of results."""
    return page.results[page.number * page_size : (page.number + 1) * page_size]


def pages_of(page: Page, page_size: int) -> int:
    """How many pages the results fill, at least 1."""
    return max(1, -(-len(page.results) // page_size))


def option_buttons(product: Product) -> dict[str, tuple[str, str]]:
    """(kind, value) by button name: the value, or kind and value where the value alone would mean two things."""
    values = [value for values in product.options.values() for value in values]
    buttons: dict[str, tuple[str, str]] = {}
    for kind, own in product.options.items():
        for value in own:
            plain = values.count(value) == 1 and value not in _BUTTONS
            buttons[value if plain else f"{kind} {value}"] = (kind, value)
    return buttons


def clicks(page: Page, page_size: int) -> tuple[str, ...]:
    """What can be clicked on the page, in the order in which it is shown."""
    if page.kind == "results":
        moves = [PREV] * (page.number > 0) + [NEXT] * (page.number + 1 < pages_of(page, page_size))
        return (*(product.id for product in listed(page, page_size)), *moves, BACK)
    if page.kind == "item" and page.product is not None:
        return (*option_buttons(page.product), BUY, DESCRIPTION, FEATURES, PREV, BACK)
    if page.kind in (DESCRIPTION, FEATURES):
        return (PREV, BACK)
    return ()


def render(page: Page, instruction: str, page_size: int) -> str:
    """The text of the page: the instruction, the page's own lines, the remaining actions."""
    lines = [instruction, *([page.note] if page.note else [])]
    if page.kind == "search":
        lines += ["page search", f"actions {SEARCH_HINT}"]
    elif page.kind == "results":
        lines += _results(page, page_size)
    elif page.kind != "end" and page.product is not None:
        lines += _item(page, page.product)
    return "\n".join(lines)


def dollars(price: float) -> str:
    """A price as the pages show it: cents only where there are any."""
    return f"{price:.0f}" if price == int(price) else f"{price:.2f}"


def _results(page: Page, page_size: int) -> list[str]:
    shown = listed(page, page_size)
    lines = [f"page {page.number + 1} of {pages_of(page, page_size)} for {page.query or 'no known word'}"]
    lines += [f"click[{product.id}] {_title(product)} , {dollars(product.price)} dollars" for product in shown]
    lines += [] if shown else ["nothing found"]
    rest = clicks(page, page_size)[len(shown) :]
    return [*lines, _actions(rest)]


def _item(page: Page, product: Product) -> list[str]:
    lines = [f"item {product.id} {_title(product)} , {dollars(product.price)} dollars"]
    if page.kind == DESCRIPTION:
        return [*lines, f"description {product.description[:_TEXT_CHARS] or 'none'}", _actions((PREV, BACK))]
    if page.kind == FEATURES:
        return [*lines, f"features {' , '.join(product.features)[:_TEXT_CHARS] or 'none'}", _actions((PREV, BACK))]
    buttons = option_buttons(product)
    for kind in product.options:
        offered = " ".join(f"click[{name}]" for name, (own, _) in buttons.items() if own == kind)
        lines.append(f"{kind} {page.chosen.get(kind, 'not chosen')} {offered}")
    return [*lines, _actions((BUY, DESCRIPTION, FEATURES, PREV, BACK))]


def _actions(names: tuple[str, ...]) -> str:
    return "actions " + " ".join(f"click[{name}]" for name in names)


def _title(product: Product) -> str:
    return product.title[:_TITLE_CHARS]
