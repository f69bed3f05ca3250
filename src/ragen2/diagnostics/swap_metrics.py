"""The swap test and the counterfactual test of one batch, as a result and as flat metrics beside mutual information."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ragen2.diagnostics.action_scores import ActionScores, SwapConfig, score_actions
from ragen2.diagnostics.counterfactual import Counterfactual, counterfactual_test
from ragen2.diagnostics.cross_score import Progress, Scorer
from ragen2.diagnostics.prompt_bootstrap import Estimate
from ragen2.diagnostics.swap_test import Moved, SwapTest, swap_test
from ragen2.errors import NotMeasurable
from ragen2.trajectory import RolloutBatch

if TYPE_CHECKING:
    from ragen2.prompting.chat_format import ChatFormat

WHERE = "collapse/swap"


@dataclass(frozen=True)
class Causality:
    """Whether the reasoning causes the action: both tests on the same pairs, and what they rest on."""

    swap: SwapTest
    counterfactual: Counterfactual
    coverage: float
    turns: int
    without_donor: int
    answers: dict[str, tuple[str, ...]]

    def metrics(self) -> dict[str, float]:
        """Flat figures under `collapse/swap/`; bounds of intervals end in `_low` and `_high`. What has no value is left out."""
        swap, counterfactual = self.swap, self.counterfactual
        found = {
            "turns": float(self.turns),
            "without_donor": float(self.without_donor),
            "pairs": float(swap.other_prompt.pairs),
            "prompts": float(swap.other_prompt.changed.prompts),
            "differing_pairs": float(swap.differing_pairs),
            "coverage": self.coverage,
            "answers": float(sum(len(texts) for texts in self.answers.values())),
        }
        for kind, moved in (("other_prompt", swap.other_prompt), ("other_sample", swap.other_sample)):
            found |= _moved_figures(kind, moved)
        for name in ("follows", "follows_reasoning", "kept_own"):
            found |= _figures(name, getattr(swap, name))
        for name in (
            "observation_changed", "both_changed", "effect_of_reasoning", "effect_of_observation", "reasoning_share"
        ):  # fmt: skip
            found |= _figures(name, getattr(counterfactual, name))
        return {f"{WHERE}/{name}": value for name, value in found.items()}


def causality_test(
    batch: RolloutBatch,
    scorer: Scorer,
    chat: ChatFormat,
    rng: np.random.Generator,
    config: SwapConfig | None = None,
    *,
    answers: Mapping[str, Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> Causality:
    """Both tests on a batch. Arguments and errors are those of `score_actions`."""
    config = config or SwapConfig()
    scores: ActionScores = score_actions(batch, scorer, chat, rng, config, answers=answers, progress=progress)
    return Causality(
        swap=swap_test(scores, rng, config),
        counterfactual=counterfactual_test(scores, rng, config),
        coverage=scores.coverage,
        turns=scores.turns,
        without_donor=scores.without_donor,
        answers=scores.answers,
    )


def swap_metrics(
    batch: RolloutBatch,
    scorer: Scorer,
    chat: ChatFormat,
    rng: np.random.Generator,
    config: SwapConfig | None = None,
    *,
    answers: Mapping[str, Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> dict[str, float | str]:
    """`collapse/swap/…` of a batch; `collapse/swap/skipped` with the reason, in words, where it could not be measured."""
    try:
        return dict(causality_test(batch, scorer, chat, rng, config, answers=answers, progress=progress).metrics())
    except NotMeasurable as error:
        return {f"{WHERE}/skipped": error.reason}


def _moved_figures(kind: str, moved: Moved | None) -> dict[str, float]:
    if moved is None:
        return {}
    names = ("total_variation", "jensen_shannon", "changed")
    found = {key: value for name in names for key, value in _figures(f"{kind}/{name}", getattr(moved, name)).items()}
    return {**found, f"{kind}/pairs": float(moved.pairs)}


def _figures(name: str, item: Estimate | None) -> dict[str, float]:
    return {} if item is None else {name: item.value, f"{name}_low": item.low, f"{name}_high": item.high}
