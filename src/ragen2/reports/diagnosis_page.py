"""The HTML page of `ragen2 diagnose`: one file that needs no network, for one run or several side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import ragen2
from ragen2.diagnostics.examine import Examination, Examined, Unreadable
from ragen2.reports.comparison import MARKS, comparison_html, course_text, evidence_of, information_text, lead_words, style_of
from ragen2.reports.diagnosis_charts import charts_html, overlays_html, small_chart_html
from ragen2.reports.missing_words import missing_line
from ragen2.reports.text import escape
from ragen2.storage import write_whole

MOST_LINES = 60


def write_diagnosis_page(path: str | Path, runs: Sequence[Examination]) -> Path:
    """Write the page about `runs` to `path` and return it. Raises StorageError when it cannot be written."""
    place = Path(path)
    write_whole(place, diagnosis_page(runs).encode("utf-8", errors="backslashreplace"))
    return place


def diagnosis_page(runs: Sequence[Examination]) -> str:
    """The whole page. Several runs: a comparison table, all runs in one chart a signal, a small chart a run, then each run."""
    examined = [run for run in runs if isinstance(run, Examined)]
    single = len(runs) == 1
    title = escape(runs[0].name, 200) if single else f"{len(runs)} runs"
    parts = [] if single else [f"<header><h1>Diagnosis of {title}</h1></header>", _several_html(runs, examined)]
    parts += [_run_html(k, run, single=single) for k, run in enumerate(runs)]
    width = "" if single else ' class="wide"'
    style = files("ragen2.reports").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title} · ragen2 diagnose</title><style>{style}</style></head>\n<body>"
        f"<main{width}>{''.join(parts)}"
        f"<footer>ragen2 {escape(ragen2.__version__)} · written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC</footer>"
        "</main></body></html>\n"
    )


def _several_html(runs: Sequence[Examination], examined: Sequence[Examined]) -> str:
    small = "".join(small_chart_html(run, run.name) for run in examined)
    overlays = overlays_html(examined)
    parts = [f'<section id="compare"><h2>Side by side</h2>{comparison_html(runs)}</section>']
    if overlays:
        parts.append(f'<section id="overlays"><h2>All runs, signal by signal</h2>{overlays}</section>')
    if small:
        parts.append(f'<section id="small"><h2>Run by run</h2><div class="charts">{small}</div></section>')
    return "".join(parts)


def _run_html(k: int, run: Examination, *, single: bool) -> str:
    level = "h1" if single else "h2"
    if isinstance(run, Unreadable):
        reason = f'<p><span class="badge big bad">not read</span></p><p class="lead">{escape(run.message, 2000)}</p>'
        return f'<section class="run" id="run-{k}"><{level}>{escape(run.name, 300)}</{level}>{reason}</section>'
    charts = f"<h3>Curves</h3>{charts_html(run)}"
    if not single:
        charts = f"<details><summary>Curves and figures</summary>{_tiles(run)}{charts_html(run)}</details>"
    else:
        charts = _tiles(run) + charts
    lists = f'<div class="columns"><div>{_signals_html(run)}{_left(run)}</div><div>{_right(run)}</div></div>'
    return f'<section class="run" id="run-{k}"><{level}>{escape(run.name, 300)}</{level}>{_head(run)}{lists}{charts}</section>'


def _head(run: Examined) -> str:
    diagnosis = run.diagnosis
    facts = [f'<span class="badge big {MARKS[style_of(diagnosis.verdict)]}">{escape(diagnosis.verdict, 80)}</span>']
    if diagnosis.onset_step is not None:
        facts.append(f"since step <b>{diagnosis.onset_step}</b>")
    facts.append(f"confidence <b>{diagnosis.confidence:.2f}</b>")
    if diagnosis.regime != "unknown":
        facts.append(f"regime <b>{escape(diagnosis.regime, 80)}</b>")
    if diagnosis.also:
        facts.append(f"also <b>{escape(', '.join(diagnosis.also), 200)}</b>")
    steps = f"{diagnosis.steps:,} steps" + ("" if run.step_range is None else f", {run.step_range[0]} to {run.step_range[1]}")
    source = f'<p class="dim"><code>{escape(run.path, 600)}</code> · {escape(diagnosis.source, 120)} · {steps}</p>'
    return f'<p>{" · ".join(facts)}</p><p class="lead">{escape(diagnosis.explanation, 2000)}</p>{source}'


def _tiles(run: Examined) -> str:
    figures = run.figures
    kind = {"train": "Success in training", "return": "Return", "none": "Success"}.get(figures.success_kind, "Success, held out")
    tiles = (
        (kind, course_text(figures.success, best=True), "first → best → last"),
        ("Valid-think rate", course_text(figures.valid_think), "first → last"),
        (
            "Mutual information / ceiling",
            information_text(figures),
            f"first → last, {(figures.mi_view or 'not logged').replace('_', ' ')}",
        ),
        ("Policy entropy", course_text(figures.policy_entropy), "first → last"),
    )
    shown = "".join(
        f'<div class="tile"><span>{escape(label)}</span><b>{escape(value)}</b><small>{escape(detail)}</small></div>'
        for label, value, detail in tiles
    )
    return f'<div class="tiles roomy">{shown}</div>'


def _signals_html(run: Examined) -> str:
    crossings = run.diagnosis.signals
    if not crossings:
        return ""
    rows = "".join(
        f'<tr><td class="figure">{crossing.step}</td><td>{escape(crossing.signal, 200)}</td>'
        f"<td>{escape(lead_words(crossing))}</td></tr>"
        for crossing in crossings
    )
    head = "<tr><th>step</th><th>signal</th><th>against the onset</th></tr>"
    return f"<h3>Signals that passed their thresholds</h3><table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _left(run: Examined) -> str:
    return _list("Evidence", evidence_of(run.diagnosis))


def _right(run: Examined) -> str:
    diagnosis = run.diagnosis
    missing = [missing_line(name, diagnosis.source) for name in diagnosis.missing]
    parts = [_list("What to try", diagnosis.what_to_try), _list("Not in this log, and what it would tell", missing)]
    if missing:
        parts.append(_list("Columns that were not understood (name them with --map OURS=THEIRS)", run.unmapped))
    parts.append(_list("Notes", diagnosis.notes))
    return "".join(parts)


def _list(heading: str, lines: Iterable[str]) -> str:
    lines = list(lines)
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line, 600)}</li>" for line in lines[:MOST_LINES])
    left = len(lines) - MOST_LINES
    more = f'<li class="dim">and {left} more</li>' if left > 0 else ""
    return f"<h3>{escape(heading)}</h3><ul>{items}{more}</ul>"
