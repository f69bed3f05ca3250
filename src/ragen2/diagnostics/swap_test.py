"""Swap test: put another reasoning before the action and see how far the action's distribution moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.action_distance import jensen_shannon_distance, total_variation
from ragen2.diagnostics.action_scores import ActionScores, SwapConfig
from ragen2.diagnostics.prompt_bootstrap import Estimate, estimate, prompt_draws
from ragen2.errors import NotMeasurable


@dataclass(frozen=True)
class Moved:
    """How far p(a | x, z') is from p(a | x, z), means over prompts."""

    total_variation: Estimate
    jensen_shannon: Estimate
    """Square root of the divergence in bits."""
    changed: Estimate
    """Share of pairs in which the likeliest answer is another one."""
    pairs: int


@dataclass(frozen=True)
class SwapTest:
    """The swap test of a batch.

    `other_prompt` moves in another prompt's reasoning. `follows` is the share of these pairs in which the likeliest answer then
    is the donor's likeliest. Many donors would have answered the same anyway: among the pairs whose likeliest answers differ,
    `follows_reasoning` is that share, `kept_own` the share in which the turn's own likeliest answer stays (the observation
    decides); both are None where no such pair exists. `other_sample` moves in a different reasoning sampled in the very same
    context (None where there is none): mostly another wording of the same plan.
    """

    other_prompt: Moved
    follows: Estimate
    follows_reasoning: Estimate | None
    kept_own: Estimate | None
    differing_pairs: int
    other_sample: Moved | None

    def describe(self) -> str:
        """The figures in words."""
        moved = self.other_prompt
        text = (
            f"Another prompt's reasoning moves the action's distribution by {moved.total_variation} in total variation and "
            f"changes the likeliest answer in {moved.changed} of {moved.pairs} pairs."
        )
        if self.follows_reasoning is not None and self.kept_own is not None:
            text += (
                f" Where the two turns would answer differently ({self.differing_pairs} pairs), the action follows the "
                f"swapped-in reasoning in {self.follows_reasoning} and stays as the observation had it in {self.kept_own}."
            )
        if self.other_sample is not None:
            text += f" Another sample's reasoning for the same prompt moves it by {self.other_sample.total_variation}."
        return text


def swap_test(scores: ActionScores, rng: np.random.Generator, config: SwapConfig | None = None) -> SwapTest:
    """The swap test from scored answers, with bootstrap intervals over prompts. Raises NotMeasurable without a pair."""
    config = config or SwapConfig()
    pairs = scores.prompts
    if not pairs.prompt_N:
        raise NotMeasurable("no pair of turns to swap reasonings between")
    draws_BP = prompt_draws(pairs.prompt_N, rng, config.resamples)
    own_N, new_N, donor_N = (table.argmax(axis=1) for table in (pairs.own_NA, pairs.swapped_NA, pairs.donor_NA))
    differs_N = own_N != donor_N
    followed = kept = None
    if differs_N.any():
        followed = estimate(np.where(differs_N, new_N == donor_N, np.nan), pairs.prompt_N, draws_BP, config.level, share=True)
        kept = estimate(np.where(differs_N, new_N == own_N, np.nan), pairs.prompt_N, draws_BP, config.level, share=True)
    samples = scores.samples
    other_sample = None
    if samples.prompt_N:
        sample_draws_BP = prompt_draws(samples.prompt_N, rng, config.resamples)
        other_sample = _moved(samples.own_NA, samples.swapped_NA, samples.prompt_N, sample_draws_BP, config.level)
    return SwapTest(
        other_prompt=_moved(pairs.own_NA, pairs.swapped_NA, pairs.prompt_N, draws_BP, config.level),
        follows=estimate(new_N == donor_N, pairs.prompt_N, draws_BP, config.level, share=True),
        follows_reasoning=followed,
        kept_own=kept,
        differing_pairs=int(differs_N.sum()),
        other_sample=other_sample,
    )


def _moved(before_NA: np.ndarray, after_NA: np.ndarray, prompt_N: tuple[bytes, ...], draws_BP: np.ndarray, level: float) -> Moved:
    changed_N = before_NA.argmax(axis=1) != after_NA.argmax(axis=1)
    return Moved(
        total_variation=estimate(total_variation(before_NA, after_NA), prompt_N, draws_BP, level),
        jensen_shannon=estimate(jensen_shannon_distance(before_NA, after_NA), prompt_N, draws_BP, level),
        changed=estimate(changed_N, prompt_N, draws_BP, level, share=True),
        pairs=len(prompt_N),
    )
