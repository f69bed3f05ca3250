"""z-scores of mutual information against a running deviation of the marginals.

Source: the RAGEN-2 paper (arXiv 2604.06268), MI-ZScore-EMA: running = alpha * running + (1 - alpha) * batch, started at the first
batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ragen2.diagnostics.mutual_information import ZSCORE_EPSILON

FORMS = ("sequence", "token")


class RunningZScores:
    """One running deviation per view and form.

    A deviation below `floor` counts as `floor`, and batches of fewer than `min_samples` reasonings are left out: few or equal
    samples would make the score explode.
    """

    def __init__(self, alpha: float = 0.9, floor: float = 0.05, min_samples: int = 8) -> None:
        self.alpha, self.floor, self.min_samples = alpha, floor, min_samples
        self._running: dict[str, float] = {}

    def update(self, view: str, figures: Mapping[str, float]) -> dict[str, float]:
        """Take `mutual_information`'s figures; `mi_zscore_ema_sequence` and `mi_zscore_ema_token` where they can be computed."""
        scores: dict[str, float] = {}
        for form in FORMS:
            information, deviation = figures[f"mi_{form}"], figures[f"marginal_std_{form}"]
            if figures["num_samples"] < self.min_samples or math.isnan(information):
                continue
            key, deviation = f"{view}/{form}", max(deviation, self.floor)
            previous = self._running.get(key, deviation)
            self._running[key] = self.alpha * previous + (1 - self.alpha) * deviation
            scores[f"mi_zscore_ema_{form}"] = information / (self._running[key] + ZSCORE_EPSILON)
        return scores

    def state_dict(self) -> dict[str, Any]:
        """As plain data."""
        return dict(self._running)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._running = {str(key): float(value) for key, value in state.items()}
