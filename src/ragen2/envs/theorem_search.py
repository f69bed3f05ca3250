"""Finds short proofs of propositional goals, as Coq tactics: for demonstrations, and to draw only theorems that can be proven.

Intuitionistic, by search over the very tactics an agent can use. Not complete, and bounded: what it does not find in its budget
is no level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ragen2.envs.theorem_formula import FALSE, TRUE, Formula, Goal

MAX_DEPTH = 14


@dataclass(frozen=True)
class Move:
    """A tactic, what kind of step it is, the hypothesis it uses, and the goals it leaves."""

    tactic: str
    kind: str
    hypothesis: str = ""
    leaves: tuple[Goal, ...] = ()


def prove(goal: Goal, budget: int = 300) -> list[Move] | None:
    """The shortest found proof of a goal, its moves in Coq's order; None when none is found within `budget` goals looked at."""
    return _Search(budget).prove(goal, MAX_DEPTH, frozenset())


def moves(goal: Goal) -> list[Move]:
    """All moves that Coq accepts in a goal, useful or not: those that close it, those that lose nothing, then the choices."""
    sure = _closing(goal) + _introducing(goal) + _taking_apart(goal)
    return (
        sure + _choices(goal) + [Move("exfalso.", "exfalso", leaves=(replace(goal, conclusion=FALSE),))] * (not goal.quantified)
    )


class _Search:
    def __init__(self, budget: int) -> None:
        self.left = budget

    def prove(self, goal: Goal, depth: int, path: frozenset[Goal]) -> list[Move] | None:
        key = replace(goal, hypotheses=tuple(sorted(((str(f), f) for _, f in goal.hypotheses), key=lambda item: item[0])))
        if depth <= 0 or self.left <= 0 or key in path:
            return None
        self.left -= 1
        sure = _closing(goal) or _introducing(goal) or _taking_apart(goal)
        best: list[Move] | None = None
        for move in sure[:1] or _choices(goal) + _giving_up(goal):
            most = depth if best is None else min(depth, len(best))
            found = self._all(move, most - 1, path | {key})
            if found is not None and (best is None or len(found) + 1 < len(best)):
                best = [move, *found]
        return best

    def _all(self, move: Move, depth: int, path: frozenset[Goal]) -> list[Move] | None:
        done: list[Move] = []
        for goal in move.leaves:
            found = self.prove(goal, depth - len(done), path)
            if found is None:
                return None
            done += found
        return done


def _closing(goal: Goal) -> list[Move]:
    if goal.quantified:
        return []
    found = [Move(f"exact {name}.", "exact", name) for name, formula in goal.hypotheses if formula == goal.conclusion]
    if goal.conclusion == TRUE:
        found.append(Move("exact I.", "true"))
    known = {formula for _, formula in goal.hypotheses}
    for name, formula in goal.hypotheses:
        if formula == FALSE or (formula.kind == "~" and formula.parts[0] in known):
            found.append(Move("contradiction.", "contradiction", name))
            break
    return found


def _introducing(goal: Goal) -> list[Move]:
    """All propositions and premises at once, or the parts of a conjunction."""
    conclusion = goal.conclusion
    if goal.quantified or conclusion.kind in ("->", "~"):
        hypotheses, names = list(goal.hypotheses), []
        while conclusion.kind == "->" or (conclusion.kind == "~" and not names):
            names.append(_fresh(goal, [name for name, _ in hypotheses]))
            hypotheses.append((names[-1], conclusion.parts[0]))
            conclusion = conclusion.parts[1] if conclusion.kind == "->" else FALSE
        left = Goal(tuple(hypotheses), conclusion, goal.atoms + goal.quantified)
        return [Move(f"intros {' '.join((*goal.quantified, *names))}.", "intros", " ".join(names), (left,))]
    if conclusion.kind in ("/\\", "<->"):
        one, other = conclusion.parts
        if conclusion.kind == "<->":
            one, other = Formula("->", (one, other)), Formula("->", (other, one))
        return [Move("split.", "split", "", (replace(goal, conclusion=one), replace(goal, conclusion=other)))]
    return []


def _taking_apart(goal: Goal) -> list[Move]:
    if goal.quantified:
        return []
    found: list[Move] = []
    known = {formula: name for name, formula in goal.hypotheses}
    cases: list[Move] = []
    for name, formula in goal.hypotheses:
        if formula.kind in ("/\\", "<->"):
            one, other = formula.parts
            if formula.kind == "<->":
                one, other = Formula("->", (one, other)), Formula("->", (other, one))
            first, second = _two_fresh(goal)
            left = _without(goal, name, (first, one), (second, other))
            found.append(Move(f"destruct {name} as [{first} {second}].", "both", name, (left,)))
        elif formula.kind == "\\/":
            new = _fresh(goal, [held for held, _ in goal.hypotheses])
            ways = tuple(_without(goal, name, (new, part)) for part in formula.parts)
            cases.append(Move(f"destruct {name} as [{new} | {new}].", "cases", name, ways))
        elif formula.kind == "->" and formula.parts[0] in known:
            held = tuple((other, formula.parts[1] if other == name else f) for other, f in goal.hypotheses)
            left = replace(goal, hypotheses=held)
            found.append(Move(f"specialize ({name} {known[formula.parts[0]]}).", "specialize", name, (left,)))
    return found + cases


def _choices(goal: Goal) -> list[Move]:
    if goal.quantified:
        return []
    found: list[Move] = []
    if goal.conclusion.kind == "\\/":
        one, other = goal.conclusion.parts
        found.append(Move("left.", "left", "", (replace(goal, conclusion=one),)))
        found.append(Move("right.", "right", "", (replace(goal, conclusion=other),)))
    for name, formula in goal.hypotheses:
        premises, result = _premises(formula, goal.conclusion)
        if premises and result == goal.conclusion:
            leaves = tuple(replace(goal, conclusion=premise) for premise in premises)
            found.append(Move(f"apply {name}.", "apply", name, leaves))
    return found


def _giving_up(goal: Goal) -> list[Move]:
    """`exfalso`, where a negation could then be used."""
    useful = goal.conclusion != FALSE and any(_premises(formula, FALSE)[1] == FALSE for _, formula in goal.hypotheses)
    return [Move("exfalso.", "exfalso", "", (replace(goal, conclusion=FALSE),))] if useful else []


def _premises(formula: Formula, wanted: Formula) -> tuple[list[Formula], Formula]:
    """What must be shown to use a hypothesis for `wanted`, and what it then gives."""
    premises: list[Formula] = []
    while formula != wanted and formula.kind in ("->", "~"):
        premises.append(formula.parts[0])
        formula = formula.parts[1] if formula.kind == "->" else FALSE
    return premises, formula


def _without(goal: Goal, name: str, *new: tuple[str, Formula]) -> Goal:
    return replace(goal, hypotheses=(*(held for held in goal.hypotheses if held[0] != name), *new))


def _fresh(goal: Goal, names: list[str]) -> str:
    used = {*names, *goal.atoms, *goal.quantified}
    return next(name for number in range(1, len(used) + 2) if (name := f"H{number}") not in used)


def _two_fresh(goal: Goal) -> tuple[str, str]:
    names = [name for name, _ in goal.hypotheses]
    first = _fresh(goal, names)
    return first, _fresh(goal, [*names, first])
