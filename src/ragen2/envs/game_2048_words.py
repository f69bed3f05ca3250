"""How the demonstrations of 2048 talk: the largest tile and its cell, the empty cells, and what each looked-at move merges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_TOP = (
    "largest {top} at {cell}, {empty} empty.",
    "top tile {top} in {cell}, {empty} cells empty.",
    "{top} at {cell} and {empty} empty.",
)
_MERGE = ("{move} merges {pairs}.", "{move} joins {pairs}.", "{move} makes {pairs}.")
_NONE = ("{move} merges nothing.", "{move} joins none.", "{move} only slides.")
_SURE = ("so {move}.", "go {move}.", "best is {move}.", "then {move}.")
_UNSURE = ("try {move}.", "maybe {move}.", "perhaps {move}.", "or {move}.")
_SPOKEN_PAIRS = 3


def tell(
    top: int, cell: str, empty: int, merges: Sequence[tuple[str, Sequence[int]]], move: str, sure: bool, rng: np.random.Generator
) -> str:
    """Reasoning for `move`. `merges` holds the moves that are spoken of and the tiles each would make."""
    parts = [_pick(_TOP, rng).format(top=top, cell=cell, empty=empty)]
    for name, made in merges:
        pairs = " and ".join(f"{value // 2}+{value // 2}={value}" for value in made[:_SPOKEN_PAIRS])
        parts.append(_pick(_MERGE if made else _NONE, rng).format(move=name, pairs=pairs))
    parts.append(_pick(_SURE if sure else _UNSURE, rng).format(move=move))
    return " ".join(parts)


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
