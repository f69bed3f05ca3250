"""One `coqtop` process: a sentence in, its answer out, within limits of time, memory and output."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ragen2.errors import MissingProgram
from ragen2.provers.base import ProverFault

MAX_OUTPUT_BYTES = 1 << 18
"""An answer longer than this ends the process."""

MEMORY_BYTES = 1 << 30
"""Address space of a process. Coq itself takes about 200 MiB of it."""

START_SECONDS = 60.0

_PROMPT = re.compile(rb"<prompt>[^\n<]* < (\d+) \|[^\n<]*\| \d+ < </prompt>\Z")
_OPTIONS = ("-emacs", "-q", "-color", "no", "-w", "none", "-native-compiler", "no", "-bytecode-compiler", "no")


class ProverDied(ProverFault):
    """The process ended, or was ended because it went past a limit."""


@dataclass(frozen=True)
class Reply:
    """What Coq wrote, and its state number after the sentence; `failed` when the sentence changed nothing."""

    text: str
    state: int
    failed: bool


class CoqProcess:
    """A running `coqtop`. Raises MissingProgram where there is none, ProverDied where it does not start.

    It reads its sentences from a pipe and ends when that is closed, so it does not outlive this process. Used by one thread at a
    time.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self.sentences = 0
        self._process = subprocess.Popen(
            [*_confinement(), *_limited(memory_bytes), _coqtop(), *_OPTIONS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=_environment(),
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.state = 0
        self._read(START_SECONDS)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, sentence: str, seconds: float) -> Reply:
        """Send one sentence on one line and wait for its answer.

        Raises ProverDied, the process being ended, when it takes longer than `seconds`, writes too much or dies.
        """
        before = self.state
        self.sentences += 1
        try:
            self._stdin.write(f"{sentence}\n".encode())
        except OSError as error:
            raise self._died(f"it cannot be written to: {error}") from error
        text = self._read(seconds)
        return Reply(text, self.state, self.state == before)

    def go_back(self, state: int, seconds: float = START_SECONDS) -> None:
        """Return to an earlier state. Raises ProverDied when it is not reached."""
        if self.state != state:
            self.ask(f"BackTo {state}.", seconds)
        if self.state != state:
            raise self._died(f"it did not go back to state {state}")

    def close(self) -> None:
        """End the process and what it started. Safe to call twice."""
        if self._stdin.closed:
            return
        # Bubblewrap's child first: bubblewrap then collects it and ends, and no zombie is left to a container without an init.
        inside = _children(self._process.pid) if self.alive else []
        for member in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        if inside:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    def _read(self, seconds: float) -> str:
        """What is written up to the next prompt, which is left out; takes over the prompt's state number."""
        deadline, received = time.monotonic() + seconds, bytearray()
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._stdout], [], [], left)[0]:
                raise self._died(f"it took longer than {seconds:g} s")
            piece = os.read(self._stdout.fileno(), 1 << 16)
            if not piece:
                raise self._died(f"it ended: {received[-300:].decode(errors='replace').strip()}")
            received += piece
            if len(received) > MAX_OUTPUT_BYTES:
                raise self._died(f"it wrote more than {MAX_OUTPUT_BYTES} bytes")
            prompt = _PROMPT.search(received, max(0, len(received) - 400))
            if prompt:
                self.state = int(prompt[1])
                return received[: prompt.start()].decode(errors="replace")

    def _died(self, reason: str) -> ProverDied:
        self.close()
        return ProverDied(f"coqtop: {reason}")


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _coqtop() -> str:
    program = shutil.which("coqtop")
    if program is None:
        raise MissingProgram("coqtop", "proving in Coq")
    return program


def _limited(memory_bytes: int) -> list[str]:
    """A shell that sets limits and becomes the command after it: memory, no file ever written, no core file, few files open."""
    return ["/bin/sh", "-c", f'ulimit -v {memory_bytes >> 10} && ulimit -f 0 && ulimit -c 0 && ulimit -n 32 && exec "$@"', "sh"]


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}


@functools.cache
def _confinement() -> tuple[str, ...]:
    """Bubblewrap before the command, where it works: no network, no home, nothing that can be written. Else nothing, as what is
    sent has been read as a tactic and the limits hold anyway."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return ()
    told = subprocess.run([_coqtop(), "-where"], capture_output=True, text=True, timeout=START_SECONDS, check=False)
    library, program = Path(told.stdout.strip() or "/usr/lib"), Path(_coqtop()).resolve().parent
    command = [bwrap, "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += [] if os.geteuid() == 0 else ["--unshare-user"]
    for place in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/ocamlfind.conf", "/etc/ocamlfind.conf.d"):
        command += ["--ro-bind-try", place, place]
    for folder in (library, program, Path(_coqtop()).parent):
        if not folder.is_relative_to("/usr"):
            command += ["--ro-bind", str(folder), str(folder)]
    command += ["--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
    try:
        works = subprocess.run(
            [*command, _coqtop(), "-q", "-batch"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(),
            timeout=START_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(command) if works.returncode == 0 else ()
