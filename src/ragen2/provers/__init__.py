"""Provers behind one interface: Coq by `coqtop`, Lean 4 by a Kimina server or by lean-interact."""

from __future__ import annotations

import functools
import shutil

from ragen2.errors import MissingProgram, UnknownName
from ragen2.provers.base import ProofState, ProverBackend, ProverFault, TacticError, TacticRefused, Theorem

PROVERS = ("coq", "kimina", "lean-interact")

__all__ = [
    "PROVERS",
    "ProofState",
    "ProverBackend",
    "ProverFault",
    "TacticError",
    "TacticRefused",
    "Theorem",
    "make_prover",
]


@functools.cache
def make_prover(
    name: str, *, automation: bool = False, processes: int = 2, server: str = "", lean_project: str = "", lean_repl: str = ""
) -> ProverBackend:
    """The prover of this name; all callers in a process with the same settings share it. Starts nothing yet.

    Raises UnknownName for another name, MissingProgram for coq without `coqtop`, and what the Lean checkers raise.
    """
    if name == "coq":
        if shutil.which("coqtop") is None:
            raise MissingProgram("coqtop", "proving in Coq (environment 'theorem')")
        from ragen2.provers.coq import CoqBackend

        return CoqBackend(processes, automation)
    if name not in PROVERS:
        raise UnknownName("prover", str(name), PROVERS)
    from ragen2.provers.lean import LeanBackend

    if name == "kimina":
        from ragen2.provers.kimina import KiminaChecker

        return LeanBackend(KiminaChecker(server))
    from ragen2.provers.lean_interact import LeanInteractChecker

    return LeanBackend(LeanInteractChecker(lean_project, lean_repl))
