"""A Coq process with a place in a proof: it goes to any state of any theorem, does a tactic there, judges a whole proof."""

from __future__ import annotations

import re

from ragen2.errors import ConfigError
from ragen2.provers.base import ProofState, ProverFault, Theorem
from ragen2.provers.coq_process import CoqProcess, Reply

NAME = "target_theorem"
"""Name under which every statement is proven."""

TACTIC_SECONDS = 2
MARGIN_SECONDS = 4.0
"""Time of a tactic before Coq stops it, and how much later the process is ended where Coq does not."""

TRUSTED_SECONDS = 60.0
"""For sentences that are not the model's, and tactics that went through before: a busy machine must not fail them."""

SHOW_SECONDS = 10.0
"""For printing the goals, which a model's tactics may have made huge."""

_SETUP = ("Set Printing Width 100.", "Open Scope list_scope.")
_MESSAGE = re.compile(r"<(infomsg|warning)>[^<]{0,4000}</\1>")
_GOALS = re.compile(r"\d+ (?:focused )?goals?\b")
_CLOSED = "Closed under the global context"


class Desk:
    """A process and where it stands: the theorem and the tactics done, with the state number before each."""

    def __init__(self, memory_bytes: int) -> None:
        self.process = CoqProcess(memory_bytes)
        self.theorem: Theorem | None = None
        self.tactics: list[str] = []
        self._states: list[int] = []
        self._base = 0
        for sentence in _SETUP:
            self.trusted(sentence)
        self._base = self.process.state

    def shared(self, state: ProofState) -> int:
        """How near the process is to a state: 0 for another theorem, else 1 and the number of first tactics in common."""
        return 0 if self.theorem != state.theorem else 1 + _common(self.tactics, state.tactics)

    def go_to(self, state: ProofState) -> None:
        """Stand at a state. Raises ProverFault where a tactic that went through before does not."""
        common = self.shared(state) - 1
        if common < 0:
            self.open(state.theorem)
            common = 0
        if common < len(self.tactics):
            self.process.go_back(self._states[common])
            del self.tactics[common:], self._states[common + 1 :]
        for tactic in state.tactics[common:]:
            if self.do(tactic, TRUSTED_SECONDS).failed:
                raise ProverFault(f"coqtop: {tactic[:100]!r} went through before and does not now")

    def open(self, theorem: Theorem) -> tuple[str, ...]:
        """State a theorem; its goals. Raises ConfigError where Coq refuses it."""
        self.theorem = None
        self.process.go_back(self._base)
        for sentence in (*_sentences(theorem.header), f"Theorem {NAME} : {theorem.statement}."):
            reply = self.process.ask(sentence, TRUSTED_SECONDS)
            if reply.failed:
                raise ConfigError(f"Coq refuses {sentence[:200]!r} of theorem {theorem.name!r}: {error_of(reply.text)}")
        self.theorem, self.tactics, self._states = theorem, [], [self.process.state]
        return self.goals()

    def goals(self) -> tuple[str, ...]:
        """What is left to prove. Asked for, as Coq by itself shows goals only where they changed, and messages before them."""
        return goals_of(self.process.ask("Show.", SHOW_SECONDS).text)

    def do(self, tactic: str, seconds: float | None = None) -> Reply:
        """Do a tactic, under Coq's own time limit unless `seconds` are given."""
        if seconds is None:
            reply = self.process.ask(f"Timeout {TACTIC_SECONDS} {tactic}", TACTIC_SECONDS + MARGIN_SECONDS)
        else:
            reply = self.process.ask(tactic, seconds)
        if not reply.failed:
            self.tactics.append(tactic)
            self._states.append(reply.state)
        return reply

    def undo(self) -> None:
        """Take the last tactic back."""
        self.process.go_back(self._states[-2])
        del self.tactics[-1], self._states[-1]

    def finish(self) -> str | None:
        """Let the kernel check the proof, then ask what it rests on and whether it proves the very statement; then go back to
        before it. Gives None, or what is wrong."""
        theorem, last = self.theorem, self.process.state
        assert theorem is not None
        closed = self.process.ask(f"Timeout {2 * TACTIC_SECONDS} Qed.", 2 * TACTIC_SECONDS + MARGIN_SECONDS)
        if closed.failed:
            return error_of(closed.text)
        rests_on = _MESSAGE.sub("", self.trusted(f"Print Assumptions {NAME}.").text).strip()
        same = self.process.ask(f"Check ({NAME} : {theorem.statement}).", TRUSTED_SECONDS)
        self.process.go_back(last)
        if rests_on != _CLOSED:
            return f"the proof rests on axioms: {rests_on}"
        return "it proves another statement" if same.failed else None

    def trusted(self, sentence: str) -> Reply:
        """Do a sentence of our own. Raises ProverFault where Coq refuses it."""
        reply = self.process.ask(sentence, TRUSTED_SECONDS)
        if reply.failed:
            raise ProverFault(f"coqtop refuses {sentence[:100]!r}: {error_of(reply.text)}")
        return reply


def goals_of(text: str) -> tuple[str, ...]:
    """The goals in what Coq printed: the first with its hypotheses and `|- `, of the others what is to be shown."""
    body = _MESSAGE.sub("", text)
    lines = [line.strip() for line in body.splitlines()]
    starts = [number for number, line in enumerate(lines) if _GOALS.match(line)]
    if not starts:
        return ()
    pieces: list[list[str]] = [[]]
    for line in lines[starts[-1] + 1 :]:
        if re.match(r"goal \d+ ", line):
            pieces.append([])
        elif line and set(line) == {"="}:
            pieces[-1].append("|-")
        elif line:
            pieces[-1].append(line)
    first = "\n".join(pieces[0]).replace("|-\n", "|- ", 1)
    return (first, *(" ".join(piece) for piece in pieces[1:]))


def error_of(text: str) -> str:
    """Coq's message without the echo of the input."""
    body = _MESSAGE.sub("", text)
    _, found, message = body.rpartition("\nError:")
    return " ".join((message if found else body.rpartition("Error:")[2]).split()) or "Coq refuses it"


def _sentences(header: str) -> list[str]:
    """Sentences of a trusted header: one ends with a full stop at the end of a line."""
    return [" ".join(part.split()) + "." for part in re.split(r"\.\s*(?:\n|\Z)", header) if part.strip()]


def _common(first: list[str], second: tuple[str, ...]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
