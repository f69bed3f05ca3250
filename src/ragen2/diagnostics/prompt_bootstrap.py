"""A mean over prompts with its bootstrap interval: prompts are resampled whole, since turns of one prompt are alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ragen2.errors import NotMeasurable


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts and the bounds of its interval; from a single prompt the bounds are the value."""

    value: float
    low: float
    high: float
    prompts: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def prompt_draws(prompt_N: Sequence[object], rng: np.random.Generator, resamples: int) -> np.ndarray:
    """How often each distinct prompt (in order of first appearance) is drawn in each resample: [resamples, prompts]."""
    count = len(dict.fromkeys(prompt_N))
    if count == 0:
        raise NotMeasurable("no prompts to average over")
    return rng.multinomial(count, np.full(count, 1.0 / count), size=resamples).astype(np.float64)


def estimate(
    values_N: ArrayLike, prompt_N: Sequence[object], draws_BP: np.ndarray, level: float = 0.95, *, share: bool = False
) -> Estimate:
    """Mean over prompts of the mean within each prompt, with a percentile interval from `prompt_draws` of the same prompts.

    NaN values are no readings; a prompt without a reading is left out. `share` says that the values are 0 or 1: where all of
    them agree, the bootstrap sees no spread, and the other bound is the exact binomial one for as many prompts. Raises
    NotMeasurable where no reading is left.
    """
    sums_P, counts_P = by_prompt(values_N, prompt_N)
    has_P = counts_P > 0
    if not has_P.any():
        raise NotMeasurable("no turn has this reading")
    means_P = np.where(has_P, sums_P / np.maximum(counts_P, 1.0), 0.0)
    value, prompts = float(means_P[has_P].mean()), int(has_P.sum())
    if share and value in (0.0, 1.0):
        far = float(((1 - level) / 2) ** (1 / prompts))
        return Estimate(value, far if value else 0.0, 1.0 if value else 1.0 - far, prompts)
    drawn_B = draws_BP @ has_P.astype(np.float64)
    kept_B = drawn_B > 0
    resampled_B = (draws_BP @ means_P)[kept_B] / drawn_B[kept_B]
    return from_draws(value, resampled_B, prompts, level)


def from_draws(value: float, resampled_B: np.ndarray, prompts: int, level: float) -> Estimate:
    """An estimate from its resampled values; without any, or from one prompt, the bounds are the value."""
    if prompts < 2 or not len(resampled_B):
        return Estimate(value, value, value, prompts)
    low, high = np.quantile(resampled_B, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, float(low), float(high), prompts)


def by_prompt(values_N: ArrayLike, prompt_N: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
    """Sums and numbers of the readings (NaN is none) of each distinct prompt, in order of first appearance."""
    values = np.asarray(values_N, dtype=np.float64)
    number = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompt_N))}
    place_N = np.array([number[prompt] for prompt in prompt_N], dtype=np.int64)
    read_N = ~np.isnan(values)
    sums = np.bincount(place_N[read_N], weights=values[read_N], minlength=len(number))
    return sums, np.bincount(place_N[read_N], minlength=len(number)).astype(np.float64)
