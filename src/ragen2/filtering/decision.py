"""What the filter decided, with the reason in words and the numbers worth logging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FilterDecision:
    """`kept_P` marks the groups to train on, `scores_P` is what they were ranked by, `reason` says why in a sentence.

    `zero_P` marks groups with a score of 0; `gated` is True when spreads were alike and nothing was dropped for it;
    `spread_ratio` is the std / mean of the groups' return deviations (0 when all are 0); `loss_scale` is the factor that
    `loss_scaling` asks for.
    """

    kept_P: np.ndarray
    scores_P: np.ndarray
    reason: str
    zero_P: np.ndarray
    gated: bool = False
    spread_ratio: float = 0.0
    loss_scale: float = 1.0

    @property
    def kept_groups(self) -> int:
        """Number of groups kept."""
        return int(self.kept_P.sum())

    @property
    def kept_share(self) -> float:
        """Share of the groups kept."""
        return self.kept_groups / len(self.kept_P)

    @property
    def empty(self) -> bool:
        """Whether nothing was kept: no update."""
        return self.kept_groups == 0

    def metrics(self) -> dict[str, float]:
        """Flat numbers under `filter/`."""
        mean, deviation = float(self.scores_P.mean()), float(self.scores_P.std(ddof=min(1, len(self.scores_P) - 1)))
        # How uneven the groups are decides whether filtering can help: even scores leave nothing to choose.
        unevenness = {"filter/score_unevenness": deviation / mean} if mean > 0 else {}
        return {
            "filter/groups": float(len(self.kept_P)),
            "filter/kept_groups": float(self.kept_groups),
            "filter/kept_share": self.kept_share,
            "filter/zero_groups": float(self.zero_P.sum()),
            "filter/score_mean": mean,
            "filter/score_max": float(self.scores_P.max()),
            "filter/score_min": float(self.scores_P.min()),
            "filter/spread_ratio": self.spread_ratio,
            "filter/gated": float(self.gated),
            "filter/loss_scale": self.loss_scale,
            **unevenness,
        }
