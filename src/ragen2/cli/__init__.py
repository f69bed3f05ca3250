"""The console script. Commands are thin: they read arguments, call the library and print."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from ragen2 import __version__
from ragen2.cli import (
    causality,
    diagnose,
    envs,
    evaluate,
    export_verifiers,
    gradients,
    levels,
    play,
    replay,
    report,
    serve_env,
    serve_retriever,
    train,
    warmup,
)
from ragen2.errors import Ragen2Error, StorageError
from ragen2.reports.text import visible

INTERRUPTED = 130

app = typer.Typer(
    name="ragen2",
    help="Train language-model agents with multi-turn RL, notice reasoning collapse early, and counter it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (
    train,
    warmup,
    evaluate,
    diagnose,
    causality,
    gradients,
    report,
    envs,
    levels,
    play,
    replay,
    serve_retriever,
    serve_env,
    export_verifiers,
):
    module.add_to(app)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ragen2 {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Train language-model agents with multi-turn RL, notice reasoning collapse early, and counter it."""


def main() -> None:
    """Run the command line. Exit codes: 0 fine, 1 unexpected, 2 bad input, 3 missing package or model, 4 training failed,
    5 storage, 6 stopped early because of collapse (diagnose: collapsed), 7 and 8 verdicts of diagnose, 130 interrupted."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # Logs of others may hold what no encoding knows.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        try:
            app()
        finally:
            # Here, not at the interpreter's end, where a full disk could only be complained about.
            sys.stdout.flush()
    except Ragen2Error as error:
        # One line without control characters, whatever a library or a file name put into the message.
        errors.print(f"{type(error).__name__}: {visible(' '.join(str(error).split()))}")
        sys.exit(error.exit_code)
    except SystemExit as end:
        # The option parser turns Ctrl-C into this code without a word.
        if end.code == INTERRUPTED and (said := _interruption(end)):
            errors.print(said)
        raise
    except OSError as error:
        # The library names the file in its own errors: what is left without one is the output.
        if error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            errors.print(f"StorageError: the output cannot be written: {error.strerror}")
        sys.exit(StorageError.exit_code)


def _interruption(end: BaseException) -> str | None:
    """What was said about the Ctrl-C behind an exit; None where there was none."""
    cause: BaseException | None = end
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return str(cause) or "interrupted; nothing was left to go on with"
        cause = cause.__cause__ or cause.__context__
    return None
