"""Named series of readings by step, and the signals of a run picked out of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import numpy as np

Points = Sequence[tuple[int, float]]
"""(step, value) pairs."""

VIEWS = ("probe", "first_turn", "trajectory")
"""Views of mutual information, the most readable first: the probe has the highest ceiling and always the same prompts."""

VALIDATION_SUCCESS = re.compile(r"validation/(?:[^/]+/)?success")


@dataclass(frozen=True)
class Series:
    """Finite readings in order of step, one a step: `steps_K` int64, `values_K` float64."""

    steps_K: np.ndarray
    values_K: np.ndarray

    @classmethod
    def of(cls, points: Points | None) -> Series:
        """Sorted by step; NaN and infinite readings are left out; of several readings of one step the last counts."""
        readings = {int(step): float(value) for step, value in points or () if math.isfinite(value)}
        steps = sorted(readings)
        return cls(np.array(steps, dtype=np.int64), np.array([readings[step] for step in steps], dtype=np.float64))

    def __len__(self) -> int:
        return len(self.steps_K)

    @property
    def start(self) -> float:
        """First reading."""
        return float(self.values_K[0])

    @property
    def smoothed_K(self) -> np.ndarray:
        """Median of the last three readings at each step; the first two readings stand as they are."""
        values = self.values_K
        if len(values) < 3:
            return values.copy()
        triples = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)
        return np.concatenate([values[:2], triples])

    @property
    def best_K(self) -> np.ndarray:
        """Reference for a signal that should be high: its start or, when better, its best smoothed value so far."""
        smoothed = self.smoothed_K.copy()
        smoothed[1:2] = smoothed[0]
        return np.maximum.accumulate(np.maximum(smoothed, self.start))

    @property
    def last(self) -> float:
        """Last smoothed value."""
        return float(self.smoothed_K[-1])

    def share(self, reference_K: np.ndarray | float) -> Series:
        """Readings divided by a reference above zero."""
        return Series(self.steps_K, self.values_K / reference_K)

    def at_most(self, step: int) -> Series:
        """Readings up to and including a step."""
        keep = self.steps_K <= step
        return Series(self.steps_K[keep], self.values_K[keep])


@dataclass(frozen=True)
class Signals:
    """The signals a verdict is made from; an empty series is one that was not logged."""

    success: Series
    success_kind: str
    """validation, train, return (shifted to start at its lowest reading) or none."""
    episodes: float | None
    """Validation episodes a reading, where logged."""
    valid_think: Series
    valid_action: Series
    mi_share: Series
    """Mutual information divided by its ceiling, from `mi_view`."""
    mi_view: str | None
    mi_left_out: int
    """Readings of mutual information left out because too few prompts competed."""
    reasoning_entropy: Series
    """H(Z|X) a token, from the same view."""
    policy_entropy: Series
    length: Series
    reward_spread: Series
    """Mean deviation of the returns of a group (or the square root of the mean variance)."""
    train_success: Series
    missing: tuple[str, ...] = field(default=())


def pick_signals(series: Mapping[str, Points], min_prompts: int) -> Signals:
    """Signals out of series named like our metrics. Mutual information with fewer than `min_prompts` prompts is left out: its
    ceiling has shrunk with the prompts that still parse."""
    success, kind, episodes = _outcome(series)
    view = next((name for name in VIEWS if len(Series.of(series.get(f"collapse/{name}/mi_sequence")))), None)
    mi_share, left_out = _mi_share(series, view, min_prompts) if view else (Series.of(None), 0)
    signals = {
        "valid_think": Series.of(series.get("collapse/valid_think_rate")),
        "valid_action": Series.of(series.get("collapse/valid_action_rate")),
        "policy_entropy": Series.of(series.get("policy/entropy")),
        "length": Series.of(series.get("train/response_length")),
        "reward_spread": _reward_spread(series),
        "train_success": Series.of(series.get("train/success")),
        "reasoning_entropy": Series.of(series.get(f"collapse/{view}/conditional_entropy_token")),
    }
    wanted = {
        "validation/<env>/success": kind == "validation",
        "collapse/valid_think_rate": len(signals["valid_think"]) > 0,
        "collapse/first_turn/mi_sequence with mi_upper_bound": len(mi_share) > 0,
        "policy/entropy": len(signals["policy_entropy"]) > 0,
    }
    missing = tuple(name for name, present in wanted.items() if not present)
    return Signals(
        success=success,
        success_kind=kind,
        episodes=episodes,
        mi_share=mi_share,
        mi_view=view,
        mi_left_out=left_out,
        missing=missing,
        **signals,
    )


def series_from_records(records: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Series out of metrics records, one mapping a step with a whole number under `step`; what is no number is no reading."""
    series: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        for name in record:
            value = number(record, name) if name != "step" else None
            if value is not None:
                series.setdefault(name, []).append((int(record["step"]), value))
    return series


def number(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric as a finite float, None where it is missing or something else."""
    value = metrics.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def mean_series(parts: Sequence[Series]) -> Series:
    """Mean over series at the steps where all of them have a reading (one series: itself)."""
    common = set(parts[0].steps_K.tolist()).intersection(*(part.steps_K.tolist() for part in parts))
    tables = [dict(zip(part.steps_K.tolist(), part.values_K.tolist(), strict=True)) for part in parts]
    return Series.of([(step, fmean(table[step] for table in tables)) for step in sorted(common)])


def _outcome(series: Mapping[str, Points]) -> tuple[Series, str, float | None]:
    train = Series.of(series.get("train/success"))
    names = [name for name in series if VALIDATION_SUCCESS.fullmatch(name) and len(Series.of(series[name]))]
    validation = mean_series([Series.of(series[name]) for name in sorted(names)]) if names else Series.of(None)
    if len(validation) >= 2 or (len(validation) and not len(train)):
        counts = [Series.of(series.get(name.removesuffix("success") + "episodes")) for name in names]
        episodes = sum(median(count.values_K.tolist()) for count in counts) if all(len(count) for count in counts) else None
        return validation, "validation", episodes
    if len(train):
        return train, "train", None
    for name in ("train/task_return", "train/return"):
        returns = Series.of(series.get(name))
        if len(returns):
            return Series(returns.steps_K, returns.values_K - returns.values_K.min()), "return", None
    return Series.of(None), "none", None


def _reward_spread(series: Mapping[str, Points]) -> Series:
    spread = Series.of(series.get("collapse/reward_spread"))
    if len(spread):
        return spread
    variance = Series.of(series.get("collapse/reward_variance"))
    return Series(variance.steps_K, np.sqrt(np.maximum(variance.values_K, 0.0)))


def _mi_share(series: Mapping[str, Points], view: str, min_prompts: int) -> tuple[Series, int]:
    information = Series.of(series.get(f"collapse/{view}/mi_sequence"))
    ceiling = dict(series.get(f"collapse/{view}/mi_upper_bound") or ())
    lowest = math.log(min_prompts) - 1e-6
    kept = [
        (int(step), float(value) / ceiling[int(step)])
        for step, value in zip(information.steps_K, information.values_K, strict=True)
        if ceiling.get(int(step), 0.0) >= lowest
    ]
    return Series.of(kept), len(information) - len(kept)
