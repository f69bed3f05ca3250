"""The charts of a diagnosed log: each signal with its threshold, the onset and the step from which the signal itself turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.examine import Examined
from ragen2.diagnostics.series import Series as Readings
from ragen2.diagnostics.series import Signals, pick_signals
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.reports.charts import COLOURS, Mark, Series, line_chart

MOST_POINTS = 800
"""A line of more readings is thinned: of each stretch its lowest and its highest stay."""
EARLY = 10
"""Readings in the early mean of the reward spread."""

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One chart of one run: lines of (label, readings), and the thresholds as dashed lines of the same form."""

    title: str
    lines: tuple[tuple[str, Readings], ...]
    thresholds: tuple[tuple[str, Readings], ...] = ()
    unit: str = ""
    rate: bool = False
    about: str = ""


def charts_html(run: Examined, config: VerdictConfig | None = None) -> str:
    """All charts of a run; signals that were not logged are left out."""
    config = config or VerdictConfig()
    signals = pick_signals(run.series, config.min_prompts)
    onset = run.diagnosis.onset_step
    figures = [_panel_html(panel, onset) for panel in _panels(signals, config)]
    found = "".join(figures)
    return f'<div class="charts">{found}</div>' if found else "<p>No curves: the log holds none of the signals.</p>"


def small_chart_html(run: Examined, title: str, config: VerdictConfig | None = None) -> str:
    """Success, valid thinking and mutual information of a run in one chart."""
    signals = pick_signals(run.series, (config or VerdictConfig()).min_prompts)
    success = signals.success if signals.success_kind in ("validation", "train") else signals.train_success
    information = _scaled_information(signals)
    lines = [("success", success), ("valid-think", signals.valid_think), ("MI / ceiling", information)]
    series = [Series(label, thin(points(readings)), colour=k) for k, (label, readings) in enumerate(lines) if len(readings)]
    return line_chart(title, series, rate=True, onset=run.diagnosis.onset_step)


def overlays_html(runs: Sequence[Examined], config: VerdictConfig | None = None) -> str:
    """One chart a signal with all runs in it, each in its own colour with its own onset; empty for more runs than colours."""
    if len(runs) > COLOURS:
        return ""
    config = config or VerdictConfig()
    signals = [pick_signals(run.series, config.min_prompts) for run in runs]
    marks = [
        Mark(run.diagnosis.onset_step, str(run.diagnosis.onset_step), k)
        for k, run in enumerate(runs)
        if run.diagnosis.onset_step is not None
    ]
    wanted = (
        ("Success", [_rate_of_success(item) for item in signals], True),
        ("Valid thinking", [item.valid_think for item in signals], True),
        ("Mutual information / ceiling", [_scaled_information(item) for item in signals], True),
        ("Policy entropy / its start", [_of_start(item.policy_entropy) for item in signals], False),
    )
    figures = []
    about = "Dotted: the onset of the run in that colour." if marks else ""
    for title, readings, rate in wanted:
        lines = [Series(run.name, thin(points(item)), colour=k) for k, (run, item) in enumerate(zip(runs, readings, strict=True))]
        figures.append(line_chart(title, lines, rate=rate, marks=marks, about=about))
    found = "".join(figures)
    return f'<div class="charts wide">{found}</div>' if found else ""


def points(readings: Readings) -> Points:
    """Readings as pairs of plain floats."""
    return list(zip(map(float, readings.steps_K.tolist()), readings.values_K.tolist(), strict=True))


def thin(line: Points, most: int = MOST_POINTS) -> Points:
    """At most about `most` points that keep every peak and dip: the lowest and the highest of each stretch, and both ends."""
    if len(line) <= most:
        return line
    stretches = np.array_split(np.arange(len(line)), most // 2)
    values = np.array([value for _, value in line])
    kept = {0, len(line) - 1}
    for places in stretches:
        kept |= {int(places[values[places].argmin()]), int(places[values[places].argmax()])}
    return [line[k] for k in sorted(kept)]


def _panels(signals: Signals, config: VerdictConfig) -> list[Panel]:
    success = signals.success if signals.success_kind != "return" else Readings.of(None)
    train = signals.train_success if signals.success_kind == "validation" else Readings.of(None)
    kind = "success in training" if signals.success_kind == "train" else "success on held-out levels"
    returns = signals.success if signals.success_kind == "return" else Readings.of(None)
    entropy = signals.policy_entropy
    return [
        Panel(
            "Success", ((kind, success), ("success in training", train)),
            _of_best("three quarters of its best: degrading below", success, config.degraded_share), rate=True,
        ),
        Panel("Return above its lowest reading", (("return", returns),)),
        Panel(
            "Well-formed replies", (("valid thinking", signals.valid_think), ("valid actions", signals.valid_action)),
            _of_best(f"{config.format_share:.0%} of the best: format is broken below", signals.valid_think, config.format_share),
            unit="share of turns", rate=True,
        ),
        _information_panel(signals, config),
        Panel(
            "Policy entropy", (("policy entropy", entropy),), _of_start_line(entropy, config.entropy_share),
            unit="as logged, a token or summed",
        ),
        Panel("H(Z|X) a token", (("conditional entropy of the reasoning", signals.reasoning_entropy),), unit="nats"),
        Panel(
            "Reward spread", (("deviation of the returns of a group", signals.reward_spread),),
            _early_mean(signals.reward_spread, config.spread_share),
        ),
        Panel("Length", (("tokens a trajectory", signals.length),), unit="tokens"),
    ]  # fmt: skip


def _information_panel(signals: Signals, config: VerdictConfig) -> Panel:
    lines = (((signals.mi_view or "").replace("_", " "), signals.mi_share),)
    below = f"{config.information_share:.0%} of the best: template below"
    thresholds = _of_best(below, signals.mi_share, config.information_share)
    if not signals.mi_scaled:
        return Panel("Mutual information", lines, thresholds, unit="as logged, no ceiling")
    about = "1: the reasoning singles out the prompt it was written for; 0: it fits any."
    return Panel("Mutual information / ceiling", lines, thresholds, rate=True, about=about)


def _scaled_information(signals: Signals) -> Readings:
    return signals.mi_share if signals.mi_scaled else Readings.of(None)


def _panel_html(panel: Panel, onset: int | None) -> str:
    lines = [Series(label, thin(points(item)), colour=k) for k, (label, item) in enumerate(panel.lines) if len(item)]
    if not lines:
        return ""
    dashed = [Series(label, thin(points(item)), dashed=True, colour=5) for label, item in panel.thresholds if len(item)]
    return line_chart(panel.title, [*lines, *dashed], unit=panel.unit, rate=panel.rate, onset=onset, about=panel.about)


def _of_best(label: str, readings: Readings, share: float) -> tuple[tuple[str, Readings], ...]:
    return ((label, Readings(readings.steps_K, share * readings.best_K)),) if len(readings) else ()


def _of_start_line(readings: Readings, share: float) -> tuple[tuple[str, Readings], ...]:
    if not len(readings):
        return ()
    return ((f"{share:.0%} of its start: gone below", _level(readings, share * readings.start)),)


def _early_mean(readings: Readings, share: float) -> tuple[tuple[str, Readings], ...]:
    if len(readings) < EARLY:
        return ()
    return ((f"{share:.0%} of its early mean: gone below", _level(readings, share * float(readings.values_K[:EARLY].mean()))),)


def _level(readings: Readings, value: float) -> Readings:
    ends = readings.steps_K[[0, -1]]
    return Readings(ends, np.full(2, value))


def _of_start(readings: Readings) -> Readings:
    return readings.share(readings.start) if len(readings) and readings.start > 0 else Readings.of(None)


def _rate_of_success(signals: Signals) -> Readings:
    return signals.train_success if signals.success_kind == "return" else signals.success
