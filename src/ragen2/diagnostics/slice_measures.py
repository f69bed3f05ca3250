"""All measures of dependence of slices that were scored: figures, interval and permutation test, each slice alone or together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.bootstrap import PromptGaps, interval_from, prompt_gaps, resampled_mean
from ragen2.diagnostics.cross_score import Progress, Scorer, cross_score
from ragen2.diagnostics.mutual_information import mutual_information, weighted_mean
from ragen2.diagnostics.permutation import NullDraws, combined_test, null_draws
from ragen2.diagnostics.views import Slice, View
from ragen2.errors import NotMeasurable


@dataclass(frozen=True)
class Resampling:
    """How uncertainty is computed; 0 `resamples` leaves the interval out, 0 `permutations` the test."""

    level: float = 0.95
    resamples: int = 1000
    permutations: int = 999


@dataclass(frozen=True)
class SliceMeasure:
    """A scored slice: the figures of `mutual_information`, its gaps by prompt, and its information under permuted labels."""

    part: Slice
    figures: dict[str, float]
    gaps: PromptGaps
    null: NullDraws | None


def measure_slice(
    scorer: Scorer, part: Slice, rng: np.random.Generator, resampling: Resampling, progress: Progress | None = None
) -> SliceMeasure:
    """Score a slice and measure it. Raises NotMeasurable, naming the slice."""
    if len(part.contexts) < 2 or not part.reasonings:
        raise NotMeasurable(f"{part.where}: {len(part.contexts)} distinct contexts and {len(part.reasonings)} reasonings")
    sums_SN = cross_score(scorer, part.contexts, part.reasonings, progress)
    try:
        figures = mutual_information(sums_SN, part.lengths_S, part.source_S)
        gaps = prompt_gaps(sums_SN, part.source_S, prompts_N=part.prompt_labels)
        null = (
            null_draws(sums_SN, part.source_S, rng=rng, permutations=resampling.permutations) if resampling.permutations else None
        )
    except NotMeasurable as error:
        raise NotMeasurable(f"{part.where}: {error.reason}") from error
    return SliceMeasure(part, figures, gaps, null)


def measure_view(
    view: View, scorer: Scorer, rng: np.random.Generator, resampling: Resampling, progress: Progress | None = None
) -> tuple[list[SliceMeasure], list[str]]:
    """Measures of the slices that can be measured, and why others cannot. Raises NotMeasurable when none can."""
    measures: list[SliceMeasure] = []
    reasons = list(view.skipped)
    for part in view.slices:
        if len(part.contexts) < 2 or not part.reasonings:
            reasons.append(f"{part.where}: {len(part.contexts)} distinct contexts and {len(part.reasonings)} reasonings")
        else:
            measures.append(measure_slice(scorer, part, rng, resampling, progress))
    if not measures:
        raise NotMeasurable("; ".join(dict.fromkeys(reasons)) or "no turn has a reasoning")
    return measures, reasons


def together(
    measures: Sequence[SliceMeasure], rng: np.random.Generator, resampling: Resampling
) -> tuple[dict[str, float], dict[str, str]]:
    """Figures of slices, means weighted by reasonings, and in words what could not be computed.

    Beside the keys of `mutual_information`: `mi_ratio` (MI / ceiling), `mi_low`, `mi_high`, `mi_p_value`; in words
    `interval_skipped`, `p_value_skipped`. Raises NotMeasurable without a slice.
    """
    figures = weighted_mean([item.figures for item in measures])
    figures["mi_ratio"] = figures["mi_sequence"] / figures["mi_upper_bound"]
    reasons: dict[str, str] = {}
    if resampling.resamples:
        try:
            draws_B = resampled_mean([item.gaps for item in measures], rng, resampling.resamples)
            figures["mi_low"], figures["mi_high"] = interval_from(draws_B, figures["mi_upper_bound"], resampling.level)
        except NotMeasurable as error:
            reasons["interval_skipped"] = error.reason
    nulls = [item.null for item in measures if item.null is not None]
    if nulls:
        try:
            figures["mi_p_value"] = combined_test(nulls).p_value
        except NotMeasurable as error:
            reasons["p_value_skipped"] = error.reason
    return figures, reasons
