"""Signals whose very last readings fell, too late to tell whether that lasts: no finding, but a reason to look again."""

from __future__ import annotations

import math

from ragen2.diagnostics.outcome import Outcome
from ragen2.diagnostics.series import Series, Signals
from ragen2.diagnostics.verdict_config import VerdictConfig


def late_falls(signals: Signals, outcome: Outcome | None, config: VerdictConfig) -> tuple[str, ...]:
    """A sentence for success and for valid thinking when the last reading is below `degraded_share` of the best one.

    Success must have fallen by more than `errors` standard errors of the difference too.
    """
    found = []
    if outcome is not None:
        noise = config.errors * math.sqrt(2) * outcome.standard_error
        found.append(_fall("success", outcome.success, noise, config))
    found.append(_fall("valid thinking", signals.valid_think, 0.0, config))
    return tuple(text for text in found if text)


def _fall(name: str, series: Series, noise: float, config: VerdictConfig) -> str | None:
    if len(series) < 2:
        return None
    best, last, step = float(series.best_K[-1]), float(series.values_K[-1]), int(series.steps_K[-1])
    if best <= 0 or last >= config.degraded_share * best or best - last <= noise:
        return None
    return (
        f"{name} is down to {last:.3g} from {best:.3g} in the last reading (step {step}), too late to tell whether that lasts: "
        "look at the next readings"
    )
