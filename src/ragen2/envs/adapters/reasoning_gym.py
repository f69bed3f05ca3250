"""The data sets of reasoning-gym as environments: one question, one answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ragen2.envs.adapters.reasoning_gym_gates import form_fault, surely_wrong
from ragen2.envs.adapters.reasoning_gym_items import Item, ItemSource, require_reasoning_gym
from ragen2.envs.adapters.reasoning_gym_names import COMPARED, EASIER, NAMES, SANDBOXED
from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.options import one_of, whole_number
from ragen2.envs.splits import check_seed, draw_level
from ragen2.errors import ConfigError, EnvironmentFault
from ragen2.sandbox import MODES, check_sandbox

REWARDS = ("right", "score")
_INDICES = 2**31 - 1
_RIGHT = 1.0 - 1e-9


class ReasoningGym(TextEnv):
    """A data set of the package reasoning-gym by name: "reasoning-gym/chain_sum".

    The level seed draws an item; its question decides the split. The one action is the answer, of at most `max_chars` characters.
    reward="right" pays 1 for an answer that gets the verifier's full score and else 0. reward="score" pays the verifier's score,
    kept within 0 and 1; many verifiers give a little for any text at all. Success is the full score either way.

    `options` go to the data set (`{"min_terms": 3}`). Data sets whose verifier executes the answer are scored in the sandbox, and
    only answers of a small grammar get that far; `sandbox` is "bubblewrap" or "unsafe". Raises MissingDependency without the
    package, SandboxUnavailable where a sandbox is needed and does not work, ConfigError for a value that cannot be used.
    """

    multi_action: ClassVar[bool] = False

    def __init__(
        self,
        split: str = "train",
        dataset: str = "chain_sum",
        reward: str = "right",
        options: Mapping[str, Any] | None = None,
        max_chars: int = 8000,
        sandbox: str = "bubblewrap",
    ) -> None:
        super().__init__(split)
        self.dataset = one_of("data set of reasoning-gym", dataset, NAMES)
        self.reward = one_of("reasoning-gym reward", reward, REWARDS)
        self.max_chars = whole_number("max_chars", max_chars, 1, 20_000)
        mode = one_of("sandbox", sandbox, MODES)
        require_reasoning_gym()
        if self.dataset in SANDBOXED and mode != "unsafe":
            _require_sandbox()
        self._source = ItemSource(self.dataset, _options_text({**EASIER.get(self.dataset, {}), **(options or {})}), mode)
        self._item: Item | None = None
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        pays = "Reward 1 for a right answer." if self.reward == "right" else "The reward, from 0 to 1, says how good it is."
        return f"Answer the question. You answer once, with the answer alone, in the form that the question asks for. {pays}"

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        self._item = draw_level(level_seed, self.split, self._draw, self._content_of)
        self._last = None
        return Observation(self._item.question)

    def step(self, action: str) -> StepResult:
        item = self._current()
        if self._last is not None:
            return self._last.again()
        answer = action.strip()
        fault = self._fault(answer)
        score = 0.0 if fault is not None else self._score(item, answer)
        success = score >= _RIGHT
        remark = "right" if success else f"not an answer: {fault}" if fault is not None else "wrong"
        info = {"legal": fault is None, "success": success, "score": score, "remark": remark}
        paid = score if self.reward == "score" else float(success)
        self._last = StepResult(Observation(f"{item.question}\n{remark}"), paid, True, False, info)
        return self._last

    def content(self) -> str:
        return self._content_of(self._current())

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The item's own answer, or the answer of another item. Raises NotImplementedError where the item comes without one."""
        whole_number("max_actions", max_actions, 1, 1000)
        item = self._current()
        if self._last is not None:
            raise EnvironmentFault("reasoning-gym: no demonstration after the end of an episode; reset first")
        other = item if rng.random() < expertise else self._draw(rng)
        answer = ((None if other is None else other.answer) or item.answer or "").strip()
        if not answer:
            raise NotImplementedError(f"reasoning-gym/{self.dataset} gives no answer of its own, so there is none to demonstrate")
        asked = item.question.strip().splitlines()[-1][-80:]
        opening = ("the question is", "asked is", "it says")[int(rng.integers(3))]
        return Demonstration(f"{opening}: {asked} the answer is {answer[:80]}", (answer,))

    def _draw(self, rng: np.random.Generator) -> Item | None:
        item = self._source.item(int(rng.integers(_INDICES)))
        # an item whose right answer is no text at all would pay for any text that cannot be read; an integral that the package
        # could not solve has itself as the answer
        answered = item.answer is None or (item.answer.strip() and form_fault(self.dataset, item.answer.strip()) is None)
        return item if item.question.strip() and answered else None

    def _content_of(self, item: Item) -> str:
        return f"reasoning-gym {self.dataset}\n{item.question}"

    def _fault(self, answer: str) -> str | None:
        if not answer:
            return "it is empty"
        if len(answer) > self.max_chars:
            return f"it has {len(answer)} characters, more than {self.max_chars}"
        if "\x00" in answer or any("\ud800" <= character <= "\udfff" for character in answer):
            return "it is no text"
        return form_fault(self.dataset, answer)

    def _score(self, item: Item, answer: str) -> float:
        if self.dataset in COMPARED:
            return float(item.answer is not None and answer.casefold() == item.answer.strip().casefold())
        if surely_wrong(self.dataset, answer, item.answer, item.numbers):
            return 0.0
        score = self._source.score(item.index, answer)
        # not a number compares false with everything, so it ends as 0
        return min(score, 1.0) if score > 0.0 else 0.0

    def _current(self) -> Item:
        if self._item is None:
            raise EnvironmentFault("reasoning-gym has no item yet; call reset(level_seed, noise_seed) first")
        return self._item


def _options_text(given: Mapping[str, Any]) -> str:
    """The options as JSON with sorted keys. Raises ConfigError for what JSON cannot hold, and for the seed and size."""
    taken = {"seed", "size"} & given.keys()
    if taken:
        raise ConfigError(f"reasoning-gym options {sorted(taken)} are set by the level seed; leave them out")
    try:
        return json.dumps(given, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"reasoning-gym options {given!r} are not plain values: {error}") from error


@functools.cache
def _require_sandbox() -> None:
    check_sandbox()
