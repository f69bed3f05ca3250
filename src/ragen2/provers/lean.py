"""Lean 4 as a prover, whole file by whole file: the file is the theorem, the tactics so far, and a question for its axioms.

How the file gets to Lean (`LeanChecker`) is another matter: an HTTP server (`kimina`) or a local REPL (`lean_interact`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from ragen2.errors import ConfigError
from ragen2.provers.base import ProofState, TacticError, TacticRefused, Theorem
from ragen2.provers.lean_tactic import read_lean_tactic

ALLOWED_AXIOMS = frozenset(("propext", "Classical.choice", "Quot.sound"))
"""What ordinary mathematics in Lean rests on. Anything else (sorryAx, Lean.ofReduceBool, an axiom of one's own) is a cheat."""

MAX_TACTICS = 200

_NAME = re.compile(r"\b(?:theorem|lemma)\s+([^\s:({\[]{1,200})")
_END = re.compile(r":=\s*(?:by\b)?\s*(?:sorry)?\s*\Z")
_NAMED_AXIOMS = re.compile(r"'([^'\n]{1,200})' depends on axioms: \[([^\]]{0,4000})\]")
_NO_AXIOMS = re.compile(r"'([^'\n]{1,200})' does not depend on any axioms")


@dataclass(frozen=True)
class LeanMessage:
    """A message of Lean: severity ("error", "warning", "info"), first line it is about (from 1), text."""

    severity: str
    line: int
    text: str


class LeanChecker(Protocol):
    """Has Lean read a file."""

    name: str
    concurrency: int

    def check(self, code: str) -> list[LeanMessage] | TacticError:
        """Lean's messages, or an error where reading it took too long. Raises ProverFault where Lean cannot be asked."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class LeanFile:
    """The text given to Lean: `tactics` begin after line `statement_lines`, the question for the axioms is line `asked`."""

    code: str
    name: str
    statement_lines: int
    asked: int


class LeanBackend:
    """Proofs in Lean 4 through a checker. A tactic is accepted when the file with it has no error but goals that are left; the
    theorem is proven when none is left and its own printed axioms are among `ALLOWED_AXIOMS`."""

    def __init__(self, checker: LeanChecker) -> None:
        self.checker, self.name, self.concurrency = checker, checker.name, checker.concurrency

    def __deepcopy__(self, memo: dict[int, Any]) -> LeanBackend:
        return self

    def open(self, theorem: Theorem) -> ProofState:
        """The theorem with its goals. Raises ConfigError where Lean refuses its statement."""
        result = self._judge(theorem, ())
        if isinstance(result, TacticError):
            raise ConfigError(f"Lean refuses theorem {theorem.name!r}: {result.text}")
        return result

    def apply(self, state: ProofState, tactic: str) -> ProofState | TacticError:
        """Add one tactic and have the whole file read."""
        try:
            line = read_lean_tactic(tactic)
        except TacticRefused as refusal:
            return TacticError(str(refusal), refused=True)
        if state.proven:
            return TacticError("the theorem is proven")
        if len(state.tactics) >= MAX_TACTICS:
            return TacticError(f"{MAX_TACTICS} tactics are the most", refused=True)
        return self._judge(state.theorem, (*state.tactics, line))

    def close(self) -> None:
        """Close the checker."""
        self.checker.close()

    def _judge(self, theorem: Theorem, tactics: tuple[str, ...]) -> ProofState | TacticError:
        file = lean_file(theorem, tactics)
        messages = self.checker.check(file.code)
        return messages if isinstance(messages, TacticError) else read_verdict(theorem, tactics, file, messages)


def lean_file(theorem: Theorem, tactics: tuple[str, ...]) -> LeanFile:
    """The file for a theorem after some tactics. A statement may be whole (`theorem t : p := by sorry`) or a bare proposition."""
    statement = _END.sub("", theorem.statement.strip()).rstrip()
    found = _NAME.search(statement)
    if found is None:
        name, statement = "target_theorem", f"theorem target_theorem : {statement}"
    else:
        name = found[1]
    top = f"{theorem.header.strip()}\n\n{statement} := by\n".lstrip()
    # `skip` does nothing: without a tactic the block would be a syntax error
    body = "".join(f"  {tactic}\n" for tactic in ("skip", *tactics))
    code = f"{top}{body}\n#print axioms {name}\n"
    return LeanFile(code, name, top.count("\n"), code.count("\n"))


def read_verdict(
    theorem: Theorem, tactics: tuple[str, ...], file: LeanFile, messages: list[LeanMessage]
) -> ProofState | TacticError:
    """What Lean's messages say about a file: goals that are left, an error, or a proof and whether its axioms are allowed."""
    goals: tuple[str, ...] = ()
    for message in messages:
        if message.severity == "error":
            of_theorem = message.line <= file.statement_lines and message.text.startswith("unsolved goals")
            if not of_theorem:
                return TacticError(message.text)
            goals = tuple(goal.strip() for goal in message.text.removeprefix("unsolved goals").split("\n\n") if goal.strip())
        elif "declaration uses" in message.text and "sorry" in message.text:
            return TacticError("the proof has a hole", refused=True)
    if goals:
        return ProofState(theorem, tactics, goals)
    answers = [message.text for message in messages if message.severity == "info" and message.line == file.asked]
    if len(answers) != 1:
        return TacticError("Lean does not say which axioms the theorem rests on")
    wrong = _wrong_axioms(answers[0], file.name)
    return ProofState(theorem, tactics, proven=True) if wrong is None else TacticError(wrong, refused=True)


def _wrong_axioms(answer: str, name: str) -> str | None:
    """What is wrong with the printed axioms of the theorem of this name; None when they are allowed."""
    none = _NO_AXIOMS.fullmatch(answer.strip())
    if none is not None:
        return None if _same_name(none[1], name) else f"axioms of {none[1]!r} were printed, not of {name!r}"
    named = _NAMED_AXIOMS.fullmatch(" ".join(answer.split()))
    if named is None or not _same_name(named[1], name):
        return f"the axioms of {name!r} cannot be read from {answer[:100]!r}"
    wrong = sorted({axiom.strip() for axiom in named[2].split(",")} - ALLOWED_AXIOMS)
    return f"the proof rests on {', '.join(wrong)}" if wrong else None


def _same_name(printed: str, name: str) -> bool:
    # inside a namespace that the header opened, Lean prints the full name
    return printed == name or printed.endswith(f".{name}")
