"""Which signals turned before a collapse and which after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ragen2.diagnostics.outcome import Outcome
from ragen2.diagnostics.series import Series, Signals
from ragen2.diagnostics.tails import of_best
from ragen2.diagnostics.verdict_config import VerdictConfig

DOUBLED = 2.0
"""Entropy or length has grown for good from twice its start."""


@dataclass(frozen=True)
class SignalCrossing:
    """A signal that passed its threshold and mostly stayed beyond it. `lead` is in steps: above 0 it crossed before the onset,
    below 0 after it."""

    signal: str
    step: int
    lead: int

    @property
    def role(self) -> str:
        """led, decided (crossed with the onset) or lagged."""
        return "led" if self.lead > 0 else "lagged" if self.lead < 0 else "decided"


def crossings(signals: Signals, outcome: Outcome | None, onset: int | None, config: VerdictConfig) -> tuple[SignalCrossing, ...]:
    """Signals in the order in which they crossed. Empty without an onset, since there is nothing to lead or lag."""
    if onset is None:
        return ()
    found = [
        SignalCrossing(name, step, onset - step)
        for name, share, threshold in _watched(signals, outcome, config)
        if (step := _crossing(share, threshold, config.in_a_row)) is not None
    ]
    return tuple(sorted(found, key=lambda crossing: (crossing.step, crossing.signal)))


def in_words(found: tuple[SignalCrossing, ...]) -> str:
    """The order in one sentence; empty without crossings."""
    parts = []
    for crossing in found:
        steps = f"{abs(crossing.lead)} step{'s' if abs(crossing.lead) > 1 else ''}"
        when = "at the onset" if not crossing.lead else f"{steps} before" if crossing.lead > 0 else f"{steps} after"
        parts.append(f"{crossing.signal} ({when})")
    return "order of the signals: " + ", ".join(parts) if parts else ""


def _watched(signals: Signals, outcome: Outcome | None, config: VerdictConfig) -> Iterator[tuple[str, Series, float]]:
    """(name, what is compared, threshold it falls below). Growth is watched as start / value."""
    if len(signals.valid_think):
        yield "valid thinking", of_best(signals.valid_think), config.format_share
    if len(signals.valid_action):
        yield "valid actions", of_best(signals.valid_action), config.format_share
    if len(signals.mi_share):
        yield "mutual information", of_best(signals.mi_share), config.information_share
    if outcome is not None:
        yield "success", of_best(outcome.success), config.success_share
    for name, series in (("policy entropy", signals.policy_entropy), ("tokens a trajectory", signals.length)):
        if len(series) and series.start > 0:
            least = config.entropy_share if name == "policy entropy" else config.low_share
            yield f"{name} fell", series.share(series.start), least
            grown = Series(series.steps_K, series.start / series.values_K.clip(min=1e-12))
            yield f"{name} doubled", grown, 1 / DOUBLED
    spread = signals.reward_spread
    if len(spread) > 10 and float(spread.values_K[:10].mean()) > 0:
        yield "reward spread", spread.share(float(spread.values_K[:10].mean())), config.spread_share


def _crossing(share: Series, threshold: float, in_a_row: int) -> int | None:
    """The first step at which `in_a_row` readings in a row are beyond the threshold and more than half of all that follow are.

    Two readings are enough where they are the last: a signal that is measured seldom crosses late.
    """
    below_K = share.values_K < threshold
    for first in range(len(below_K)):
        rest_K = below_K[first:]
        stretch_K = rest_K[:in_a_row]
        if len(stretch_K) >= min(2, in_a_row) and stretch_K.all() and 2 * int(rest_K.sum()) > len(rest_K):
            return int(share.steps_K[first])
    return None
