"""Alarms while a run trains: the third reading in a row beyond its threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ragen2.diagnostics.series import VALIDATION_SUCCESS, VIEWS, number
from ragen2.diagnostics.verdict_config import VerdictConfig


@dataclass(frozen=True)
class Alarm:
    """A signal has been beyond its threshold for the number of readings in a row that counts as an onset."""

    verdict: str
    signal: str
    step: int
    message: str


@dataclass
class _Watch:
    """One signal: its reference, its last three readings, how many in a row were beyond the threshold, whether it has sounded."""

    reference: float = math.nan
    recent: list[float] = field(default_factory=list)
    count: int = 0
    sounded: bool = False

    def read(self, value: float, threshold: float, from_start: bool) -> None:
        """Take a reading. The reference is the start (`from_start`), or the best smoothed value so far when that is better."""
        if math.isnan(self.reference):
            self.reference = value
        below = self.reference > 0 and value < threshold * self.reference
        self.count = self.count + 1 if below else 0
        self.sounded = self.sounded and below
        self.recent = [*self.recent, value][-3:]
        if not from_start and len(self.recent) == 3:
            self.reference = max(self.reference, float(median(self.recent)))


@dataclass(frozen=True)
class _Reading:
    signal: str
    verdict: str
    value: float
    threshold: float
    from_start: bool = False

    @property
    def key(self) -> str:
        """A signal is watched once for each verdict."""
        return f"{self.signal} ({self.verdict})" if self.verdict == "degrading" else self.signal


class OnlineVerdict:
    """Watches format, mutual information, entropy and success. Each `update` returns the alarms that went off at this step.

    An alarm sounds once; when the signal recovers, it can sound again. Format sounds twice on its way down: as degrading, when a
    quarter is lost and there is time to act, and as format collapse. Low entropy sounds only while reasoning does not depend
    on the prompt either, or where no mutual information is measured: low entropy alone is compressed reasoning.
    """

    def __init__(self, config: VerdictConfig | None = None) -> None:
        self.config = config or VerdictConfig()
        self._watches: dict[str, _Watch] = {}

    def update(self, step: int, metrics: Mapping[str, Any]) -> list[Alarm]:
        """Take the metrics of a step; names as in `judge`, missing or non-finite ones are no readings."""
        alarms: list[Alarm] = []
        readings = self._readings(metrics)
        for reading in readings:
            watch = self._watches.setdefault(reading.key, _Watch())
            watch.read(reading.value, reading.threshold, reading.from_start)
        for reading in readings:
            watch = self._watches[reading.key]
            if not reading.verdict or watch.sounded or watch.count < self.config.in_a_row or not self._confirmed(reading):
                continue
            watch.sounded = True
            if reading.key != reading.signal and self._has_sounded(reading.signal):
                continue
            text = (
                f"{reading.signal} {reading.value:.3g} is below {reading.threshold:.0%} of its reference {watch.reference:.3g} "
                f"for {watch.count} readings in a row, at step {step}: {reading.verdict}"
            )
            alarms.append(Alarm(reading.verdict, reading.signal, step, text))
        return alarms

    def state_dict(self) -> dict[str, Any]:
        """As plain data (a reference not yet set is None)."""
        return {
            name: {
                "reference": None if math.isnan(watch.reference) else watch.reference,
                "recent": list(watch.recent),
                "count": watch.count,
                "sounded": watch.sounded,
            }
            for name, watch in self._watches.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._watches = {
            str(name): _Watch(
                math.nan if item["reference"] is None else float(item["reference"]),
                [float(value) for value in item["recent"]],
                int(item["count"]),
                bool(item["sounded"]),
            )
            for name, item in state.items()
        }

    def _has_sounded(self, signal: str) -> bool:
        """Whether the graver alarm of the same signal is on: then the milder one says nothing new."""
        return signal in self._watches and self._watches[signal].sounded

    def _confirmed(self, reading: _Reading) -> bool:
        if reading.signal != "policy/entropy":
            return True
        information = [watch for name, watch in self._watches.items() if name.endswith("/mi_ratio")]
        wording = [watch for name, watch in self._watches.items() if name.endswith("/conditional_entropy_token")]
        if any(watch.count == 0 for watch in wording):
            return False
        return not information or any(watch.count > 0 for watch in information)

    def _readings(self, metrics: Mapping[str, Any]) -> list[_Reading]:
        config = self.config
        rates = ("collapse/valid_think_rate", "collapse/valid_action_rate")
        found = [
            *(_reading(metrics, name, "format collapse", config.format_share) for name in rates),
            *(_reading(metrics, name, "degrading", config.degraded_share) for name in rates),
            _reading(metrics, "policy/entropy", "entropy collapse", config.entropy_share, from_start=True),
        ]
        found += [
            _reading(metrics, name, "degrading", config.success_share) for name in metrics if VALIDATION_SUCCESS.fullmatch(name)
        ]
        found += self._information(metrics)
        return [reading for reading in found if reading is not None]

    def _information(self, metrics: Mapping[str, Any]) -> list[_Reading | None]:
        """Readings of the most readable view that was measured; its H(Z|X) a token only confirms."""
        config = self.config
        for view in VIEWS:
            value, ceiling = number(metrics, f"collapse/{view}/mi_sequence"), number(metrics, f"collapse/{view}/mi_upper_bound")
            if value is None or ceiling is None or ceiling < math.log(config.min_prompts) - 1e-6:
                continue
            share = _Reading(f"collapse/{view}/mi_ratio", "template collapse", value / ceiling, config.information_alarm_share)
            wording = f"collapse/{view}/conditional_entropy_token"
            return [share, _reading(metrics, wording, "", config.low_share, from_start=True)]
        return []


def _reading(
    metrics: Mapping[str, Any], name: str, verdict: str, threshold: float, *, from_start: bool = False
) -> _Reading | None:
    value = number(metrics, name)
    return None if value is None else _Reading(name, verdict, value, threshold, from_start)
