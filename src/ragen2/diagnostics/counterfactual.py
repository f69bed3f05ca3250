"""Counterfactual test: change the observation and keep the reasoning, change the reasoning and keep the observation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.action_distance import total_variation
from ragen2.diagnostics.action_scores import ActionScores, SwapConfig
from ragen2.diagnostics.prompt_bootstrap import Estimate, by_prompt, estimate, from_draws, prompt_draws
from ragen2.errors import NotMeasurable

STILL = 0.05
"""Effects below this total variation count as none: the action hardly moves whatever is changed."""

MOST, LEAST = 2 / 3, 1 / 3
"""From this share of the effects on, the action is said to follow the reasoning; up to that share, the observation."""

CAVEAT = (
    "Mutual information says whether the reasoning depends on the input, these figures whether the action depends on the "
    "reasoning; neither says that the reasoning or the action is right."
)


@dataclass(frozen=True)
class Counterfactual:
    """The 2 x 2 of context and reasoning, each kept or another prompt's: distances in total variation, means over prompts.

    `observation_changed` is p(a | x', z) against p(a | x, z): what the action takes from the context beyond the reasoning.
    `reasoning_changed` is p(a | x, z') against it, `both_changed` p(a | x', z'). `effect_of_reasoning` averages the change of
    reasoning over both contexts, `effect_of_observation` the change of context over both reasonings. `reasoning_share` is the
    first over the sum of the two; None where nothing moves the action.
    """

    observation_changed: Estimate
    reasoning_changed: Estimate
    both_changed: Estimate
    effect_of_reasoning: Estimate
    effect_of_observation: Estimate
    reasoning_share: Estimate | None
    pairs: int

    def describe(self) -> str:
        """What the figures mean, in sentences."""
        figures = (
            f"Changing the reasoning alone moves the action by {self.effect_of_reasoning}, changing the observation alone by "
            f"{self.effect_of_observation}, changing both by {self.both_changed} (total variation)"
        )
        return f"{figures}: {self._conclusion()}. {CAVEAT}"

    def _conclusion(self) -> str:
        if self.reasoning_share is None:
            return "nothing moves the action, it is the same everywhere"
        share = f"{self.reasoning_share.value:.0%} of the effects come from the reasoning"
        if self.reasoning_share.value >= MOST:
            return f"the action follows the reasoning ({share})"
        if self.reasoning_share.value <= LEAST:
            return f"the action follows the observation and hardly uses the reasoning ({share})"
        return f"the action uses both ({share})"


def counterfactual_test(scores: ActionScores, rng: np.random.Generator, config: SwapConfig | None = None) -> Counterfactual:
    """The decomposition from scored answers, with bootstrap intervals over prompts. Raises NotMeasurable without a pair."""
    config = config or SwapConfig()
    pairs = scores.prompts
    if not pairs.prompt_N:
        raise NotMeasurable("no pair of turns to change observations between")
    draws_BP = prompt_draws(pairs.prompt_N, rng, config.resamples)
    observation_N = total_variation(pairs.own_NA, pairs.moved_NA)
    reasoning_N = total_variation(pairs.own_NA, pairs.swapped_NA)
    # Each effect is the mean over the two values of what is kept.
    of_reasoning_N = 0.5 * (reasoning_N + total_variation(pairs.moved_NA, pairs.donor_NA))
    of_observation_N = 0.5 * (observation_N + total_variation(pairs.swapped_NA, pairs.donor_NA))

    def mean(values_N: np.ndarray) -> Estimate:
        return estimate(values_N, pairs.prompt_N, draws_BP, config.level)

    return Counterfactual(
        observation_changed=mean(observation_N),
        reasoning_changed=mean(reasoning_N),
        both_changed=mean(total_variation(pairs.own_NA, pairs.donor_NA)),
        effect_of_reasoning=mean(of_reasoning_N),
        effect_of_observation=mean(of_observation_N),
        reasoning_share=_share(of_reasoning_N, of_observation_N, pairs.prompt_N, draws_BP, config.level),
        pairs=len(pairs.prompt_N),
    )


def _share(
    reasoning_N: np.ndarray, observation_N: np.ndarray, prompt_N: tuple[bytes, ...], draws_BP: np.ndarray, level: float
) -> Estimate | None:
    sums_P, counts_P = by_prompt(reasoning_N, prompt_N)
    reasoning_P = sums_P / counts_P
    observation_P = by_prompt(observation_N, prompt_N)[0] / counts_P
    if max(reasoning_P.mean(), observation_P.mean()) < STILL:
        return None
    reasoning_B, observation_B = draws_BP @ reasoning_P, draws_BP @ observation_P
    total_B = reasoning_B + observation_B
    drawn_B = reasoning_B[total_B > 0] / total_B[total_B > 0]
    value = reasoning_P.sum() / (reasoning_P.sum() + observation_P.sum())
    return from_draws(float(value), drawn_B, len(reasoning_P), level)
