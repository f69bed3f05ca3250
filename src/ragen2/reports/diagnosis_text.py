"""A diagnosis as text for a terminal. Names out of logs are hostile: control characters are made visible, markup stays text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ragen2.diagnostics.examine import Examination, Examined
from ragen2.reports.comparison import comparison_table, course_text, evidence_of, information_text, lead_words, style_of
from ragen2.reports.missing_words import missing_line
from ragen2.reports.text import visible

MOST_LINES = 12
"""Of evidence, notes and unread columns. The JSON and the page hold all."""


def diagnosis_text(run: Examined) -> RenderableType:
    """Everything about one run: verdict, explanation, what moved and when, evidence, what to try, what is missing, notes."""
    diagnosis = run.diagnosis
    parts: list[RenderableType] = [_headline(run), Text(visible(diagnosis.explanation)), Text(""), _figures(run)]
    if diagnosis.signals:
        parts += [_heading("Signals that passed their thresholds, in order"), _signals(run)]
    parts += _list("Evidence", evidence_of(diagnosis))
    parts += _list("What to try", diagnosis.what_to_try)
    if diagnosis.missing:
        parts.append(_heading("Not in this log, and what it would tell"))
        parts += [_point(missing_line(name, diagnosis.source)) for name in diagnosis.missing]
    if diagnosis.missing and run.unmapped:
        parts += _list("Columns that were not understood (name them with --map OURS=THEIRS)", run.unmapped)
    parts += _list("Notes", diagnosis.notes)
    return Group(*parts)


def several_text(runs: Sequence[Examination]) -> RenderableType:
    """The comparison table and a sentence a run."""
    read = [run for run in runs if isinstance(run, Examined)]
    said = [Text.assemble((visible(run.name), "bold"), ": ", visible(run.diagnosis.explanation)) for run in read]
    return Group(comparison_table(runs), *said)


def _headline(run: Examined) -> Text:
    diagnosis = run.diagnosis
    text = Text.assemble((diagnosis.verdict, f"bold {style_of(diagnosis.verdict)}"))
    if diagnosis.onset_step is not None:
        text.append(f" since step {diagnosis.onset_step}", style="bold")
    text.append(f"   confidence {diagnosis.confidence:.2f}")
    if diagnosis.regime != "unknown":
        text.append(f", regime {diagnosis.regime}")
    if diagnosis.also:
        text.append(f", also {', '.join(diagnosis.also)}")
    text.append(f"\n{visible(run.path)}: {visible(diagnosis.source)}, {_steps(run)}", style="dim")
    return text


def _steps(run: Examined) -> str:
    count = f"{run.diagnosis.steps} step{'' if run.diagnosis.steps == 1 else 's'}"
    return count if run.step_range is None else f"{count} ({run.step_range[0]} to {run.step_range[1]})"


def _figures(run: Examined) -> RenderableType:
    figures = run.figures
    kind = {"train": "success in training", "return": "return"}.get(figures.success_kind, "success")
    rows = (
        (f"{kind}, first → best → last", course_text(figures.success, best=True)),
        ("valid-think rate, first → last", course_text(figures.valid_think)),
        ("mutual information / ceiling, first → last", information_text(figures)),
        ("policy entropy, first → last", course_text(figures.policy_entropy)),
    )
    table = Table.grid(padding=(0, 2))
    for label, value in rows:
        table.add_row(Text(label, style="dim"), Text(value))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _signals(run: Examined) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    for crossing in run.diagnosis.signals:
        table.add_row(Text(f"step {crossing.step}"), Text(visible(crossing.signal)), Text(lead_words(crossing), style="dim"))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _list(heading: str, lines: Iterable[str]) -> list[RenderableType]:
    lines = list(lines)
    if not lines:
        return []
    left = len(lines) - MOST_LINES
    more = [Text(f"  … and {left} more", style="dim")] if left > 0 else []
    return [_heading(heading), *(_point(line) for line in lines[:MOST_LINES]), *more]


def _point(line: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text("  ·"), Text(visible(line)))
    return grid
