"""WebShop: find and buy what an instruction asks for in a text shop (RAGEN-2, arXiv 2604.06268; shop and reward after WebShop,
arXiv 2207.01206)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.options import one_of, whole_number
from ragen2.envs.splits import check_seed, draw_level
from ragen2.envs.webshop_catalogue import MAX_ITEMS, ShopSettings
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
    dollars,
    option_buttons,
    pages_of,
    render,
)
from ragen2.envs.webshop_reward import score_purchase
from ragen2.envs.webshop_shop import Shop, generated_shop, shop_of_files
from ragen2.envs.webshop_solver import guess, plan
from ragen2.envs.webshop_words import tell
from ragen2.errors import ConfigError, EnvironmentFault

REWARDS = ("dense", "binary")
MAX_ACTION_CHARS = 300


class WebShop(TextEnv):
    """Search, open a product, choose its options, buy. Buying ends the episode and alone is rewarded.

    Actions: `search[words]` on the page of search, `click[name]` for a name that the page shows in `click[...]`; upper and lower
    case are the same. Anything else is illegal and changes nothing. Reward "dense" is the score of the purchase (see
    `webshop_reward.score_purchase`), "binary" 1 where the score is 1 and else 0. Success is a score of exactly 1 with either. An
    episode ends without success after `max_steps` actions.

    The shop is generated: `items`, `types`, `attributes`, `hidden` and `shop_seed` are the fields of `ShopSettings`. Or it is
    read from the published data set: `items_file` and `instruction_files` (see `webshop_files`). A search lists `max_results`
    products at most, `page_size` a page. Raises ConfigError for a value that cannot be used.
    """

    multi_action = False

    def __init__(
        self,
        split: str = "train",
        reward: str = "dense",
        items: int = 500,
        types: int = 60,
        attributes: int = 60,
        hidden: int = 1,
        shop_seed: int = 0,
        page_size: int = 10,
        max_results: int = 50,
        max_steps: int = 50,
        items_file: str | Path | None = None,
        instruction_files: Sequence[str | Path] | str | Path = (),
    ) -> None:
        super().__init__(split)
        self.reward = one_of("webshop reward", reward, REWARDS)
        self.page_size = whole_number("webshop page_size", page_size, 1, 50)
        self.max_results = whole_number("webshop max_results", max_results, 1, MAX_ITEMS)
        self.max_steps = whole_number("webshop max_steps", max_steps, 1, 10_000)
        self._shop = _open(items_file, instruction_files, ShopSettings(items, types, attributes, hidden, shop_seed))
        self._goal: Goal | None = None
        self._page = Page("search")
        self._looked: frozenset[str] = frozenset()
        self._steps = 0
        self._last: StepResult | None = None

    @property
    def shop(self) -> Shop:
        """Products and goals: read-only, shared with other environments of the same options."""
        return self._shop

    @property
    def instructions(self) -> str:
        pays = {"dense": "its score: the share of what was asked that it has", "binary": "1 when all is as asked, else 0"}
        return "\n".join(
            [
                "Buy in a shop what is asked for: kind, words, options and price.",
                "Actions: search[words] on the search page, click[name] for a name that the page shows.",
                f"Choose the options, then click[{BUY}]. Reward for buying: {pays[self.reward]}.",
            ]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        self._goal = draw_level(level_seed, self.split, self._draw, lambda goal: goal.content, attempts=1000)
        self._page, self._looked, self._steps, self._last = Page("search"), frozenset(), 0, None
        return Observation(self._text())

    def step(self, action: str) -> StepResult:
        goal = self._current()
        if self._last is not None:
            return self._last.again()
        self._steps += 1
        name, argument = read_action(action)
        legal = self._search(argument) if name == "search" else name == "click" and self._click(argument)
        if legal and self._page.kind == "end":
            return self._bought(goal)
        truncated = self._steps >= self.max_steps
        info = {"legal": legal, **({"success": False} if truncated else {})}
        result = StepResult(Observation(self._text()), 0.0, False, truncated, info)
        self._last = result if truncated else None
        return result

    def content(self) -> str:
        return self._current().content

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The next action of a buyer who knows the shop, or a random one that the page allows. One action.

        Raises EnvironmentFault after the end.
        """
        goal = self._current()
        if self._last is not None:
            raise EnvironmentFault("webshop: no demonstration after the end of an episode; reset first")
        whole_number("max_actions", max_actions, 1, 1000)
        if rng.random() < expertise:
            chosen = plan(self._page, goal, self._shop, self._looked, self.page_size, self.max_results)
        else:
            chosen = guess(self._page, goal, self._shop, self.page_size, rng)
        return Demonstration(tell(chosen, goal, rng), (chosen.action,))

    def _draw(self, rng: np.random.Generator) -> Goal:
        return self._shop.goals[int(rng.integers(len(self._shop.goals)))]

    def _search(self, query: str) -> bool:
        if self._page.kind != "search" or not query:
            return False
        found = tuple(self._shop.products[place] for place in self._shop.search.find(query, self.max_results))
        self._page = Page("results", found, " ".join(self._shop.search.known_words(query)))
        return True

    def _click(self, name: str) -> bool:
        """Follow a button of the present page; False where it has no such button."""
        page = self._page
        if name not in clicks(page, self.page_size):
            return False
        if name == BACK:
            self._page = Page("search")
        elif page.kind == "results":
            self._page = self._from_results(name)
        elif name == PREV:
            self._page = (
                replace(page, kind="item") if page.kind != "item" else Page("results", page.results, page.query, page.number)
            )
        elif name in (DESCRIPTION, FEATURES):
            self._page = replace(page, kind=name)
            if name == FEATURES and page.product is not None:
                self._looked |= {page.product.id}
        elif name == BUY:
            self._page = replace(page, kind="end")
        elif page.product is not None:
            kind, value = option_buttons(page.product)[name]
            self._page = replace(page, chosen={**page.chosen, kind: value})
        return True

    def _from_results(self, name: str) -> Page:
        page = self._page
        if name in (NEXT, PREV):
            number = page.number + (1 if name == NEXT else -1)
            return replace(page, number=min(max(number, 0), pages_of(page, self.page_size) - 1))
        return replace(page, kind="item", product=self._shop.product(name), chosen={})

    def _bought(self, goal: Goal) -> StepResult:
        page = self._page
        if page.product is None:
            raise EnvironmentFault("webshop: the end was reached without a product")
        score = score_purchase(page.product, page.chosen, goal)
        paid = score.value if self.reward == "dense" else float(score.success)
        info = {
            "legal": True,
            "success": score.success,
            "webshop_score": score.value,
            "type_factor": score.type_factor,
            "attributes_matched": score.attributes,
            "options_matched": score.options,
            "price_kept": score.price,
            "wanted": score.wanted,
        }
        told = f"{goal.instruction}\nbought {page.product.id} for {dollars(page.product.price)} dollars , score {score.value:.2f}"
        self._last = StepResult(Observation(told), paid, True, False, info)
        return self._last

    def _text(self) -> str:
        return render(self._page, self._current().instruction, self.page_size)

    def _current(self) -> Goal:
        if self._goal is None:
            raise EnvironmentFault("webshop has no level yet; call reset(level_seed, noise_seed) first")
        return self._goal


def read_action(action: str) -> tuple[str, str]:
    """("search" or "click", argument in lower case with single spaces); two empty texts where it is neither."""
    if len(action) > MAX_ACTION_CHARS:
        return "", ""
    name, bracket, rest = action.strip().partition("[")
    if not bracket or not rest.endswith("]") or "[" in rest or "]" in rest[:-1]:
        return "", ""
    verb = name.strip()
    if not verb.isascii() or verb.lower() not in ("search", "click"):
        return "", ""
    return verb.lower(), " ".join(rest[:-1].lower().split())


def _open(items_file: str | Path | None, instruction_files: Sequence[str | Path] | str | Path, settings: ShopSettings) -> Shop:
    if isinstance(instruction_files, (str, Path)):
        instruction_files = (instruction_files,)
    if items_file is None:
        if instruction_files:
            raise ConfigError(
                "webshop instruction_files are given without items_file; give both, or neither for a generated shop"
            )
        return generated_shop(settings)
    return shop_of_files(items_file, instruction_files)
