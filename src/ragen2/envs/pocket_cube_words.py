"""How the pocket cube's demonstrations talk: faces as they are shown, whole faces, the moves that are left, the move chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.pocket_cube_moves import FACES, do, whole_faces

_SIDES = ("{face} is {stickers}.", "{face} shows {stickers}.", "{face} has {stickers}.")
_WHOLE = ("whole faces {faces}.", "{faces} whole already.", "one colour on {faces}.")
_NO_WHOLE = ("no face is whole.", "no whole face.", "every face is mixed.")
_PLAN = ("{count} to go: {moves}.", "{count} left: {moves}.", "needs {count}: {moves}.")
_FIRST = ("so {moves}, then whole {faces}.", "go {moves}, whole then {faces}.", "{moves} makes whole {faces}.")
_UNSURE = ("try {moves}, then whole {faces}.", "maybe {moves}, whole then {faces}.", "perhaps {moves}, whole {faces}.")


def tell(cube: str, plan: Sequence[str] | None, chosen: Sequence[str], rng: np.random.Generator) -> str:
    """Reasoning for the `chosen` moves; `plan` is a shortest solution that begins with them, None for random moves.

    Two faces are read out, in the order in which the prompt shows them.
    """
    parts = []
    for k in sorted(int(k) for k in rng.choice(len(FACES), size=2, replace=False)):
        parts.append(_pick(_SIDES, rng).format(face=FACES[k], stickers=" ".join(cube[4 * k : 4 * k + 4])))
    whole = whole_faces(cube)
    parts.append(_pick(_WHOLE, rng).format(faces=" ".join(whole)) if whole else _pick(_NO_WHOLE, rng))
    if plan is not None:
        parts.append(_pick(_PLAN, rng).format(count=len(plan), moves=" ".join(plan)))
    after = " ".join(whole_faces(do(cube, list(chosen)))) or "none"
    parts.append(_pick(_UNSURE if plan is None else _FIRST, rng).format(moves=" then ".join(chosen), faces=after))
    return " ".join(parts)


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
