"""`ragen2 diagnose`: what became of one run or several, now or while they grow."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from ragen2.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from ragen2.diagnostics.examine import Examination

FAIL_ON = "collapse,never-learned,degrading"
WIDTH_OF_A_PIPE = 200
"""Columns where the output is no terminal: a table that nobody reads there is read by other programs."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("diagnose")(diagnose)


def diagnose(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Run directories, logs, rollout files, or folders that hold several runs."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/diagnosis.schema.json).")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with the curves and the onset to this file.")] = None,
    renamed: Annotated[
        list[str] | None, typer.Option("--map", help="A column of your own: OURS=THEIRS, e.g. valid_think=my_column. May repeat.")
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="Measure mutual information of rollout files with this model: a folder, hub id or URL.")
    ] = None,
    scorer_model: Annotated[str | None, typer.Option(help="The model's name on the server whose URL --scorer gives.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Watch a growing log and print alarms; Ctrl-C ends it.")] = False,
    poll: Annotated[float, typer.Option(help="With --follow: seconds between two looks at the log.")] = 5.0,
    idle: Annotated[float, typer.Option(help="With --follow: end after this many seconds without news; 0 never.")] = 0.0,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(help=f"Verdicts that end with an exit code above 0; also collapse, all, none. Default: {FAIL_ON}."),
    ] = None,
) -> None:
    """Say whether runs are healthy or collapsed, since when, how sure that is, and why.

    Exit codes: 0 healthy, 6 collapsed, 7 never learned or degrading, 8 undecided (only with --fail-on all or undecided); 2 bad
    arguments, 3 a package or model is missing, 5 a path cannot be read.
    """
    from ragen2.cli.exit_codes import exit_code, failing_verdicts
    from ragen2.diagnostics.mapping import parse_mapping
    from ragen2.diagnostics.runs_in import runs_in

    if fail_on and not "".join(fail_on).strip(", \t\n"):
        raise ConfigError("--fail-on names no verdict. Say none when nothing shall fail.")
    failing = failing_verdicts(fail_on or [FAIL_ON])
    mapping = parse_mapping(renamed or [])
    if html is not None:
        _check_page(html, paths)
    if follow:
        if len(paths) > 1 or scorer:
            raise ConfigError("--follow watches one log, without --scorer: give one path, or start one process a log")
        runs, several = [_follow(paths[0], mapping, poll, idle, as_json)], False
    else:
        found = [run for path in paths for run in runs_in(path)]
        several = len(paths) > 1 or found != paths
        runs = _examine(found, mapping, _load_scorer(scorer, scorer_model))
    _show(runs, as_json, several, compact=follow)
    if html is not None:
        from ragen2.reports.diagnosis_page import write_diagnosis_page

        Console(stderr=True, soft_wrap=True, highlight=False).print(f"page: {write_diagnosis_page(html, runs)}", markup=False)
    _complain(runs, several)
    raise typer.Exit(exit_code(runs, failing))


def _check_page(page: Path, paths: Sequence[Path]) -> None:
    """Before any work: the page must not be written over a log, and must have a place."""
    for path in paths:
        if os.path.isfile(page) and os.path.exists(path) and os.path.samefile(page, path):
            raise ConfigError(f"--html {page} is the log itself and would be overwritten. Give the page another name.")
    folder = next(above for above in page.absolute().parents if above.exists())
    if page.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        what = "is a folder" if page.is_dir() else f"cannot be written: {folder} is no folder that may be written to"
        raise StorageError(f"--html {page} {what}. Give the name of a file.")


def _examine(paths: Sequence[Path], mapping: Mapping[str, str], scorer: Any) -> list[Examination]:
    from rich.progress import Progress

    from ragen2.diagnostics.examine import examine_all

    console = Console(stderr=True)
    shown = console.is_terminal and (len(paths) > 1 or scorer is not None)
    runs: list[Examination] = []
    with Progress(console=console, transient=True, disable=not shown) as bars:
        reading = bars.add_task("reading", total=len(paths))
        scoring = bars.add_task("scoring a view", total=None, visible=scorer is not None)
        for run in examine_all(
            paths,
            mapping=mapping,
            scorer=scorer,
            progress=lambda done, total: bars.update(scoring, completed=done, total=total),
        ):
            runs.append(run)
            bars.advance(reading)
    return runs


def _follow(path: Path, mapping: Mapping[str, str], poll: float, idle: float, as_json: bool) -> Examination:
    """Print alarms until Ctrl-C or the idle time ends it, then what the run looks like so far."""
    from ragen2.diagnostics.diagnosis_json import alarm_json
    from ragen2.diagnostics.follow import Follower, every, follow
    from ragen2.diagnostics.online_verdict import Alarm
    from ragen2.reports.comparison import style_of
    from ragen2.reports.text import visible

    if not (math.isfinite(idle) and idle >= 0):
        raise ConfigError(f"--idle {idle} is no time; give seconds, or 0 to go on until Ctrl-C")
    out, err = Console(soft_wrap=True, highlight=False), Console(stderr=True, soft_wrap=True, highlight=False)

    def tell(event: Alarm | str) -> None:
        if not isinstance(event, Alarm):
            err.print(visible(event), markup=False, style="dim")
        elif as_json:
            typer.echo(json.dumps(alarm_json(event), allow_nan=False))
        else:
            out.print(f"alarm: {visible(event.message)}", markup=False, style=f"bold {style_of(event.verdict)}")

    follower = Follower(path, mapping=mapping)
    err.print(f"following {visible(str(path))}, a look every {poll:g} s; Ctrl-C ends it", markup=False, style="dim")
    try:
        for event in follow(follower, every(poll), quiet_polls=math.ceil(idle / poll) if poll > 0 else 0):
            tell(event)
    except KeyboardInterrupt:
        err.print("")
    for event in follower.finish():
        tell(event)
    return follower.examined()


class _Later:
    """A scorer that is loaded when it is first used: logs need none, and loading takes long."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Any:
        self._loaded = self._load() if "_loaded" not in vars(self) else self._loaded
        return getattr(self._loaded, name)


def _load_model(name: str) -> Any:
    from ragen2.engines.model_scorer import load_scorer

    return load_scorer(name)


def _load_scorer(name: str | None, model: str | None) -> Any:
    if name is None:
        if model is not None:
            raise ConfigError("--scorer-model names a model on a server: give the server's URL with --scorer")
        return None
    if not name.startswith(("http://", "https://")):
        if model is not None:
            raise ConfigError(f"--scorer-model goes with the URL of a server, but --scorer is {name!r}")
        if name.startswith(("/", ".", "~")) and not Path(name).expanduser().is_dir():
            raise ConfigError(f"--scorer {name} is no folder: give a model folder, a hub id or the URL of a server")
        return _Later(partial(_load_model, name))
    if model is None:
        raise ConfigError(f"--scorer {name} is a server: name the model it serves with --scorer-model")
    from ragen2.engines.openai_scorer import OpenAIScorer

    return OpenAIScorer(name, model)


def _show(runs: Sequence[Examination], as_json: bool, several: bool, *, compact: bool) -> None:
    from ragen2.diagnostics.diagnosis_json import diagnosis_json
    from ragen2.diagnostics.examine import Examined
    from ragen2.reports.diagnosis_text import diagnosis_text, several_text

    if as_json:
        found = [diagnosis_json(run) for run in runs]
        typer.echo(json.dumps(found if several else found[0], indent=None if compact else 1, allow_nan=False))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH_OF_A_PIPE)
    if several:
        console.print(several_text(runs))
    elif isinstance(runs[0], Examined):
        console.print(diagnosis_text(runs[0]))


def _complain(runs: Sequence[Examination], several: bool) -> None:
    """What could not be read, on stderr: of one path as the error it is, of several a line each."""
    from ragen2.diagnostics.examine import Unreadable
    from ragen2.reports.text import visible

    err = Console(stderr=True, soft_wrap=True, highlight=False)
    for run in runs:
        if isinstance(run, Unreadable):
            if not several:
                raise run.error
            err.print(f"{run.kind}: {visible(' '.join(run.message.split()))}", markup=False)
