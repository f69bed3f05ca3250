"""The HTML report of a run: one file that needs no network."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

import numpy as np

from ragen2.errors import Ragen2Error
from ragen2.reports.curves import curves_html, other_curves_html
from ragen2.reports.examples import choose_examples, example_html
from ragen2.reports.replay import last_picture, options_of_run
from ragen2.reports.run_data import RunData, read_run
from ragen2.reports.summary import header_html, inline, onset_step, tiles_html
from ragen2.reports.tables import counts_html
from ragen2.reports.text import escape
from ragen2.storage import write_whole
from ragen2.trajectory import Trajectory

FILE_NAME = "report.html"
EXAMPLES_SEED = 0


def write_report(run_dir: str | Path) -> Path:
    """Write `run_dir`/report.html and return its path.

    Reads config.yaml, metrics.jsonl, verdict.json and rollouts/*.jsonl; what is missing or broken is said in the report. The
    same run directory gives the same examples. Raises ConfigError when `run_dir` is not a run directory, StorageError when the
    report cannot be written.
    """
    run = read_run(run_dir)
    path = run.path / FILE_NAME
    write_whole(path, report_html(run).encode("utf-8"))
    return path


def report_html(run: RunData) -> str:
    """The whole page."""
    onset = onset_step(run)
    sections = [
        header_html(run),
        tiles_html(run),
        _section("curves", "Curves", curves_html(run, onset), "No curves: there are no numbers in metrics.jsonl yet."),
        _section("examples", "Example trajectories", _examples_html(run), "No rollouts were kept."),
        _section("counts", "Environments and failures", counts_html(run), "No rollouts were kept."),
        _section("more", "All other metrics", other_curves_html(run, onset), ""),
        _section("config", "Configuration", _config_html(run), "No config.yaml in the run directory."),
        _section("notes", "Notes", _notes_html(run), ""),
    ]
    style = files("ragen2.reports").joinpath("report.css").read_text(encoding="utf-8")
    title = escape(run.path.resolve().name, 200)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{title} · ragen2</title><style>{style}</style></head>\n<body><main>{''.join(sections)}"
        f"<footer>ragen2 {escape(_version())} · written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC</footer></main></body></html>\n"
    )


def _section(anchor: str, heading: str, content: str, otherwise: str) -> str:
    if not content and not otherwise:
        return ""
    return f'<section id="{anchor}"><h2>{heading}</h2>{content or f"<p>{otherwise}</p>"}</section>'


def _examples_html(run: RunData) -> str:
    held_out = [item for item in run.rollouts if item.validation]
    newest = max((item.step for item in held_out or run.rollouts), default=None)
    sources = [item for item in held_out or run.rollouts if item.step == newest]
    trajectories = [trajectory for item in sources for trajectory in item.batch.trajectories]
    if not trajectories:
        return ""
    examples = choose_examples(trajectories, np.random.default_rng(EXAMPLES_SEED))
    names = ", ".join(f"<code>{escape(item.name, 200)}</code>" for item in sources)
    legend = (
        f"<p>From {names}, {len(trajectories):,} trajectories: best and worst by return,"
        ' the others drawn at random. <span class="tag environment">environment</span> was shown to the model and is'
        ' masked out of training; <span class="tag model">model</span> was sampled by it.</p>'
    )
    blocks = [
        example_html(example, opened=k == 0, picture=_picture(run, example.trajectory)) for k, example in enumerate(examples)
    ]
    return legend + "".join(blocks)


def _picture(run: RunData, trajectory: Trajectory) -> np.ndarray | None:
    try:
        options = options_of_run(run.path / "rollouts" / "example", trajectory.environment)
    except Ragen2Error:
        # The report shows what can be read; a broken config.yaml has its own note.
        return None
    return last_picture(trajectory, options)


def _config_html(run: RunData) -> str:
    if run.config_text is None:
        return ""
    about = "".join(f"<tr><td>{escape(key, 80)}</td><td>{inline(value)}</td></tr>" for key, value in (run.about or {}).items())
    versions = f"<details><summary>Versions and machine</summary><table>{about}</table></details>" if about else ""
    return f"<details><summary>config.yaml</summary><pre>{escape(run.config_text, 40_000)}</pre></details>{versions}"


def _notes_html(run: RunData) -> str:
    return "" if not run.notes else "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in run.notes) + "</ul>"


def _version() -> str:
    try:
        return version("ragen2")
    except PackageNotFoundError:
        return "(not installed)"
