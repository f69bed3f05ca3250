"""Calls into slow environments (search, code, provers, remote ones), several at a time and beside the sampling.

Each kind of environment has its own limit, so that a server is not flooded, and each call its own deadline: one that hangs costs
its own episode, and nobody waits for it but its own place.
"""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ragen2.rollout.env_worker import EnvWorker, Job, Outcome


@dataclass
class _Kind:
    """The places of one kind of environment: threads that wait, and workers that are waited for."""

    waiting: ThreadPoolExecutor
    idle: queue.SimpleQueue[EnvWorker] = field(default_factory=queue.SimpleQueue)


class SlowCalls:
    """Submitted jobs and their outcomes as they come. Threads are kept until `close`."""

    def __init__(self) -> None:
        self.pending = 0
        self._kinds: dict[str, _Kind] = {}
        self._ended: queue.SimpleQueue[tuple[int, Outcome]] = queue.SimpleQueue()

    def submit(self, key: int, job: Job, *, kind: str, limit: int, timeout_s: float) -> None:
        """Run a job as soon as fewer than `limit` of its kind are running; `key` comes back with its outcome. The deadline counts
        from the job's own start, not from here."""
        if kind not in self._kinds:
            self._kinds[kind] = _Kind(ThreadPoolExecutor(limit, thread_name_prefix=f"ragen2-{kind}"))
        self.pending += 1
        self._kinds[kind].waiting.submit(self._run, self._kinds[kind], key, job, timeout_s)

    def ended(self, *, wait: bool) -> list[tuple[int, Outcome]]:
        """Keys and outcomes of the jobs that have ended since the last call; with `wait`, at least one if any is pending."""
        found: list[tuple[int, Outcome]] = []
        while self.pending and (not self._ended.empty() or (wait and not found)):
            found.append(self._ended.get())
            self.pending -= 1
        return found

    def close(self) -> None:
        """Let all threads end. Jobs that have not started are dropped. Safe to call twice."""
        for kind in self._kinds.values():
            kind.waiting.shutdown(wait=False, cancel_futures=True)
            while not kind.idle.empty():
                kind.idle.get().close()
        self._kinds.clear()
        self.pending, self._ended = 0, queue.SimpleQueue()

    def _run(self, kind: _Kind, key: int, job: Job, timeout_s: float) -> None:
        # Each waiting thread gives its worker back, so there are never more than `limit` workers.
        ended = self._ended
        try:
            worker = kind.idle.get_nowait()
        except queue.Empty:
            worker = EnvWorker()
        (outcome,) = worker.run([job], timeout_s)
        kind.idle.put(worker)
        ended.put((key, outcome))
