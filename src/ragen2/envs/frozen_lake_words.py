"""How FrozenLake's demonstrations talk: short reasoning in varied words that names this level's cells.

Every sentence states a fact of the level shown or where a chosen move leads, so a model must read its prompt to predict it. The
words are few, since the smallest models learn them from scratch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ragen2.envs.grid import Cell, cell_name, towards

_WHERE = (
    "player at {at} and goal at {goal}.",
    "I am at {at}, goal is at {goal}.",
    "go from {at} to {goal}.",
    "now at {at}, must reach {goal}.",
)
"""The player first in all of them, as in the prompt: a small model then copies both cells after far fewer examples."""
_WAY = ("goal is {way}.", "it is {way}.", "the way is {way}.", "must go {way}.", "{way} from here.")
_HOLE = ("hole at {holes}.", "avoid {holes}.", "keep off {holes}.", "not into {holes}.")
_NO_HOLE = ("no hole near.", "ice all around.", "no hole next to me.")
_LEAD_SURE = ("so", "so go", "then go", "go", "take")
_LEAD_UNSURE = ("try", "maybe", "go", "take", "then go")
_LINK = (" then ", ", then ", " and then ")
_STRIDE = {
    "ice": ("{move} to {cell}", "{move} onto {cell}"),
    "goal": ("{move} to goal {cell}", "{move} onto goal {cell}"),
    "hole": ("{move} into hole {cell}", "{move} to hole {cell}"),
    "wall": ("{move} and stay at {cell}", "{move} to wall at {cell}"),
}


@dataclass(frozen=True)
class Stride:
    """One chosen move: its name, the cell it leads to when it does not slip, and what is there: ice, goal, hole or wall."""

    move: str
    to: Cell
    meets: str


def tell(at: Cell, goal: Cell, holes: Collection[Cell], strides: Sequence[Stride], sure: bool, rng: np.random.Generator) -> str:
    """Reasoning for the chosen moves: where the player and the goal are, which way, the holes beside the player, the moves.

    `sure` is False for moves that no plan stands behind.
    """
    way = towards(at, goal)
    near = sorted(hole for hole in holes if max(abs(hole[0] - at[0]), abs(hole[1] - at[1])) == 1)
    where = _pick(_WHERE, rng).format(at=cell_name(*at), goal=cell_name(*goal))
    facts = [
        _pick(_WAY, rng).format(way=" and ".join(way)),
        _pick(_HOLE, rng).format(holes=" and ".join(cell_name(*hole) for hole in near)) if near else _pick(_NO_HOLE, rng),
    ]
    steps = [_pick(_STRIDE[stride.meets], rng).format(move=stride.move, cell=cell_name(*stride.to)) for stride in strides]
    lead = _pick(_LEAD_SURE if sure else _LEAD_UNSURE, rng)
    return " ".join([where, *facts, f"{lead} {_pick(_LINK, rng).join(steps)}."])


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
