"""Several runs side by side: one row a run, as a terminal table and as an HTML table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from ragen2.diagnostics.diagnose import Diagnosis
from ragen2.diagnostics.examine import Examination, Examined, Unreadable
from ragen2.diagnostics.figures import Course, RunFigures
from ragen2.diagnostics.lead_lag import SignalCrossing, in_words
from ragen2.reports.text import DASH, escape, number, visible

STYLES = {"healthy": "green", "undecided": "yellow", "degrading": "yellow", "never learned": "yellow"}
"""Terminal colours of verdicts; every collapse is red."""
COLLAPSED_STYLE = "red"
MARKS = {"green": "good", "yellow": "warn", "red": "bad"}
"""The same as classes of the page."""


@dataclass(frozen=True)
class Column:
    """A column: its heading, the cell of a run as plain text, whether it holds figures (then aligned to the right)."""

    heading: str
    cell: Callable[[Examined], str]
    figures: bool = False


def style_of(verdict: str) -> str:
    """The terminal colour of a verdict."""
    return STYLES.get(verdict, COLLAPSED_STYLE)


def course_text(course: Course | None, *, best: bool = False) -> str:
    """`0.1 → 0.24 → 0.02`: first, best when asked for, last; an en dash where nothing was logged."""
    if course is None:
        return DASH
    shown = [course.first, course.best, course.last] if best else [course.first, course.last]
    return " → ".join(number(value) for value in shown)


def lead_words(crossing: SignalCrossing) -> str:
    """`led by 20 steps`, `lagged by 5 steps` or `decided`."""
    steps = abs(crossing.lead)
    return f"{crossing.role} by {steps} step{'' if steps == 1 else 's'}" if steps else crossing.role


def evidence_of(diagnosis: Diagnosis) -> list[str]:
    """Evidence without the sentence on the order of the signals, which is shown as a table of its own."""
    order = in_words(diagnosis.signals)
    return [line for line in diagnosis.evidence if line != order]


def _success(run: Examined) -> str:
    kind = run.figures.success_kind
    note = {"train": " (training)", "return": " (return)"}.get(kind, "")
    return course_text(run.figures.success, best=True) + note


def information_text(figures: RunFigures) -> str:
    """Mutual information / ceiling from the first to the last reading, and a word where no ceiling was logged."""
    return course_text(figures.mi_share) + ("" if figures.mi_scaled or figures.mi_share is None else " (no ceiling)")


COLUMNS = (
    Column("verdict", lambda run: run.diagnosis.verdict),
    Column("since step", lambda run: DASH if run.diagnosis.onset_step is None else str(run.diagnosis.onset_step), True),
    Column("confidence", lambda run: f"{run.diagnosis.confidence:.2f}", True),
    Column("success\nfirst → best → last", _success, True),
    Column("valid-think\nfirst → last", lambda run: course_text(run.figures.valid_think), True),
    Column("MI / ceiling\nfirst → last", lambda run: information_text(run.figures), True),
    Column("also", lambda run: ", ".join(run.diagnosis.also) or DASH),
    Column("steps", lambda run: str(run.diagnosis.steps), True),
    Column("kind of log", lambda run: run.diagnosis.source),
)


def comparison_table(runs: Sequence[Examination]) -> Table:
    """The table for a terminal. Runs that could not be read stand in it with the reason."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=None, highlight=False)
    table.add_column("run", overflow="fold")
    for column in COLUMNS:
        table.add_column(column.heading, justify="right" if column.figures else "left", overflow="fold")
    for run in runs:
        if isinstance(run, Unreadable):
            table.add_row(Text(visible(run.name)), Text(f"not read: {run.kind}", style="red"))
            continue
        cells = [Text(visible(column.cell(run))) for column in COLUMNS]
        cells[0].stylize(style_of(run.diagnosis.verdict))
        table.add_row(Text(visible(run.name)), *cells)
    return table


def comparison_html(runs: Sequence[Examination]) -> str:
    """The table for a page; each name links to the run's own section, `#run-<k>`."""
    heads = "".join(f"<th>{escape(head)}</th>" for head in ("run", *(column.heading for column in COLUMNS)))
    rows = "".join(_row(k, run) for k, run in enumerate(runs))
    return f'<div class="scroll"><table class="compare"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _row(k: int, run: Examination) -> str:
    if isinstance(run, Unreadable):
        reason = f'<span class="badge bad">not read</span> {escape(run.message, 600)}'
        return f'<tr><td>{escape(run.name, 300)}</td><td colspan="{len(COLUMNS)}">{reason}</td></tr>'
    cells = "".join(_cell(column, run) for column in COLUMNS[1:])
    verdict = escape(run.diagnosis.verdict, 80)
    badge = f'<td><span class="badge {MARKS[style_of(run.diagnosis.verdict)]}">{verdict}</span></td>'
    return f'<tr><td><a href="#run-{k}">{escape(run.name, 300)}</a></td>{badge}{cells}</tr>'


def _cell(column: Column, run: Examined) -> str:
    mark = ' class="figure"' if column.figures else ""
    return f"<td{mark}>{escape(column.cell(run), 300)}</td>"
