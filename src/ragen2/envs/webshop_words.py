"""How WebShop's demonstrations talk: what is wanted, what the page shows of it, what to do. Short, in varied words, and true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.webshop_catalogue import Product
from ragen2.envs.webshop_goals import Goal
from ragen2.envs.webshop_pages import dollars
from ragen2.envs.webshop_solver import Plan

_MAX_PART = 80

_NEED = ("need {what}.", "i need {what}.", "look for {what}.")
_SAY = {
    "search": ("search {argument}.", "so search {argument}.", "no product yet, search {argument}."),
    "open": ("{id} is {title} , {price}{limit}.", "{id} has {title} , {price}{limit}.", "see {id} {title} , {price}{limit}."),
    "next": ("nothing here fits, next page.", "not on this page, go to the next.", "no fit here, next."),
    "previous": ("it was on a page before, go back.", "not here, previous page.", "go to the page before."),
    "nothing": ("nothing here fits, search again.", "no fit, back to search.", "none fits, search again."),
    "wrong": ("{id} does not fit, go back.", "{id} is wrong, go back.", "not {id} , back."),
    "look": ("{say} is not in the title, see features.", "is {id} {say} ? see features.", "check {say} in the features."),
    "features": ("features say {say}, go back.", "it is {say}, back to {id}.", "{say} is there, back."),
    "back": ("read it, go back.", "back to {id}.", "nothing to do here, back."),
    "choose": ("{say} is not chosen yet.", "choose {say}.", "now {say}.", "take {say}."),
    "buy": ("{say} chosen, {price}{limit}, buy.", "all fits, {price}{limit}, buy {id}.", "{id} is right, {say} chosen, buy."),
    "try search": ("maybe search {argument}.", "try {argument}.", "perhaps {argument} finds it."),
    "try click": ("maybe {argument}.", "try {argument}.", "perhaps {argument}.", "click {argument}."),
}
_PLAIN = {
    "buy": ("all fits, {price}{limit}, buy {id}.", "{id} is right, buy.", "nothing to choose, {price}{limit}, buy."),
    "features": ("read the features, go back.", "features read, back to {id}.", "back to {id}."),
}
"""Instead of those above where a plan has nothing to say."""


def tell(plan: Plan, goal: Goal, rng: np.random.Generator) -> str:
    """Reasoning for the planned action: the goal's parts in the order of the instruction, then what the page has of it."""
    need = _pick(_NEED, rng).format(what=_wanted(goal))
    choices = _SAY[plan.why] if plan.say or plan.why not in _PLAIN else _PLAIN[plan.why]
    step = _pick(choices, rng).format(argument=plan.argument, say=plan.say[:_MAX_PART], **_about(plan.about, goal))
    return f"{need} {step}"


def _wanted(goal: Goal) -> str:
    kind = goal.query or " ".join(sorted(goal.type_words)[:4])
    parts = [" ".join([*goal.attributes, kind]), *(f"{name} {value}".strip() for name, value in goal.options)]
    if goal.price_limit is not None:
        parts.append(f"below {dollars(goal.price_limit)}")
    return ", ".join(part[:_MAX_PART] for part in parts)


def _about(product: Product | None, goal: Goal) -> dict[str, str]:
    if product is None:
        return {"id": "", "title": "", "price": "", "limit": ""}
    below = goal.price_limit is not None and product.price <= goal.price_limit
    limit = f" is below {dollars(goal.price_limit)}" if goal.price_limit is not None and below else " dollars"
    return {"id": product.id, "title": product.title[:_MAX_PART], "price": dollars(product.price), "limit": limit}


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
