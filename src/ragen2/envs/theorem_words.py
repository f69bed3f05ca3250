"""How the demonstrations of theorem proving talk: short reasoning about the goal that is shown, in varied words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.theorem_formula import Goal
from ragen2.envs.theorem_search import Move

_SHOW = ("show {goal}.", "the goal is {goal}.", "must prove {goal}.", "to show: {goal}.", "{goal} is left to show.")
_HAVE = ("I have {held}.", "given {held}.", "known: {held}.", "{held} is given.")
_WHY = {
    "intros": ("take the premises {name}.", "name them {name}.", "assume {name} first."),
    "split": ("two parts to show, split.", "show both sides.", "it has two sides, split it."),
    "left": ("the left side will do.", "go left.", "choose the left."),
    "right": ("the right side will do.", "go right.", "choose the right."),
    "exact": ("{name} is just that.", "{name} says so.", "that is {name}.", "{name} closes it."),
    "true": ("True always holds.", "this is trivial."),
    "contradiction": ("the premises clash.", "that cannot be, see {name}.", "{name} is refuted."),
    "both": ("{name} holds two facts.", "take {name} apart.", "{name} gives both parts."),
    "cases": ("{name} has two cases.", "two cases in {name}.", "go by cases on {name}."),
    "specialize": ("the premise of {name} is known.", "{name} can be used now.", "feed {name} its premise."),
    "apply": ("{name} leads there.", "use {name}.", "{name} ends in the goal."),
    "exfalso": ("show that this cannot be.", "aim for False instead."),
}
_STORED = ("go on with {tactic}", "next is {tactic}", "use {tactic}", "now {tactic}")
_GUESS = ("maybe {tactic}", "try {tactic}", "perhaps {tactic}", "guess {tactic}")

MAX_SHOWN = 160
"""Longest goal that the reasoning repeats."""


def tell_move(goal: Goal, move: Move, rng: np.random.Generator) -> str:
    """Reasoning for a move: what is to be shown, the hypothesis it uses, why."""
    parts = [_opening(str(goal.conclusion), rng)]
    held = next((f"{name} : {formula}" for name, formula in goal.hypotheses if name == move.hypothesis), None)
    if held is not None:
        parts.append(_pick(_HAVE, rng).format(held=held))
    parts.append(_pick(_WHY[move.kind], rng).format(name=move.hypothesis or "nothing"))
    return " ".join(parts)


def tell_guess(goal: Goal, move: Move, rng: np.random.Generator) -> str:
    """Reasoning that settles on a move without asking where it leads."""
    return f"{_opening(str(goal.conclusion), rng)} {_pick(_GUESS, rng).format(tactic=move.tactic)}"


def tell_stored(shown: str, tactic: str, sure: bool, rng: np.random.Generator) -> str:
    """Reasoning for a tactic of a stored proof, or for one that was only found to be accepted."""
    _, _, conclusion = shown.partition("|- ")
    return f"{_opening(' '.join(conclusion.split()), rng)} {_pick(_STORED if sure else _GUESS, rng).format(tactic=tactic)}"


def _opening(goal: str, rng: np.random.Generator) -> str:
    return _pick(_SHOW, rng).format(goal=goal if len(goal) <= MAX_SHOWN else f"{goal[:MAX_SHOWN]} and so on")


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
