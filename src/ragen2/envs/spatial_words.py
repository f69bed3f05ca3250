"""How the demonstrations of the spatial environment talk: what is known of the objects asked about, then what to do next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.grid import Cell, cell_name
from ragen2.envs.spatial_map import Question, direction_from

_ASKED = {
    "direction": ("want {subject} from {reference}.", "where is {subject} from {reference}.", "{subject} seen from {reference}."),
    "object": (
        "want what is {direction} of {reference}.",
        "look {direction} of {reference}.",
        "what is {direction} of {reference}.",
    ),
    "distance": (
        "want steps {subject} to {reference}.",
        "how far {subject} to {reference}.",
        "steps from {subject} to {reference}.",
    ),
}
_SEEN = ("{name} is at {cell}.", "{name} at {cell}.", "saw {name} at {cell}.")
_UNSEEN = ("{name} not seen yet.", "no {name} so far.", "must find {name}.")
_DIRECTION = ("{a} to {b} is {answer}.", "from {a} to {b} is {answer}.", "{b} lies {answer} of {a}.")
_OBJECT = ("{answer} at {b} is {direction} of {a}.", "{direction} of {a} is {answer} at {b}.")
_DISTANCE = ("{down} rows and {across} columns make {answer}.", "{down} plus {across} is {answer}.")
_SURE = ("so {action}.", "then {action}.", "answer: {action}.")
_LOOK = ("{way} is new, so {action}.", "not seen {way}, {action}.", "door {way}, {action}.")
_MOVE = ("go on, {action}.", "walk {way}, {action}.", "nothing new here, {action}.")
_TRY = ("try {action}.", "maybe {action}.", "perhaps {action}.")


def tell_known(question: Question, known: dict[str, Cell], rng: np.random.Generator) -> str:
    """What is asked, and where the objects of the question were seen."""
    parts = [
        _pick(_ASKED[question.kind], rng).format(
            subject=question.subject, reference=question.reference, direction=question.direction
        )
    ]
    for name in [question.subject, question.reference] if question.subject else [question.reference]:
        at = known.get(name)
        parts.append(
            _pick(_UNSEEN, rng).format(name=name) if at is None else _pick(_SEEN, rng).format(name=name, cell=cell_name(*at))
        )
    return " ".join(parts)


def tell_answer(question: Question, answer: str, known: dict[str, Cell], action: str, rng: np.random.Generator) -> str:
    """Why `answer` is right."""
    a = known[question.reference]
    b = known[answer if question.kind == "object" else question.subject]
    kinds = {"direction": _DIRECTION, "object": _OBJECT, "distance": _DISTANCE}
    why = _pick(kinds[question.kind], rng).format(
        a=cell_name(*a),
        b=cell_name(*b),
        answer=answer,
        direction=direction_from(a, b),
        down=abs(a[0] - b[0]),
        across=abs(a[1] - b[1]),
    )
    return f"{why} {_pick(_SURE, rng).format(action=action)}"


def tell_search(action: str, sure: bool, rng: np.random.Generator) -> str:
    """Why to look or to move."""
    verb, _, way = action.partition(" ")
    options = _TRY if not sure else _LOOK if verb == "look" else _MOVE
    return _pick(options, rng).format(action=action, way=way)


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
