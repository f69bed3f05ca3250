"""What the theorem environment asks of a prover: a theorem is opened, tactics are applied to states, states are plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ragen2.errors import EnvironmentFault

MAX_GOALS_SHOWN = 4
MAX_GOAL_CHARS = 2000
MAX_MESSAGE_CHARS = 400


@dataclass(frozen=True)
class Theorem:
    """A statement in a prover's language; `header` are trusted definitions before it, `proof` reference tactics, if any."""

    name: str
    statement: str
    header: str = ""
    proof: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProofState:
    """A theorem after some accepted tactics. `goals` are what is left to prove, as printed; `proven` says that the prover's own
    kernel accepted the whole proof and that it rests on no axiom that is not allowed.

    A state is a value: an earlier one can be gone on from at any time, which is how a step is taken back.
    """

    theorem: Theorem
    tactics: tuple[str, ...] = ()
    goals: tuple[str, ...] = ()
    proven: bool = False

    @property
    def text(self) -> str:
        """The first goal in full, the next ones in short; bounded."""
        if not self.goals:
            return "no goal left"
        several = len(self.goals) > 1
        head = f"goal 1 of {len(self.goals)}\n" if several else ""
        shown = [head + _cut(self.goals[0], MAX_GOAL_CHARS)]
        for number, goal in enumerate(self.goals[1:MAX_GOALS_SHOWN], 2):
            shown.append(f"goal {number}: {_cut(goal, MAX_MESSAGE_CHARS)}")
        return "\n".join(shown)


@dataclass(frozen=True)
class TacticError:
    """A tactic that changed nothing. `refused` says that it was not even tried, because it is not a tactic that is allowed."""

    message: str
    refused: bool = False

    @property
    def text(self) -> str:
        """The message on one line, bounded."""
        return _cut(" ".join(self.message.split()), MAX_MESSAGE_CHARS)


class TacticRefused(ValueError):
    """A text that is not one allowed tactic; the message says why."""


class ProverFault(EnvironmentFault):
    """A prover that cannot be started, died or cannot be reached: nothing was learnt about the proof."""


class ProverBackend(Protocol):
    """A prover. Methods may be called from several threads; `concurrency` calls at once are worth making."""

    name: str
    concurrency: int

    def open(self, theorem: Theorem) -> ProofState:
        """The state before any tactic. Raises ConfigError where the prover refuses the statement, ProverFault when it is down."""
        ...

    def apply(self, state: ProofState, tactic: str) -> ProofState | TacticError:
        """The state after one tactic (model text, hostile), or why there is none. Raises ProverFault when the prover is down."""
        ...

    def close(self) -> None:
        """End processes and connections. Safe to call twice; the next call starts them again."""
        ...


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} …"
