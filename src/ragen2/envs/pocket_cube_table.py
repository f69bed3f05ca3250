"""How far every pocket cube is from solved: a table of all 3,674,160 positions, filled breadth first in about a second.

A position is numbered with the cube held upright (see `pocket_cube_moves.upright`): seven corners may be anywhere (7! orders)
and twisted three ways, the last twist following from the others (3^6), and U, R and F reach all of them.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

import numpy as np

from ragen2.envs.pocket_cube_moves import FACES, MOVES, PLACES, SOLVED, do, inverse, turn, upright

ORDERS, TWISTS = 5040, 729
POSITIONS = ORDERS * TWISTS
FARTHEST = 11
"""Moves that the worst positions need, a half turn counting as one."""

GENERATORS = tuple(f"{face}{kind}" for face in "URF" for kind in ("", "'", "2"))
"""Moves that leave the corner at the back left bottom alone."""

_FIXED = (-1, -1, -1)


def _slots() -> list[tuple[int, int, int]]:
    """Sticker places of the seven free corners: the one on U or D first, then clockwise."""
    slots = []
    for corner in sorted({corner for corner, _ in PLACES} - {_FIXED}):
        places = {FACES[index // 4]: index for index, (at, _) in enumerate(PLACES) if at == corner}
        x, y, z = corner
        sides = ("R" if x > 0 else "L", "F" if z > 0 else "B")
        first, second = sides if x * y * z < 0 else sides[::-1]
        slots.append((places["U" if y > 0 else "D"], places[first], places[second]))
    return slots


_SLOTS = _slots()
_NUMBER = {frozenset(SOLVED[place] for place in slot): number for number, slot in enumerate(_SLOTS)}


def corners(cube: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which corner stands in each of the seven slots of an upright cube, and how often it is twisted."""
    order, twist = [], []
    for slot in _SLOTS:
        colours = [cube[place] for place in slot]
        order.append(_NUMBER[frozenset(colours)])
        twist.append(next(k for k, colour in enumerate(colours) if colour in "WY"))
    return tuple(order), tuple(twist)


def position(cube: str) -> int:
    """The number of a cube, from 0 to POSITIONS - 1, however it is held."""
    order, twist = corners(upright(cube))
    return int(_rank(np.array([order]))[0]) * TWISTS + int(np.dot(twist[:6], _POWERS))


_POWERS = 3 ** np.arange(6)
_FACTORIALS = np.array([720, 120, 24, 6, 2, 1, 1])


def _rank(orders_N7: np.ndarray) -> np.ndarray:
    """Place of each order of seven in the alphabetical list of all."""
    smaller = orders_N7[:, None, :] < orders_N7[:, :, None]
    later = np.triu(np.ones((7, 7), dtype=bool), 1)
    return (smaller & later).sum(axis=2) @ _FACTORIALS


@lru_cache(maxsize=1)
def _transitions() -> tuple[np.ndarray, np.ndarray]:
    """For each generator, the order (9 x 5040) and the twist (9 x 729) that every order and twist goes to."""
    orders = np.array(list(permutations(range(7))))
    twists_6 = np.arange(TWISTS)[:, None] // _POWERS % 3
    twists = np.concatenate([twists_6, -twists_6.sum(axis=1, keepdims=True) % 3], axis=1)
    to_order, to_twist = [], []
    for move in GENERATORS:
        source, added = corners(turn(SOLVED, MOVES[move]))
        to_order.append(_rank(orders[:, source]))
        to_twist.append(((twists[:, source] + added) % 3)[:, :6] @ _POWERS)
    return np.array(to_order), np.array(to_twist)


def _neighbours(numbers: np.ndarray, generator: int) -> np.ndarray:
    to_order, to_twist = _transitions()
    return to_order[generator][numbers // TWISTS] * TWISTS + to_twist[generator][numbers % TWISTS]


@lru_cache(maxsize=FARTHEST)
def distances(most: int = FARTHEST) -> np.ndarray:
    """Moves from every position (int8, POSITIONS entries) to solved, -1 where there are more than `most`. Computed once."""
    found = np.full(POSITIONS, -1, dtype=np.int8)
    frontier = np.array([position(SOLVED)])
    found[frontier] = 0
    for depth in range(1, most + 1):
        for generator in range(len(GENERATORS)):
            reached = _neighbours(frontier, generator)
            found[reached[found[reached] < 0]] = depth
        frontier = np.flatnonzero(found == depth)
    return found


@lru_cache(maxsize=FARTHEST)
def positions_at(depth: int) -> np.ndarray:
    """Numbers of the positions that are exactly `depth` moves from solved, in order."""
    return np.flatnonzero(distances(depth) == depth).astype(np.int32)


def distance(cube: str) -> int:
    """Fewest moves that solve a cube."""
    return int(distances()[position(cube)])


def cube_at(number: int, most: int = FARTHEST) -> str:
    """The upright cube with this number, which is `most` moves from solved or nearer."""
    table, undone = distances(most), []
    while table[number]:
        reached = [int(_neighbours(np.array([number]), generator)[0]) for generator in range(len(GENERATORS))]
        generator = next(k for k, near in enumerate(reached) if 0 <= table[near] < table[number])
        undone.append(inverse(GENERATORS[generator]))
        number = reached[generator]
    return do(SOLVED, undone[::-1])


def good_moves(cube: str) -> list[str]:
    """Moves after which the cube is one move nearer to solved."""
    now = distance(cube)
    return [move for move, permutation in MOVES.items() if distance(turn(cube, permutation)) < now]
