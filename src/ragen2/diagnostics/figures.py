"""The few figures by which runs are compared: success, valid thinking, mutual information, entropy, at the start and the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragen2.diagnostics.series import Points, Series, pick_signals
from ragen2.diagnostics.verdict_config import VerdictConfig


@dataclass(frozen=True)
class Course:
    """A signal from its first to its last reading. `best` is the highest single reading, at `best_step`."""

    first: float
    best: float
    best_step: int
    last: float
    readings: int

    @classmethod
    def of(cls, series: Series) -> Course | None:
        """None for a series without readings."""
        if not len(series):
            return None
        values_K, where = series.values_K, int(series.values_K.argmax())
        return cls(float(values_K[0]), float(values_K[where]), int(series.steps_K[where]), float(values_K[-1]), len(series))


@dataclass(frozen=True)
class RunFigures:
    """`success_kind` is validation, train, return (then `success` holds returns) or none. `mi_share` is mutual information
    divided by its ceiling, or as it was logged when not `mi_scaled`, from the view `mi_view`. A course is None where the log has
    no reading of it."""

    success: Course | None
    success_kind: str
    valid_think: Course | None
    mi_share: Course | None
    mi_view: str | None
    mi_scaled: bool
    policy_entropy: Course | None


def run_figures(series: Mapping[str, Points], config: VerdictConfig | None = None) -> RunFigures:
    """Figures out of series in our metric names. The signals are those the verdict is made from."""
    signals = pick_signals(series, (config or VerdictConfig()).min_prompts)
    success = _raw_returns(series) if signals.success_kind == "return" else signals.success
    return RunFigures(
        success=Course.of(success),
        success_kind=signals.success_kind,
        valid_think=Course.of(signals.valid_think),
        mi_share=Course.of(signals.mi_share),
        mi_view=signals.mi_view,
        mi_scaled=signals.mi_scaled,
        policy_entropy=Course.of(signals.policy_entropy),
    )


def _raw_returns(series: Mapping[str, Points]) -> Series:
    """Returns as logged: the verdict shifts them to start at 0, a reader wants to see his own numbers."""
    found = (Series.of(series.get(name)) for name in ("train/task_return", "train/return"))
    return next((returns for returns in found if len(returns)), Series.of(None))
