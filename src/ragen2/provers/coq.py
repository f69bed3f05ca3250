"""Coq as a prover: a small pool of `coqtop` processes that any number of proofs share.

A proof state is data. A process that is asked to go on from a state it is not in goes back to the tactics the two have in common
and does the others again, so a process that dies costs a replay, not a proof.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ragen2.errors import ConfigError
from ragen2.provers.base import ProofState, ProverFault, TacticError, TacticRefused, Theorem
from ragen2.provers.coq_desk import TACTIC_SECONDS, Desk, error_of
from ragen2.provers.coq_process import MEMORY_BYTES, ProverDied
from ragen2.provers.coq_sentence import read_tactic

WAIT_SECONDS = 300.0
MOST_SENTENCES = 5000
"""After so many sentences a process is replaced, because Coq keeps every state it was ever in."""


class CoqBackend:
    """Coq 8.16 or later by `coqtop`. `processes` at once, started on use; `automation` allows tactics that search for proofs.

    A tactic that takes longer than 2 seconds or more than `memory_bytes` fails. Raises MissingProgram on first use where there is
    no `coqtop`.
    """

    name = "coq"

    def __init__(self, processes: int = 2, automation: bool = False, memory_bytes: int = MEMORY_BYTES) -> None:
        if isinstance(processes, bool) or not 1 <= processes <= 256:
            raise ConfigError(f"processes is {processes!r}; give a whole number from 1 to 256")
        self.concurrency, self.automation, self.memory_bytes = processes, automation, memory_bytes
        self._forget()
        atexit.register(self.close)

    def __deepcopy__(self, memo: dict[int, Any]) -> CoqBackend:
        return self

    def open(self, theorem: Theorem) -> ProofState:
        """The theorem with its goals. Raises ConfigError where Coq refuses its statement."""
        for left in (1, 0):
            with self._desk(ProofState(theorem)) as desk:
                try:
                    return ProofState(theorem, (), desk.open(theorem))
                except ProverDied:
                    if not left:
                        raise
        raise AssertionError("unreachable")

    def apply(self, state: ProofState, tactic: str) -> ProofState | TacticError:
        """Do one tactic; when no goal is left, the kernel judges the proof and what it rests on."""
        try:
            sentence = read_tactic(tactic, automation=self.automation)
        except TacticRefused as refusal:
            return TacticError(str(refusal), refused=True)
        if state.proven:
            return TacticError("the theorem is proven")
        with self._standing_at(state) as desk:
            try:
                reply = desk.do(sentence)
                if reply.failed:
                    return TacticError(error_of(reply.text))
                goals = desk.goals()
                if goals:
                    return ProofState(state.theorem, (*state.tactics, sentence), goals)
                wrong = desk.finish()
                if wrong is not None:
                    desk.undo()
                    return TacticError(wrong)
                return ProofState(state.theorem, (*state.tactics, sentence), proven=True)
            except ProverDied:
                return TacticError(f"stopped: it needs more than {TACTIC_SECONDS} s or too much memory or output")

    def close(self) -> None:
        """End all processes that are not in use."""
        if os.getpid() != self._owner:
            return
        with self._free:
            for desk in self._idle:
                desk.process.close()
            self._count -= len(self._idle)
            self._idle.clear()
            self._free.notify_all()

    def _forget(self) -> None:
        self._owner, self._count = os.getpid(), 0
        self._idle: list[Desk] = []
        self._free = threading.Condition()

    @contextmanager
    def _standing_at(self, state: ProofState) -> Iterator[Desk]:
        """A desk at a state; a process that died on the way is replaced once."""
        with self._desk(state) as desk:
            try:
                desk.go_to(state)
            except ProverDied:
                pass
            else:
                yield desk
                return
        with self._desk(state) as desk:
            desk.go_to(state)
            yield desk

    @contextmanager
    def _desk(self, state: ProofState) -> Iterator[Desk]:
        """A desk for one thread: the nearest of the idle ones, else a new one, else wait. A dead or worn one is not put back."""
        if os.getpid() != self._owner:  # a forked child must not talk into its parent's pipes
            self._forget()
        desk = self._take(state)
        try:
            if desk is None:
                desk = Desk(self.memory_bytes)
            yield desk
        except ProverFault:
            if desk is not None:
                desk.process.close()
            raise
        finally:
            with self._free:
                if desk is not None and desk.process.alive and desk.process.sentences < MOST_SENTENCES:
                    self._idle.append(desk)
                else:
                    self._count -= 1
                    if desk is not None:
                        desk.process.close()
                self._free.notify()

    def _take(self, state: ProofState) -> Desk | None:
        """An idle desk, or None with leave to start one. Raises ProverFault after a long wait."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self._free:
            while True:
                near = max(self._idle, key=lambda desk: desk.shared(state), default=None)
                if near is not None and (near.shared(state) or self._count >= self.concurrency):
                    chosen = near if near.shared(state) else self._idle[0]
                    self._idle.remove(chosen)
                    return chosen
                if self._count < self.concurrency:
                    self._count += 1
                    return None
                if not self._free.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise ProverFault(f"no coqtop process was free for {WAIT_SECONDS:g} s; allow more processes")
