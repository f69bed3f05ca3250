"""How Sokoban's demonstrations talk: short reasoning in varied words that names this level's cells.

The order is the order of thought: where things are, where the target lies from the box, which push comes next and from where, the
moves. Every sentence is true of the position shown, so a model must read its prompt to predict it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_WHERE = (
    "player at {at}, box at {box}, target at {goal}.",
    "I am at {at}, box at {box}, target {goal}.",
    "from {at} push box {box} to {goal}.",
    "now at {at}, bring box {box} to {goal}.",
)
"""Player, box and target in the order of the prompt: a small model then copies the cells after far fewer examples."""
_WAY = ("target is {way}.", "target lies {way}.", "box must go {way}.", "{way} from the box.")
_PUSH = (
    "push {push} from {stand}.",
    "stand at {stand}, push {push}.",
    "from {stand} push {push}.",
    "need {stand} to push {push}.",
)
_NO_PLAN = ("no plan from here.", "I see no way.", "box may be stuck.")
_LEAD_SURE = ("so", "go", "then", "take")
_LEAD_UNSURE = ("try", "maybe", "perhaps", "or")
_LINK = (" then ", ", then ", " and ")
_STRIDE = {
    "walk": ("{move} to {cell}", "{move} into {cell}"),
    "push": ("{move} box to {cell}", "{move} pushing to {cell}"),
    "score": ("{move} box to target {cell}", "{move} pushing to target {cell}"),
    "wall": ("{move} stays at {cell}", "{move} wall, stay {cell}"),
    "stuck": ("{move} cannot push {cell}", "{move} box {cell} stays"),
}
SPOKEN = 3
"""Moves that the reasoning spells out; of more it names the first ones and the last."""


@dataclass(frozen=True)
class Stride:
    """One chosen move: its direction, what happens (walk, push, score, wall, stuck) and the name of the cell concerned.

    That cell is where the player goes (walk) or stays (wall), where the box goes (push, score: onto a target) or stays (stuck).
    """

    move: str
    meets: str
    cell: str


@dataclass(frozen=True)
class Facts:
    """Names of the cells of the player, of the box that is talked about and of a target for it, and words for where that lies."""

    at: str
    box: str
    goal: str
    way: Sequence[str]


def tell(
    facts: Facts, push: tuple[str, str] | None, strides: Sequence[Stride], planned: bool, sure: bool, rng: np.random.Generator
) -> str:
    """Reasoning for the chosen moves. `push` is the plan's next push: its direction and the cell to stand on.

    `sure` is False for moves that no plan stands behind, `planned` False where a plan was wanted and none found.
    """
    way = list(facts.way)
    if rng.random() < 0.5:
        way.reverse()
    parts = [
        _pick(_WHERE, rng).format(at=facts.at, box=facts.box, goal=facts.goal),
        _pick(_WAY, rng).format(way=" and ".join(way)),
    ]
    if push is not None:
        parts.append(_pick(_PUSH, rng).format(push=push[0], stand=push[1]))
    elif not planned:
        parts.append(_pick(_NO_PLAN, rng))
    spoken = strides if len(strides) <= SPOKEN else [*strides[: SPOKEN - 1], strides[-1]]
    steps = [_pick(_STRIDE[stride.meets], rng).format(move=stride.move, cell=stride.cell) for stride in spoken]
    if len(spoken) < len(strides):
        steps[-1] = f"last {steps[-1]}"
    parts.append(f"{_pick(_LEAD_SURE if sure else _LEAD_UNSURE, rng)} {_pick(_LINK, rng).join(steps)}.")
    return " ".join(parts)


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
