"""Draws propositional theorems: some premises and a conclusion, provable in a number of tactics within bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ragen2.envs.theorem_formula import FALSE, Formula, Goal
from ragen2.envs.theorem_search import prove
from ragen2.provers.base import Theorem

LETTERS = ("p", "q", "r", "s", "a", "b", "c", "d")
_KINDS = ("->", "/\\", "\\/", "~", "<->")
_WEIGHTS = (0.32, 0.28, 0.24, 0.12, 0.04)
_DRAWS = 60
_BUDGET = 80


@dataclass(frozen=True)
class TautologySettings:
    """Number of propositions, and the least and most tactics of the proof that is found."""

    propositions: int = 3
    shortest: int = 3
    longest: int = 7


def draw_tautology(rng: np.random.Generator, settings: TautologySettings) -> Theorem | None:
    """A theorem with its proof; None when none of some dozens of drawn formulas has a proof of the wanted length."""
    names = [LETTERS[i] for i in sorted(rng.permutation(len(LETTERS))[: settings.propositions].tolist())]
    for _ in range(_DRAWS):
        premises = [_draw(rng, names, 2, 0.1) for _ in range(int(rng.integers(1, 4)))]
        formula = _draw(rng, names, 2, 0.25)
        if formula in premises:
            continue
        for premise in reversed(premises):
            formula = Formula("->", (premise, formula))
        used = tuple(dict.fromkeys(formula.atoms()))
        if len(used) < 2:
            continue
        found = prove(Goal((), formula, (), used), _BUDGET)
        if found is not None and settings.shortest <= len(found) <= settings.longest:
            statement = f"forall {' '.join(used)} : Prop, {formula}"
            return Theorem("tautology", statement, "", tuple(move.tactic for move in found))
    return None


def canonical(formula: Formula) -> str:
    """The same text for formulas that differ only in the names of their propositions."""
    names = {atom: f"x{number}" for number, atom in enumerate(dict.fromkeys(formula.atoms()))}
    return str(formula.renamed(names))


def _draw(rng: np.random.Generator, names: list[str], depth: int, stop: float) -> Formula:
    if depth == 0 or rng.random() < stop:
        return FALSE if rng.random() < 0.04 else Formula(names[int(rng.integers(len(names)))])
    kind = _KINDS[int(rng.choice(len(_KINDS), p=_WEIGHTS))]
    first = _draw(rng, names, depth - 1, 0.5)
    if kind == "~":
        return Formula(kind, (first,))
    second = _draw(rng, names, depth - 1, 0.5)
    # `p /\\ p` and `p -> p` say nothing: the premise is then told once
    return first if first == second else Formula(kind, (first, second))
