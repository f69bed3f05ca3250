"""Stickers of a pocket cube (2x2x2), its moves and the turns of the whole cube, all derived from the geometry of space.

A cube is a text of 24 colour letters: the faces U, L, F, R, B, D in this order, four stickers each, row by row as the flat net
shows them (U above F, D below it, L F R B side by side).
"""

from __future__ import annotations

from itertools import product

Vector = tuple[int, int, int]
Permutation = tuple[int, ...]
"""Sticker i comes from place `permutation[i]`."""

FACES = "ULFRBD"
COLOURS = dict(zip(FACES, "WOGRBY", strict=True))
"""Colour of each face of the cube as it is sold: white opposite yellow, orange opposite red, green opposite blue."""

SOLVED = "".join(COLOURS[face] * 4 for face in FACES)

_NORMAL: dict[str, Vector] = {
    "U": (0, 1, 0), "D": (0, -1, 0), "R": (1, 0, 0), "L": (-1, 0, 0), "F": (0, 0, 1), "B": (0, 0, -1),
}  # fmt: skip
"""x to the right, y up, z towards the viewer."""

_READING: dict[str, tuple[Vector, Vector]] = {
    "U": ((0, 0, 1), (1, 0, 0)), "D": ((0, 0, -1), (1, 0, 0)), "F": ((0, -1, 0), (1, 0, 0)),
    "R": ((0, -1, 0), (0, 0, -1)), "B": ((0, -1, 0), (-1, 0, 0)), "L": ((0, -1, 0), (0, 0, 1)),
}  # fmt: skip
"""Directions in which the rows and the columns of a face run in the net."""


def _places() -> list[tuple[Vector, Vector]]:
    """Corner and normal of each sticker, in the order of the text."""
    found = []
    for face in FACES:
        normal, (down, right) = _NORMAL[face], _READING[face]
        for row, col in product((-1, 1), (-1, 1)):
            x, y, z = (n + row * d + col * r for n, d, r in zip(normal, down, right, strict=True))
            found.append(((x, y, z), normal))
    return found


PLACES = _places()
_AT = {place: index for index, place in enumerate(PLACES)}


def _turned(vector: Vector, axis: Vector) -> Vector:
    """A vector after a quarter turn, clockwise for who looks at the face with normal `axis` (v - component along, crossed)."""
    (a, b, c), (x, y, z) = axis, vector
    along = a * x + b * y + c * z
    return (a * along + y * c - z * b, b * along + z * a - x * c, c * along + x * b - y * a)


def _quarter(axis: Vector, whole: bool) -> Permutation:
    """A quarter turn of the layer on the side of `axis`, or of the whole cube."""
    source = list(range(24))
    for index, (corner, normal) in enumerate(PLACES):
        if whole or sum(p * q for p, q in zip(corner, axis, strict=True)) > 0:
            source[_AT[_turned(corner, axis), _turned(normal, axis)]] = index
    return tuple(source)


def then(first: Permutation, second: Permutation) -> Permutation:
    """Doing `first`, then `second`."""
    return tuple(first[index] for index in second)


IDENTITY: Permutation = tuple(range(24))


def _moves() -> dict[str, Permutation]:
    moves = {}
    for face in FACES:
        once = _quarter(_NORMAL[face], whole=False)
        twice = then(once, once)
        moves |= {face: once, f"{face}'": then(twice, once), f"{face}2": twice}
    return moves


MOVES = _moves()
"""The 18 moves: a face clockwise (U), counter-clockwise (U') and by half a turn (U2)."""


def _rotations() -> list[Permutation]:
    """The 24 turns of the whole cube."""
    quarters = [_quarter(_NORMAL[face], whole=True) for face in "URF"]
    found = [IDENTITY]
    # The list grows while it is read.
    for known in found:
        found += [turned for quarter in quarters if (turned := then(known, quarter)) not in found]
    return found


ROTATIONS = _rotations()


def turn(cube: str, permutation: Permutation) -> str:
    """The cube after a move or a turn of the whole cube."""
    return "".join([cube[index] for index in permutation])


def do(cube: str, moves: list[str] | tuple[str, ...]) -> str:
    """The cube after named moves."""
    for move in moves:
        cube = turn(cube, MOVES[move])
    return cube


def inverse(move: str) -> str:
    """The move that takes `move` back."""
    return move if move.endswith("2") else move[0] if move.endswith("'") else f"{move}'"


def whole_faces(cube: str) -> list[str]:
    """Faces whose four stickers have one colour. Six of them: solved, however the cube is held."""
    return [face for k, face in enumerate(FACES) if len(set(cube[4 * k : 4 * k + 4])) == 1]


def is_solved(cube: str) -> bool:
    """Whether every face has one colour."""
    return len(whole_faces(cube)) == len(FACES)


_CORNER_PLACES = [
    [_AT[corner, normal] for normal in _NORMAL.values() if (corner, normal) in _AT]
    for corner in sorted({corner for corner, _ in PLACES})
]
_HOME = {"Y": _AT[(-1, -1, -1), _NORMAL["D"]], "B": _AT[(-1, -1, -1), _NORMAL["B"]], "O": _AT[(-1, -1, -1), _NORMAL["L"]]}
_UPRIGHT = {(rotation[_HOME["Y"]], rotation[_HOME["B"]]): rotation for rotation in ROTATIONS}
"""The rotation that brings the yellow and the blue sticker of the yellow-blue-orange corner home, by where they are."""


def upright(cube: str) -> str:
    """The same cube held so that its yellow-blue-orange corner is where the solved cube has it. Equal exactly for cubes that
    differ by how they are held."""
    for places in _CORNER_PLACES:
        colours = {cube[place]: place for place in places}
        if colours.keys() == _HOME.keys():
            return turn(cube, _UPRIGHT[colours["Y"], colours["B"]])
    raise ValueError(f"{cube!r} is no cube of this kind: it has no yellow-blue-orange corner")
