"""Propositional formulas as Coq writes and prints them, and a goal of such formulas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_FORMULA_CHARS = 2000
MAX_DEPTH = 40

_LEVELS = {"<->": 95, "->": 99, "\\/": 85, "/\\": 80, "~": 75}
"""Coq's precedence levels: a lower one binds tighter. All but <-> associate to the right."""

_TOKEN = re.compile(r"\s*(<->|->|/\\|\\/|~|\(|\)|[A-Za-z_][A-Za-z0-9_']{0,30})")
_WORD = re.compile(r"[A-Za-z_]")


class NotPropositional(ValueError):
    """A text that is no propositional formula or goal."""


@dataclass(frozen=True)
class Formula:
    """`kind` is one of -> /\\ \\/ <-> (two parts), ~ (one part), or a name (an atom, True, False; no part)."""

    kind: str
    parts: tuple[Formula, ...] = ()

    def __str__(self) -> str:
        return self._print(100)

    def _print(self, level: int) -> str:
        if not self.parts:
            return self.kind
        own = _LEVELS[self.kind]
        if self.kind == "~":
            text = f"~ {self.parts[0]._print(own)}"
        else:
            right = own - 1 if self.kind == "<->" else own
            text = f"{self.parts[0]._print(own - 1)} {self.kind} {self.parts[1]._print(right)}"
        return f"({text})" if own > level else text

    def atoms(self) -> Iterator[str]:
        """Names of the atoms from left to right, repeated as they occur."""
        if not self.parts:
            if self.kind not in ("True", "False"):
                yield self.kind
            return
        for part in self.parts:
            yield from part.atoms()

    def renamed(self, names: dict[str, str]) -> Formula:
        """The formula with its atoms renamed."""
        if not self.parts:
            return Formula(names.get(self.kind, self.kind))
        return Formula(self.kind, tuple(part.renamed(names) for part in self.parts))


FALSE = Formula("False")
TRUE = Formula("True")


@dataclass(frozen=True)
class Goal:
    """Named hypotheses, oldest first, and what is to be shown. `quantified` are the propositions of a `forall` still in front of
    it, `atoms` those that are introduced."""

    hypotheses: tuple[tuple[str, Formula], ...]
    conclusion: Formula
    atoms: tuple[str, ...] = ()
    quantified: tuple[str, ...] = ()


def read_formula(text: str) -> Formula:
    """Parse a formula. Raises NotPropositional for anything else, and for one too long or too deep."""
    if len(text) > MAX_FORMULA_CHARS:
        raise NotPropositional(f"a formula of {len(text)} characters; {MAX_FORMULA_CHARS} are read")
    tokens: list[str] = []
    place = 0
    text = text.strip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise NotPropositional(f"{text[place : place + 20]!r} is no part of a propositional formula")
        tokens.append(found[1])
        place = found.end()
    reader = _Reader(tokens)
    formula = reader.read(100, 0)
    if reader.place != len(tokens):
        raise NotPropositional(f"{tokens[reader.place]!r} follows a whole formula")
    return formula


class _Reader:
    """Reads tokens by precedence."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.place = tokens, 0

    def read(self, level: int, depth: int) -> Formula:
        if depth > MAX_DEPTH:
            raise NotPropositional(f"nested deeper than {MAX_DEPTH}")
        left = self._prefix(depth)
        while self.place < len(self.tokens):
            kind = self.tokens[self.place]
            own = _LEVELS.get(kind, 1000)
            if own > level or kind == "~":
                break
            self.place += 1
            right = self.read(own - 1 if kind == "<->" else own, depth + 1)
            left = Formula(kind, (left, right))
        return left

    def _prefix(self, depth: int) -> Formula:
        token = self.tokens[self.place] if self.place < len(self.tokens) else ""
        self.place += 1
        if token == "~":
            return Formula("~", (self.read(_LEVELS["~"], depth + 1),))
        if token == "(":
            inner = self.read(100, depth + 1)
            if self.place >= len(self.tokens) or self.tokens[self.place] != ")":
                raise NotPropositional("a parenthesis is not closed")
            self.place += 1
            return inner
        if not _WORD.match(token):
            raise NotPropositional(f"{token!r} stands where a formula is due")
        return Formula(token)


def read_goal(text: str) -> Goal:
    """Parse a goal as a proof state prints it: hypotheses a line each, then `|- ` and what is to be shown.

    Raises NotPropositional where it is not propositional.
    """
    context, mark, shown = text.partition("|- ")
    if not mark:
        raise NotPropositional("no goal")
    entries: list[str] = []
    for line in context.splitlines():
        if " : " in line or not entries:
            entries.append(line)
        else:
            entries[-1] += f" {line}"
    atoms: list[str] = []
    hypotheses: list[tuple[str, Formula]] = []
    for entry in entries:
        names, _, kind = entry.partition(" : ")
        if kind == "Prop":
            atoms += names.split(", ")
        else:
            formula = read_formula(kind)
            hypotheses += [(name, formula) for name in names.split(", ")]
    quantified, shown = _without_forall(" ".join(shown.split()))
    goal = Goal(tuple(hypotheses), read_formula(shown), tuple(atoms), quantified)
    known = {*atoms, *quantified}
    used = {atom for formula in (goal.conclusion, *(f for _, f in hypotheses)) for atom in formula.atoms()}
    if not used <= known:
        raise NotPropositional(f"{sorted(used - known)} are no propositions")
    return goal


def _without_forall(text: str) -> tuple[tuple[str, ...], str]:
    if not text.startswith("forall "):
        return (), text
    names, mark, rest = text.removeprefix("forall ").partition(" : Prop, ")
    if not mark:
        raise NotPropositional("quantified over something else than propositions")
    return tuple(names.split()), rest
