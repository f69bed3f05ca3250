"""Mutual information of one step of a rollout file, in the first-turn and the trajectory view."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ragen2.diagnostics.cross_score import Progress, Scorer
from ragen2.diagnostics.rollout_files.reservoir import Kept, Prompts, Reservoir
from ragen2.diagnostics.rollout_files.token_ids import TokenIds
from ragen2.diagnostics.slice_measures import Resampling, measure_view, together
from ragen2.diagnostics.views import MIN_TRAJECTORY_PROMPTS, Slice, View, content_key
from ragen2.trajectory import Ids


def first_turn_of(reservoir: Reservoir, ids: TokenIds) -> View:
    """All kept prompts of an environment compete, each with its kept reasonings."""
    slices, skipped = [], []
    for environment, prompts in reservoir.first.items():
        part, left_out = _slice(environment, 0, prompts, ids)
        slices.append(part)
        skipped += left_out
    turns, dropped = _counts(reservoir.first.values())
    return View("first_turn", tuple(slices), turns, {"any": dropped} if dropped else {}, tuple(skipped))


def trajectory_of(reservoir: Reservoir, ids: TokenIds) -> View:
    """For each turn index one turn a prompt; an index with few distinct contexts is skipped, and said so."""
    slices, skipped = [], []
    for (environment, turn), prompts in sorted(reservoir.by_turn.items()):
        part, left_out = _slice(environment, turn, prompts, ids)
        skipped += left_out
        if len(part.contexts) < MIN_TRAJECTORY_PROMPTS:
            skipped.append(f"turn {turn}: fewer than {MIN_TRAJECTORY_PROMPTS} distinct contexts")
        else:
            slices.append(part)
    turns, dropped = _counts(reservoir.by_turn.values())
    return View("trajectory", tuple(slices), turns, {"any": dropped} if dropped else {}, tuple(skipped))


def view_figures(view: View, scorer: Scorer, rng: np.random.Generator, progress: Progress | None = None) -> dict[str, float]:
    """Figures of a view: those of `together` and counts of turns. Raises NotMeasurable with the reason."""
    measures, _ = measure_view(view, scorer, rng, Resampling(), progress)
    figures, _ = together(measures, rng, Resampling())
    figures |= {"turns": view.turns, "dropped_turns": sum(view.dropped.values()), "empty_reasonings": view.empty}
    return {name: float(value) for name, value in figures.items() if not math.isnan(value)}


def _slice(environment: str, turn: int, prompts: Prompts, ids: TokenIds) -> tuple[Slice, list[str]]:
    """The kept prompts as ids. Equal ids are one context. What is too long for the scorer is left out, and said."""
    # The order of the ranks, not of arrival: the same prompts in another order of lines give the same slice.
    kept = [item for _, item in sorted(prompts.kept.values(), key=lambda pair: pair[0])]
    encoded = [_encoded(item, ids) for item in kept]
    longest = max((len(z) for pair in encoded if pair is not None for z in pair[1]), default=0)
    fits = [pair for pair in encoded if pair is not None and len(pair[0]) + longest <= ids.longest]
    contexts: dict[bytes, Ids] = {}
    column: dict[bytes, int] = {}
    reasonings: list[Ids] = []
    source: list[int] = []
    for context, said in fits:
        key = content_key(context)
        contexts.setdefault(key, context)
        number = column.setdefault(key, len(column))
        reasonings += said
        source += [number] * len(said)
    left_out = [f"a prompt longer than the scorer's {ids.longest} tokens"] if len(fits) < len(kept) else []
    return Slice(environment, turn, tuple(contexts.values()), tuple(reasonings), np.array(source, dtype=np.int64)), left_out


def _encoded(item: Kept, ids: TokenIds) -> tuple[Ids, list[Ids]] | None:
    """Ids of a context and its reasonings, those left out that take more than half of what the scorer can read."""
    context = ids.context(item.context)
    said = [ids.reasoning(value) for value in item.reasonings]
    return None if context is None else (context, [z for z in said if z is not None and len(z) <= ids.longest // 2])


def _counts(parts: Iterable[Prompts]) -> tuple[int, int]:
    parts = list(parts)
    return sum(part.turns for part in parts), sum(part.dropped for part in parts)
