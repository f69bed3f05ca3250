"""Runs calls into environments in a thread beside the collector, with a deadline for each call.

A batch of jobs is one hand-off between threads, so that the price of the deadline is small. A job whose call passes its
deadline is given up with its thread (Python cannot stop a thread; it is a daemon and its late result is ignored) and a new
thread goes on with the jobs after it. A call that never releases the interpreter lock cannot be given up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Job = Callable[[Callable[[str], None]], Any]
"""Work on one environment. It is given `beat`, to be called before each call into the environment with that call's name."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job: its `value`, or the `error` it raised, or `hung`. `call` is the last call it announced."""

    value: Any = None
    error: BaseException | None = None
    hung: bool = False
    call: str = ""


class EnvWorker:
    """One worker thread, replaced when it hangs. `abandoned` counts the threads given up."""

    def __init__(self) -> None:
        self.abandoned = 0
        self._thread: _Thread | None = None

    def run(self, jobs: Sequence[Job], timeout_s: float) -> list[Outcome]:
        """Run the jobs one after the other; outcomes in their order. Each announced call may take `timeout_s` seconds."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(jobs):
            if self._thread is None:
                self._thread = _Thread()
            batch = _Batch(jobs[len(outcomes) :])
            self._thread.inbox.put(batch)
            done, hung_call = batch.finish(timeout_s)
            outcomes += done
            if hung_call is not None:
                outcomes.append(Outcome(hung=True, call=hung_call))
                self._thread.inbox.put(None)
                self._thread = None
                self.abandoned += 1
        return outcomes

    def close(self) -> None:
        """Let the thread end. Safe to call twice."""
        if self._thread is not None:
            self._thread.inbox.put(None)
            self._thread = None


class _Batch:
    """Jobs handed to a thread, its clock and its outcomes."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.outcomes: list[Outcome] = []
        self._jobs = jobs
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._given_up = False
        self._call = ""
        self._last_beat = time.monotonic()

    def run(self) -> None:
        for job in self._jobs:
            self._beat("")
            try:
                outcome = Outcome(value=job(self._beat))
            except BaseException as error:  # foreign code: whatever it raises (SystemExit too) costs its own trajectory only
                outcome = Outcome(error=error, call=self._call)
            with self._lock:
                if self._given_up:
                    return
                self.outcomes.append(outcome)
        self._done.set()

    def finish(self, timeout_s: float) -> tuple[list[Outcome], str | None]:
        """Wait until all jobs are done or a call passes its deadline: the outcomes so far and, if so, the hanging call's name.
        Outcomes that come later are refused."""
        while not self._done.wait(max(0.0, self._last_beat + timeout_s - time.monotonic())):
            with self._lock:
                if time.monotonic() - self._last_beat >= timeout_s and len(self.outcomes) < len(self._jobs):
                    self._given_up = True
                    return list(self.outcomes), self._call
        return self.outcomes, None

    def _beat(self, call: str) -> None:
        self._call, self._last_beat = call, time.monotonic()


class _Thread:
    """A daemon thread that runs the batches of its inbox until it is given None."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="ragen2-environments", daemon=True).start()

    def _serve(self) -> None:
        while (batch := self.inbox.get()) is not None:
            batch.run()
