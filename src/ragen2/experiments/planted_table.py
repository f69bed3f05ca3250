"""The planted series side by side: what became of every signal, and what the diagnosis said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragen2.experiments.planted_series import Series

SIGNALS = {
    "MI / ceiling": "collapse/probe/mi_ratio",
    "H(Z|X) a token": "collapse/probe/conditional_entropy_token",
    "policy entropy": "policy/entropy",
    "valid-think": "collapse/valid_think_rate",
    "success": "validation/<env>/success",
}
"""Columns and the metrics they come from."""


@dataclass(frozen=True)
class Course:
    """A signal over a series."""

    start: float
    end: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.start:.2f} → {self.end:.2f} ({self.lowest:.2f}-{self.highest:.2f})"


def course(history: Sequence[dict[str, Any]], name: str) -> Course | None:
    """The readings of a metric; None where it was never read."""
    environment = next((key for record in history for key in record if _is_success(key)), "")
    name = environment if name == SIGNALS["success"] else name
    values = [float(record[name]) for record in history if name in record]
    return Course(values[0], values[-1], min(values), max(values)) if values else None


def planted_table(series: Sequence[Series]) -> str:
    """A Markdown table, a row a series: start, end and range of every signal, verdict, onset and regime."""
    lines = [
        "| planted | verdict | from step | regime | " + " | ".join(SIGNALS) + " |",
        "|" + "---|" * (4 + len(SIGNALS)),
    ]
    for item in series:
        found = item.diagnosis
        onset = "" if found.onset_step is None else str(found.onset_step)
        cells = [str(course(item.history, name) or "") for name in SIGNALS.values()]
        lines.append("| " + " | ".join([item.plant.name, found.verdict, onset, found.regime, *cells]) + " |")
    return "\n".join(lines)


def entropy_sentence(series: Sequence[Series]) -> str:
    """Whether a level of policy entropy could tell template collapse from the healthy series, in words."""
    healthy = [value for item in series if item.diagnosis.verdict == "healthy" for value in _entropies(item, 0)]
    collapsed = [
        value
        for item in series
        if item.diagnosis.verdict == "template collapse"
        for value in _entropies(item, item.diagnosis.onset_step or 0)
    ]
    if not healthy or not collapsed:
        return "Entropy cannot be compared: the series hold no healthy one or no template collapse."
    low, high = min(healthy), max(healthy)
    within = low <= min(collapsed) and max(collapsed) <= high
    words = "inside that range: entropy alone cannot tell them apart" if within else "not inside that range"
    return (
        f"Policy entropy of the healthy series lies between {low:.2f} and {high:.2f}; from the onset of template collapse on it "
        f"lies between {min(collapsed):.2f} and {max(collapsed):.2f}, {words}."
    )


def _entropies(series: Series, first_step: int) -> list[float]:
    name = SIGNALS["policy entropy"]
    return [float(record[name]) for record in series.history if name in record and record["step"] >= first_step]


def _is_success(name: str) -> bool:
    return name.startswith("validation/") and name.endswith("/success")
