"""Which metrics are drawn together, and the charts of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragen2.reports.charts import Series, line_chart
from ragen2.reports.run_data import RunData

MOST_OTHER_CHARTS = 80
VIEWS = ("probe", "first_turn", "trajectory")
"""The probe first: it has the highest ceiling and always the same prompts."""


@dataclass(frozen=True)
class Chart:
    """A chart of the metrics that match `patterns`; those in `dashed` are references such as ceilings."""

    title: str
    patterns: tuple[str, ...]
    unit: str = ""
    rate: bool = False
    about: str = ""
    dashed: tuple[str, ...] = ()


CHARTS = (
    Chart("Success", ("validation/*/success", "train/success"), rate=True),
    Chart("Return", ("train/return", "train/task_return", "validation/*/return")),
    Chart("Kept groups", ("filter/kept_groups", "filter/groups"), dashed=("filter/groups",)),
    Chart("Well-formed replies", ("collapse/valid_think_rate", "collapse/valid_action_rate"), rate=True, unit="share of turns"),
    Chart("Policy entropy", ("policy/entropy",), unit="nats a token"),
    Chart("Conditional entropy of the reasoning", ("collapse/*/conditional_entropy_sequence",), unit="nats"),
    Chart("Response length", ("train/reply_length", "train/reasoning_length"), unit="tokens a turn"),
    Chart("Reward variance within groups", ("collapse/reward_variance",)),
    Chart("Clipped tokens", ("policy/clip_fraction",), unit="share of trained tokens"),
    Chart("Loss", ("policy/loss", "critic/loss")),
    Chart("Gradient norm", ("policy/gradient_norm", "critic/gradient_norm")),
    Chart("Divergence from the starting policy", ("policy/kl_from_start", "policy/kl"), unit="nats a token"),
    Chart(
        "Sampler-trainer mismatch",
        ("policy/mismatch_mean_abs", "policy/mismatch_max_abs"),
        unit="nats a token",
        about="Difference of the log-probabilities the sampler gave and the trainer computes for the same tokens.",
    ),
    Chart(
        "Time of an iteration",
        ("time/iteration", "time/rollout", "time/update", "time/monitor", "time/filter"),
        unit="seconds",
    ),
    Chart("Speed", ("speed/*",), unit="tokens a second"),
)


def curves_html(run: RunData, onset: float | None) -> str:
    """The main charts, those without numbers left out."""
    figures = [_chart_html(run, chart, onset) for chart in CHARTS]
    figures.insert(4, _mutual_information_html(run, onset))
    found = "".join(figures)
    return f'<div class="charts">{found}</div>' if found else ""


def other_curves_html(run: RunData, onset: float | None) -> str:
    """Every metric that no main chart shows, in a folded block."""
    shown = {name for chart in CHARTS for name in run.names(*chart.patterns)}
    shown |= {f"collapse/{view}/{part}" for view in VIEWS for part in ("mi_sequence", "mi_upper_bound")}
    others = [name for name in run.names("*") if name not in shown and run.series(name)]
    if not others:
        return ""
    figures = [line_chart(name, [Series(name, run.series(name))], onset=onset) for name in sorted(others)[:MOST_OTHER_CHARTS]]
    left = len(others) - len(figures)
    note = f"<p>{left} more are in metrics.jsonl.</p>" if left > 0 else ""
    return f'<details><summary>{len(figures)} charts</summary><div class="charts small">{"".join(figures)}</div>{note}</details>'


def relative_mutual_information(run: RunData, view: str) -> list[tuple[float, float]]:
    """(step, mutual information / its ceiling) of a view, where both were measured and the ceiling is positive."""
    ceiling = dict(run.series(f"collapse/{view}/mi_upper_bound"))
    points = run.series(f"collapse/{view}/mi_sequence")
    return [(step, value / ceiling[step]) for step, value in points if ceiling.get(step, 0.0) > 0]


def _mutual_information_html(run: RunData, onset: float | None) -> str:
    series = [Series(view.replace("_", " "), relative_mutual_information(run, view)) for view in VIEWS]
    about = (
        "How much the reasoning tells about the prompt it was written for: 1 means it singles out its prompt, 0 that it fits any."
    )
    return line_chart("Mutual information / ceiling", series, rate=True, onset=onset, about=about)


def _chart_html(run: RunData, chart: Chart, onset: float | None) -> str:
    names = run.names(*chart.patterns)
    series = [Series(name, run.series(name), name in chart.dashed) for name in names]
    return line_chart(chart.title, _shortened(series), unit=chart.unit, rate=chart.rate, onset=onset, about=chart.about)


def _shortened(series: Sequence[Series]) -> list[Series]:
    """Labels without what all of them share at the front."""
    if len(series) < 2:
        return list(series)
    parts = [line.label.split("/") for line in series]
    shared = 0
    while all(len(part) > shared + 1 for part in parts) and len({part[shared] for part in parts}) == 1:
        shared += 1
    return [Series("/".join(part[shared:]), line.points, line.dashed) for line, part in zip(series, parts, strict=True)]
