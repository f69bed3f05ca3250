"""The page of `ragen2 diagnose`: self-contained, well-formed, safe, with onset and thresholds drawn."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from diagnosed import STEPS, signals_of, write_run
from test_reports import HOSTILE, Page

from ragen2.diagnostics.examine import Examined, Unreadable, examine, examine_all, examine_series
from ragen2.diagnostics.figures import Course, run_figures
from ragen2.diagnostics.readers import RunSeries
from ragen2.diagnostics.series import Series as Readings
from ragen2.diagnostics.series import series_from_records
from ragen2.errors import StorageError
from ragen2.reports.charts import BOTTOM, COLOURS, HEIGHT, Axes, Mark, Series, line_chart
from ragen2.reports.comparison import COLUMNS, comparison_html, course_text
from ragen2.reports.diagnosis_charts import MOST_POINTS, charts_html, overlays_html, thin
from ragen2.reports.diagnosis_page import diagnosis_page, write_diagnosis_page
from ragen2.reports.missing_words import missing_line


def examined(kind: str, **changes) -> Examined:
    records = [{"step": step, **signals_of(kind, step)} for step in range(STEPS + 1)]
    run = RunSeries(series_from_records(records), STEPS + 1, **changes)
    return examine_series(run, f"runs/{kind}/metrics.jsonl")


def well_formed(html: str) -> Page:
    page = Page(html)
    assert page.stack == []
    assert not {"script", "img", "link", "iframe", "object"} & set(page.opened)
    fetched = [value for _, name, value in page.attributes if name in ("src", "href", "action", "srcset")]
    assert all(value.startswith("#run-") for value in fetched)
    assert "default-src 'none'" in html and "url(" not in html and "@import" not in html
    return page


def test_one_run_has_its_verdict_curves_onset_and_signals(tmp_path):
    run = examined("format")
    assert run.diagnosis.verdict == "format collapse"
    path = write_diagnosis_page(tmp_path / "new" / "page.html", [run])
    html = path.read_text()
    page = well_formed(html)
    text = " ".join(page.text.split())
    onset = run.diagnosis.onset_step
    assert f"since step {onset}" in text
    for words in (
        "format collapse",
        "valid thinking",
        "What to try",
        "50% of the best: format is broken below",
        *run.diagnosis.what_to_try,
    ):
        assert words in text
    assert html.count('<line class="onset"') == html.count("<figure") >= 6
    assert html.count(f"onset {onset}") == html.count("<figure")
    for crossing in run.diagnosis.signals:
        assert f"<td>{crossing.signal}</td>" in html
    assert run.diagnosis.signals


def test_the_threshold_of_the_format_is_half_of_the_best_so_far():
    chart = charts_html(examined("format")).split("<figure")[2]
    assert "Well-formed replies" in chart
    dashed = re.search(r'<polyline class="line s5 dashed" points="([^"]+)"', chart)
    assert dashed is not None
    axes = Axes(0, STEPS, 0.0, 1.0)
    heights = {float(pair.split(",")[1]) for pair in dashed[1].split()}
    assert heights == {round(axes.y(0.49), 1)}
    assert round(axes.y(0.0), 1) == HEIGHT - BOTTOM


def test_a_healthy_run_has_no_onset():
    run = examined("healthy")
    assert (run.diagnosis.verdict, run.diagnosis.onset_step) == ("healthy", None)
    html = diagnosis_page([run])
    well_formed(html)
    assert '<line class="onset"' not in html
    assert "passed their thresholds" not in html


def test_several_runs_stand_side_by_side_with_the_one_that_does_not_read(tmp_path):
    paths = [write_run(tmp_path / kind, kind) for kind in ("healthy", "template", "never")]
    runs = list(examine_all([*paths, tmp_path / "nowhere"]))
    html = diagnosis_page(runs)
    page = well_formed(html)
    table = html[html.index('<table class="compare">') : html.index("</table>")]
    assert table.count("<tr>") == 1 + 4
    assert [f'href="#run-{k}"' in table for k in range(4)] == [True, True, True, False]
    assert all(f'id="run-{k}"' in html for k in range(4))
    assert "not read" in table and "does not exist" in table
    overlays = html[html.index('id="overlays"') : html.index('id="small"')]
    onset = next(run.diagnosis.onset_step for run in runs if isinstance(run, Examined) and run.diagnosis.onset_step)
    assert overlays.count('<text class="mark s1" ') == overlays.count("<figure") == 4
    assert f">{onset}</text>" in overlays
    small = html[html.index('id="small"') :]
    assert small[: small.index("</section>")].count("<figure") == 3
    assert all(word in page.text for word in ("healthy", "template collapse", "never learned"))


def test_more_runs_than_colours_are_not_laid_over_one_another(tmp_path):
    runs = [examined("healthy") for _ in range(COLOURS + 1)]
    assert overlays_html(runs) == ""
    assert overlays_html(runs[:COLOURS]).count("<polyline") == 4 * COLOURS
    assert 'id="overlays"' not in diagnosis_page(runs)


def test_hostile_names_notes_and_columns_stay_text(tmp_path):
    series = {"train/success": [(step, 0.5) for step in range(30)]}
    run = RunSeries(series, 30, HOSTILE, (HOSTILE,), HOSTILE, (HOSTILE,), {HOSTILE: HOSTILE})
    one = examine_series(run, Path(f"runs/{HOSTILE.replace(chr(0), '').replace('/', '')}"), name=HOSTILE)
    bad = Unreadable(HOSTILE, HOSTILE, "StorageError", HOSTILE, 5, StorageError(HOSTILE))
    for runs in ([one], [one, one, bad], [bad]):
        html = diagnosis_page(runs)
        page = well_formed(html)
        assert "alert(1)" in page.text
        assert "\u202e" not in html and "\x00" not in html
        assert not [name for _, name, _ in page.attributes if name.startswith("on")]
        html.encode("utf-8")


def test_a_log_without_any_signal_says_so():
    run = examine_series(RunSeries({"custom/x": [(1, 2.0)]}, 1), "log")
    html = diagnosis_page([run])
    text = well_formed(html).text
    assert "undecided" in text and "No curves" in text
    assert "the share of replies that parse" in text


def test_long_lines_are_thinned_and_keep_their_peaks():
    line = [(float(k), math.sin(k / 50)) for k in range(20_000)]
    line[7_777] = (7_777.0, 9.0)
    line[12_345] = (12_345.0, -9.0)
    found = thin(line)
    assert len(found) <= MOST_POINTS + 2
    assert {(7_777.0, 9.0), (12_345.0, -9.0), line[0], line[-1]} <= set(found)
    assert found == sorted(found)
    assert thin(line[:100]) == line[:100]


def test_marks_have_the_colour_of_their_line_and_lie_inside():
    lines = [Series("a", [(0, 1), (10, 2)], colour=3)]
    html = line_chart("t", lines, marks=[Mark(5, "here", 3), Mark(11, "outside"), Mark(2, "<b>")])
    assert html.count('<line class="mark s3"') == 1
    assert html.count('<line class="onset"') == 1
    assert "&lt;b&gt;" in html and "outside" not in html
    assert '<i class="c3">' in html


def test_courses_and_figures():
    assert Course.of(Readings.of([])) is None
    course = Course.of(Readings.of([(1, 0.1), (2, 0.4), (3, 0.2)]))
    assert course == Course(0.1, 0.4, 2, 0.2, 3)
    assert (course_text(course), course_text(course, best=True), course_text(None)) == ("0.1 → 0.2", "0.1 → 0.4 → 0.2", "–")
    returns = run_figures({"train/return": [(1, -3.0), (2, -1.0)]})
    assert (returns.success_kind, returns.success) == ("return", Course(-3.0, -1.0, 2, -1.0, 2))
    bare = run_figures({"collapse/first_turn/mi_sequence": [(k, 2.0) for k in range(6)]})
    assert bare.mi_scaled is False and bare.mi_share is not None


def test_the_html_table_has_a_cell_a_column(tmp_path):
    html = comparison_html([examine(write_run(tmp_path / "a", "template"))])
    body = html[html.index("<tbody>") :]
    assert body.count("<td") == 1 + len(COLUMNS)
    assert 'class="badge bad">template collapse' in body


@pytest.mark.parametrize(("name", "expected"), [("policy/entropy", "tell entropy collapse"), ("other/x", "other/x")])
def test_what_is_missing_is_explained(name, expected):
    assert expected in missing_line(name, "ragen2")
    assert missing_line(name, "ragen2").startswith(name)


def test_a_missing_series_is_called_as_its_trainer_calls_it():
    assert "actor/entropy" in missing_line("policy/entropy", "verl console")
