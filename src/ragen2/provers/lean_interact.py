"""Lean on this machine, through the package lean-interact and a REPL that is built already. Nothing is fetched."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path
from typing import Any

from ragen2.errors import ConfigError, MissingDependency, MissingProgram
from ragen2.provers.base import ProverFault, TacticError
from ragen2.provers.lean import LeanMessage


class LeanInteractChecker:
    """A REPL at `repl` (a folder with a built Lean REPL) in the Lean project at `project`, started on first use.

    Raises MissingDependency without the package lean-interact, ConfigError for folders that are not there.
    """

    name = "lean-interact"
    concurrency = 1

    def __init__(self, project: str, repl: str, seconds: float = 60.0) -> None:
        for option, folder in (("lean_project", project), ("lean_repl", repl)):
            if not folder or not Path(folder).expanduser().is_dir():
                raise ConfigError(f"{option} is {folder!r}; give the folder of a Lean project and of a built Lean REPL")
        self._project, self._repl, self.seconds = Path(project).expanduser(), Path(repl).expanduser(), seconds
        try:
            self._package: Any = importlib.import_module("lean_interact")
        except ImportError as error:
            raise MissingDependency("lean-interact", "lean", "proving in a local Lean") from error
        self._server: Any = None
        self._lock = threading.Lock()

    def check(self, code: str) -> list[LeanMessage] | TacticError:
        """Have one file read. A REPL that went past its time is started afresh by the next call."""
        with self._lock:
            if self._server is None:
                self._server = self._start()
            try:
                answer = self._server.run(self._package.Command(cmd=code), timeout=self.seconds)
            except TimeoutError:
                self._stop()
                return TacticError(f"stopped: it needs more than {self.seconds:g} s")
            except (OSError, ValueError) as error:  # a dead REPL, or one that answers no JSON
                self._stop()
                raise ProverFault(f"the Lean REPL is gone: {error}") from error
        if not hasattr(answer, "messages"):
            raise ProverFault(f"the Lean REPL answered {str(answer)[:200]}")
        return [LeanMessage(message.severity, message.start_pos.line, message.data) for message in answer.messages]

    def close(self) -> None:
        """End the REPL. Safe to call twice."""
        with self._lock:
            self._stop()

    def _start(self) -> Any:
        try:
            config = self._package.LeanREPLConfig(
                project=self._package.LocalProject(directory=str(self._project), auto_build=False),
                local_repl_path=str(self._repl),
                build_repl=False,
            )
            return self._package.AutoLeanServer(config)
        except FileNotFoundError as error:
            raise MissingProgram("lake", "proving in a local Lean") from error
        except (OSError, ValueError, RuntimeError) as error:
            raise ProverFault(f"the Lean REPL does not start: {error}") from error

    def _stop(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server = None
