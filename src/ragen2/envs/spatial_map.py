"""Maps of rooms with doors and objects, questions about where things lie, and their exact answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ragen2.envs.grid import Cell, cell_name

COMPASS: dict[str, Cell] = {"north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}
"""Direction to step (row, column); row 0 is the north edge."""

DIRECTIONS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")

OBJECTS = (
    "lamp", "vase", "chair", "book", "clock", "piano", "mirror", "rug", "plant", "stove", "globe", "drum", "basket", "ladder",
    "candle", "statue",
)  # fmt: skip

QUESTIONS = ("direction", "object", "distance")


@dataclass(frozen=True)
class Question:
    """`kind` is one of QUESTIONS. direction: where `subject` lies seen from `reference`. object: what lies `direction` of
    `reference`. distance: rows plus columns between `subject` and `reference`."""

    kind: str
    reference: str
    subject: str = ""
    direction: str = ""

    @property
    def text(self) -> str:
        if self.kind == "direction":
            return f"in which direction is the {self.subject} from the {self.reference}?"
        if self.kind == "object":
            return f"which object is {self.direction} of the {self.reference}?"
        return f"how many steps apart are the {self.subject} and the {self.reference}?"


@dataclass(frozen=True)
class House:
    """A level: `doors` are pairs of neighbouring rooms (the smaller first), `objects` the room of each object."""

    rows: int
    cols: int
    start: Cell
    doors: frozenset[tuple[Cell, Cell]]
    objects: tuple[tuple[str, Cell], ...]
    question: Question

    def door(self, room: Cell, direction: str) -> Cell | None:
        """The room behind the door in a wall, None where there is no door."""
        step = COMPASS[direction]
        near = (room[0] + step[0], room[1] + step[1])
        return near if (min(room, near), max(room, near)) in self.doors else None

    def in_room(self, room: Cell) -> str | None:
        """The object in a room, None where it is empty."""
        return next((name for name, at in self.objects if at == room), None)

    def view(self, room: Cell, direction: str) -> list[Cell]:
        """Rooms seen through the open doors of one straight line, nearest first."""
        seen: list[Cell] = []
        while (room_ahead := self.door(room, direction)) is not None:
            seen.append(room_ahead)
            room = room_ahead
        return seen

    @property
    def text(self) -> str:
        """Canonical form."""
        doors = " ".join(cell_name(*a) + cell_name(*b) for a, b in sorted(self.doors))
        objects = " ".join(f"{name}={cell_name(*at)}" for name, at in sorted(self.objects))
        return f"{self.rows}x{self.cols} from {cell_name(*self.start)} doors {doors} objects {objects} {self.question.text}"


def direction_from(reference: Cell, subject: Cell) -> str:
    """Where `subject` lies from `reference`: north-east is any room both further north and further east. Empty: same room."""
    north = "north" if subject[0] < reference[0] else "south" if subject[0] > reference[0] else ""
    east = "east" if subject[1] > reference[1] else "west" if subject[1] < reference[1] else ""
    return "-".join(part for part in (north, east) if part)


def answer_of(question: Question, objects: dict[str, Cell]) -> str | None:
    """The answer that the known rooms of objects give; None while they do not settle it."""
    reference = objects.get(question.reference)
    if reference is None:
        return None
    if question.kind == "object":
        return next((name for name, at in objects.items() if direction_from(reference, at) == question.direction), None)
    subject = objects.get(question.subject)
    if subject is None:
        return None
    if question.kind == "direction":
        return direction_from(reference, subject)
    return str(abs(reference[0] - subject[0]) + abs(reference[1] - subject[1]))


def answers_to(question: Question, house: House) -> tuple[str, ...]:
    """All answers of the right kind; anything else is not taken as an answer."""
    if question.kind == "direction":
        return DIRECTIONS
    if question.kind == "object":
        return OBJECTS
    return tuple(str(steps) for steps in range(1, house.rows + house.cols - 1))


def draw_house(
    rows: int, cols: int, objects: int, openness: float, questions: Iterable[str], rng: np.random.Generator
) -> House | None:
    """A random house in which every room can be reached, and a question with one answer; None when the draw has none.

    Every wall that the spanning tree leaves closed gets a door with chance `openness`.
    """
    rooms = [(row, col) for row in range(rows) for col in range(cols)]
    start = rooms[int(rng.integers(len(rooms)))]
    doors = _doors(rooms, openness, rng)
    names = [OBJECTS[int(k)] for k in rng.permutation(len(OBJECTS))[:objects]]
    at = [rooms[int(k)] for k in rng.permutation(len(rooms))[:objects]]
    placed = dict(zip(names, at, strict=True))
    kinds = tuple(questions)
    question = _question(kinds[int(rng.integers(len(kinds)))], placed, rng)
    return None if question is None else House(rows, cols, start, doors, tuple(placed.items()), question)


def _doors(rooms: list[Cell], openness: float, rng: np.random.Generator) -> frozenset[tuple[Cell, Cell]]:
    walls = [(room, near) for room in rooms for near in ((room[0], room[1] + 1), (room[0] + 1, room[1])) if near in rooms]
    part = {room: room for room in rooms}
    doors = set()
    for k in rng.permutation(len(walls)):
        a, b = walls[int(k)]
        joined = part[a] == part[b]
        if not joined:
            old, new = part[b], part[a]
            part = {room: new if mark == old else mark for room, mark in part.items()}
        if not joined or rng.random() < openness:
            doors.add((a, b))
    return frozenset(doors)


def _question(kind: str, placed: dict[str, Cell], rng: np.random.Generator) -> Question | None:
    names = list(placed)
    reference, subject = (names[int(k)] for k in rng.permutation(len(names))[:2])
    if kind != "object":
        return Question(kind, reference, subject)
    direction = direction_from(placed[reference], placed[subject])
    alike = [name for name in names if direction_from(placed[reference], placed[name]) == direction]
    return Question(kind, reference, direction=direction) if alike == [subject] else None


def touches(room: Cell, other: Cell) -> bool:
    """Whether two rooms share a wall."""
    return abs(room[0] - other[0]) + abs(room[1] - other[1]) == 1


def way_to(start: Cell, goals: set[Cell], house: House, known: set[Cell]) -> str | None:
    """First direction of a shortest way over doors of `known` rooms to the nearest of `goals`; None where there is none."""
    first: dict[Cell, str] = {start: ""}
    queue = deque([start])
    while queue:
        room = queue.popleft()
        if room in goals and room != start:
            return first[room]
        if room not in known:
            continue
        for direction in COMPASS:
            near = house.door(room, direction)
            if near is not None and near not in first:
                first[near] = first[room] or direction
                queue.append(near)
    return None
