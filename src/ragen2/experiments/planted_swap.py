"""Two policies whose reasoning says equally little about the input: the action of one ignores it, that of the other follows it.

Mutual information and entropy cannot tell them apart; the swap test can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.action_scores import SwapConfig
from ragen2.diagnostics.swap_metrics import Causality
from ragen2.envs.base import Demonstration
from ragen2.experiments.planted_series import Note, SeriesConfig, train_steps
from ragen2.experiments.plants import Plant, obedient, template
from ragen2.training.causality import measure_policy
from ragen2.training.config import RunConfig
from ragen2.training.setup import Parts, build_parts

SEED = 0x5A47


@dataclass(frozen=True)
class Cause:
    """What the swap test says of a planted policy, beside what the other diagnostics say of it."""

    plant: str
    causality: Causality
    figures: dict[str, float | str]

    def describe(self) -> str:
        """One line for people."""
        information = self.figures.get("collapse/first_turn/mi_ratio", float("nan"))
        swap, table = self.causality.swap, self.causality.counterfactual
        parts = [
            f"MI/ceiling {information:.2f}",
            f"effect of the reasoning {table.effect_of_reasoning}, of the observation {table.effect_of_observation}",
            f"share of the reasoning {table.reasoning_share}",
            f"where two turns differ, the action follows the reasoning in {swap.follows_reasoning} and stays with the "
            f"observation in {swap.kept_own}",
        ]
        return f"{self.plant}: {'; '.join(parts)}"


def compare_causes(
    config: RunConfig,
    pool: Sequence[Demonstration],
    settings: SeriesConfig,
    *,
    steps: int,
    levels: int = 24,
    samples: int = 2,
    swap: SwapConfig | None = None,
    note: Note = print,
) -> tuple[Cause, Cause]:
    """Train both policies from the same start for `steps` measured steps' worth of optimiser steps, and test them.

    The first draws its reasoning from the pool and acts on the observation, the second draws the same reasoning and does what
    it says.
    """
    found = []
    for plant in (template(pool), obedient(pool)):
        parts = train_fully(config, plant, settings, steps)
        found.append(measure_cause(config, plant, parts, levels=levels, samples=samples, swap=swap))
        note(found[-1].describe())
    return found[0], found[1]


def train_fully(config: RunConfig, plant: Plant, settings: SeriesConfig, steps: int) -> Parts:
    """The configuration's model after `steps` steps on planted demonstrations alone."""
    parts = build_parts(config, config.model.name)
    for _ in train_steps(config, parts, plant, settings, range(1, steps + 1), share=lambda step: 1.0):
        continue
    return parts


def measure_cause(
    config: RunConfig, plant: Plant, parts: Parts, *, levels: int = 24, samples: int = 2, swap: SwapConfig | None = None
) -> Cause:
    """The swap test of a planted policy on held-out levels."""
    rng = np.random.default_rng(SEED)
    swap = swap or SwapConfig(turns=48, donors=2)
    causality, figures = measure_policy(config, parts, rng, swap, levels=levels, samples=samples)
    return Cause(plant.name, causality, figures)
