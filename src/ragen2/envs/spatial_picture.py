"""The map of the spatial environment as far as the agent has seen it."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ragen2.envs.drawing import Canvas, Tile
from ragen2.envs.grid import Cell
from ragen2.envs.spatial_map import COMPASS, House

_UNSEEN = Tile((120, 120, 124))
_ROOM = (244, 240, 228)
_HERE = (60, 120, 200)


def draw_map(house: House, at: Cell, seen: Collection[Cell], visited: Collection[Cell]) -> np.ndarray:
    """Rooms (32 pixels each): grey where not seen, objects by their first letters, walls of visited rooms, the agent's framed."""
    canvas = Canvas(house.rows, house.cols)
    for row in range(house.rows):
        for col in range(house.cols):
            room = (row, col)
            if room not in seen:
                canvas.tile(row, col, _UNSEEN)
                continue
            word = (house.in_room(room) or "")[:3]
            canvas.tile(row, col, Tile(_ROOM, frame=_HERE if room == at else None, word=word))
    for room in visited:
        for direction in COMPASS:
            if house.door(room, direction) is None:
                canvas.bar(*room, direction)
    return canvas.image
