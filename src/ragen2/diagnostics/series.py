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
    """Mutual information divided by its ceiling, from `mi_view`; as it was logged when not `mi_scaled`."""
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
    truncated: Series
    """Share of replies cut at the token limit."""
    mi_scaled: bool = True
    """False where no ceiling was logged: such readings are only compared with each other."""
    missing: tuple[str, ...] = field(default=())

    @property
    def tell_of_collapse(self) -> bool:
        """Whether anything was logged that shows a collapse before success does."""
        shown = (self.valid_think, self.valid_action, self.mi_share, self.policy_entropy, self.reasoning_entropy)
        return any(len(series) for series in shown)


def pick_signals(series: Mapping[str, Points], min_prompts: int) -> Signals:
    """Signals out of series named like our metrics. Mutual information with fewer than `min_prompts` prompts is left out: its
    ceiling has shrunk with the prompts that still parse."""
    success, kind, episodes = _outcome(series)
    valid_think = Series.of(series.get("collapse/valid_think_rate"))
    information = _information(series, valid_think, min_prompts)
    signals = {
        "valid_think": valid_think,
        "valid_action": Series.of(series.get("collapse/valid_action_rate")),
        "policy_entropy": Series.of(series.get("policy/entropy")),
        "length": Series.of(series.get("train/response_length")),
        "truncated": Series.of(series.get("train/truncated_rate")),
        "reward_spread": _reward_spread(series),
        "train_success": Series.of(series.get("train/success")),
        "reasoning_entropy": _reasoning_entropy(series, information.view),
    }
    wanted = {
        "validation/<env>/success": kind == "validation",
        "collapse/valid_think_rate": len(valid_think) > 0,
        "collapse/first_turn/mi_sequence with mi_upper_bound": len(information.share) > 0 and information.scaled,
        "policy/entropy": len(signals["policy_entropy"]) > 0,
    }
    return Signals(
        success=success,
        success_kind=kind,
        episodes=episodes,
        mi_share=information.share,
        mi_view=information.view,
        mi_left_out=information.left_out,
        mi_scaled=information.scaled,
        missing=tuple(name for name, present in wanted.items() if not present),
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
    parts = [Series.of(series[name]) for name in sorted(names)]
    validation = mean_series(parts) if parts else Series.of(None)
    if len(validation) < 2 and parts:
        # Test sets that are never measured together: the one that is measured most.
        validation = max(parts, key=len)
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


@dataclass(frozen=True)
class _Information:
    share: Series
    view: str | None
    left_out: int = 0
    scaled: bool = True


def _information(series: Mapping[str, Points], valid_think: Series, min_prompts: int) -> _Information:
    """Mutual information of the most readable view: divided by its ceiling; without one, compared with itself."""
    for view in VIEWS:
        values = Series.of(series.get(f"collapse/{view}/mi_sequence"))
        ceiling = dict(series.get(f"collapse/{view}/mi_upper_bound") or ())
        if len(values) and ceiling:
            lowest = math.log(min_prompts) - 1e-6
            pairs = zip(values.steps_K.tolist(), values.values_K.tolist(), strict=True)
            kept = [(step, value / ceiling[step]) for step, value in pairs if ceiling.get(step, 0.0) >= lowest]
            return _Information(Series.of(kept), view, len(values) - len(kept))
    # Other depths compete in the trajectory view of other trainers, so only the first turn's falls to 0 with its dependence.
    for name in ("probe/mi_sequence", "first_turn/mi_sequence", "first_turn/mi_token"):
        values = Series.of(series.get(f"collapse/{name}"))
        if len(values):
            kept = _while_most_parse(values, valid_think)
            return _Information(kept, name.partition("/")[0], len(values) - len(kept), scaled=False)
    return _Information(Series.of(None), None)


def _while_most_parse(values: Series, valid_think: Series) -> Series:
    """Readings while at least half as many replies parse as at best: where no number of prompts was logged, the prompts that
    still compete shrink unseen."""
    if not len(valid_think):
        return values
    rate_K = valid_think.values_K / np.maximum(valid_think.best_K, 1e-12)
    last_K = np.searchsorted(valid_think.steps_K, values.steps_K, side="right") - 1
    keep_K = (last_K < 0) | (rate_K[np.maximum(last_K, 0)] >= 0.5)
    return Series(values.steps_K[keep_K], values.values_K[keep_K])


def _reasoning_entropy(series: Mapping[str, Points], view: str | None) -> Series:
    """H(Z|X) a token of the view; of another one where that was not logged."""
    names = [view] if view else []
    found = (Series.of(series.get(f"collapse/{name}/conditional_entropy_token")) for name in (*names, *VIEWS))
    return next((entropy for entropy in found if len(entropy)), Series.of(None))
