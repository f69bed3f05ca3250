"""Spatial: explore a house of rooms seen one at a time, then answer a question about where its objects lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.drawing import check_render
from ragen2.envs.grid import MAX_SIDE, Cell, cell_name, clean_answer
from ragen2.envs.options import number, one_of, whole_number
from ragen2.envs.spatial_map import COMPASS, OBJECTS, QUESTIONS, House, answer_of, answers_to, draw_house, touches, way_to
from ragen2.envs.spatial_picture import draw_map
from ragen2.envs.spatial_words import tell_answer, tell_known, tell_search
from ragen2.envs.splits import check_seed, draw_level
from ragen2.errors import ConfigError, EnvironmentFault

STEP, RIGHT, WRONG = -0.02, 1.0, 0.0
"""Reward of an answer that ends nothing, of the right answer and of a wrong one."""


class Spatial(TextEnv):
    """Explore rooms on a grid and answer one question about their objects: a direction, an object, or a number of steps.

    Each turn shows the agent's room alone. "move east" walks through a door, "look east" shows the rooms behind the open doors of
    that line; both cost 0.02, and so does anything that is not understood or not possible, which changes nothing. "answer[lamp]"
    ends the episode with 1 when right and 0 when wrong; an answer of the wrong kind (a word that is no direction, say) ends
    nothing. After `max_steps` actions the episode is truncated.

    `rows` and `cols` are 2 to 10 rooms, `objects` 2 to 16 (at most one a room), `openness` the chance of a door beyond those that
    join all rooms, `questions` the kinds asked ("direction", "object", "distance"). Raises ConfigError for a value that cannot be
    used.
    """

    def __init__(
        self,
        split: str = "train",
        rows: int = 3,
        cols: int = 3,
        objects: int = 5,
        openness: float = 0.5,
        questions: Sequence[str] = QUESTIONS,
        max_steps: int = 30,
        render: str | None = None,
    ) -> None:
        super().__init__(split)
        self.rows, self.cols = whole_number("rows", rows, 2, MAX_SIDE), whole_number("cols", cols, 2, MAX_SIDE)
        self.objects = whole_number("objects", objects, 2, min(len(OBJECTS), self.rows * self.cols))
        self.openness = number("openness", openness, 0.0, 1.0)
        if isinstance(questions, str) or not questions:
            raise ConfigError(f"questions is {questions!r}; give a list with some of {', '.join(QUESTIONS)}")
        self.questions = tuple(one_of("spatial question", kind, QUESTIONS) for kind in questions)
        self.max_steps = whole_number("max_steps", max_steps, 1, 1_000_000)
        self.render = check_render("spatial", render)
        self._house: House | None = None
        self._at: Cell = (0, 0)
        self._seen: set[Cell] = set()
        self._visited: set[Cell] = set()
        self._steps = 0
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        return "\n".join(
            [
                f"A house has {self.rows} rows and {self.cols} columns of rooms. Explore it and answer the question.",
                "A room is a column letter and a row digit; a1 is the north-west corner, b1 east of it, a2 south of it.",
                "You see only your room. Actions: move DIRECTION through a door, look DIRECTION through the doors in that line,",
                "answer[...] with a direction, an object or a number. DIRECTION is north, east, south or west.",
                "North-east means further north and further east, by any number of rooms. Steps count rows plus columns.",
                f"Reward {RIGHT:g} for the right answer, {WRONG:g} for a wrong one, {STEP:g} for any other action. "
                f"At most {self.max_steps} actions.",
            ]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        house = draw_level(level_seed, self.split, self._generate, _content, attempts=300)
        self._house, self._at, self._seen, self._visited = house, house.start, {house.start}, {house.start}
        self._steps, self._last = 0, None
        return self._show(house)

    def step(self, action: str) -> StepResult:
        house = self._current()
        if self._last is not None:
            return self._last.again()
        self._steps += 1
        verb, rest = read_action(action)
        legal, remark, right = False, "not understood; write move east, look east or answer[...]", None
        if verb == "answer":
            legal, remark, right = self._answer(house, rest)
        elif verb:
            legal, remark = self._walk(house, rest) if verb == "move" else self._look(house, rest)
        ended = right is not None
        truncated = not ended and self._steps >= self.max_steps
        info = {"legal": legal, "remark": remark, **({"success": bool(right)} if ended or truncated else {})}
        reward = STEP if right is None else RIGHT if right else WRONG
        result = StepResult(self._show(house, remark), reward, ended, truncated, info)
        self._last = result if result.done else None
        return result

    def content(self) -> str:
        return _content(self._current())

    @property
    def house(self) -> House:
        """The level. Raises EnvironmentFault before the first reset."""
        return self._current()

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """One action: the answer once what was seen settles it, else a look or a step towards rooms not seen; or a random one.

        Only what was seen in this episode is used. Raises EnvironmentFault after the end.
        """
        house = self._current()
        whole_number("max_actions", max_actions, 1, 1000)
        if self._last is not None:
            raise EnvironmentFault("spatial: no demonstration after the end of an episode; reset first")
        known = {name: at for name, at in house.objects if at in self._seen}
        told = tell_known(house.question, known, rng)
        answer = answer_of(house.question, known)
        expert = bool(rng.random() < expertise)
        if expert and answer is not None:
            action = f"answer[{answer}]"
            return Demonstration(f"{told} {tell_answer(house.question, answer, known, action, rng)}", (action,))
        action = self._explore(house) if expert else self._random_action(house, rng)
        return Demonstration(f"{told} {tell_search(action, expert, rng)}", (action,))

    def _explore(self, house: House) -> str:
        """Look where the next room is not seen yet, or walk towards the nearest room from which one may be."""
        for direction in COMPASS:
            if self._new_behind(house, self._at, direction):
                return f"look {direction}"
        rooms = [(row, col) for row in range(house.rows) for col in range(house.cols)]
        unseen = [room for room in rooms if room not in self._seen]
        useful = {room for room in self._visited if any(self._new_behind(house, room, direction) for direction in COMPASS)}
        useful |= {room for room in self._seen - self._visited if any(touches(room, other) for other in unseen)}
        way = way_to(self._at, useful, house, self._visited) or way_to(self._at, set(rooms) - self._visited, house, self._visited)
        assert way is not None, "all rooms are joined, and a visit to each settles the question"
        return f"move {way}"

    def _new_behind(self, house: House, room: Cell, direction: str) -> bool:
        near = house.door(room, direction)
        return near is not None and near not in self._seen

    def _random_action(self, house: House, rng: np.random.Generator) -> str:
        if rng.random() < 0.2:
            options = answers_to(house.question, house)
            return f"answer[{options[int(rng.integers(len(options)))]}]"
        doors = [direction for direction in COMPASS if house.door(self._at, direction) is not None]
        return f"{('move', 'look')[int(rng.integers(2))]} {doors[int(rng.integers(len(doors)))]}"

    def _walk(self, house: House, direction: str) -> tuple[bool, str]:
        room = house.door(self._at, direction)
        if room is None:
            return False, f"no door to the {direction}"
        self._at = room
        self._seen.add(room)
        self._visited.add(room)
        return True, f"moved {direction}"

    def _look(self, house: House, direction: str) -> tuple[bool, str]:
        rooms = house.view(self._at, direction)
        if not rooms:
            return False, f"no door to the {direction}"
        self._seen.update(rooms)
        seen = ", ".join(f"{cell_name(*room)} {house.in_room(room) or 'empty'}" for room in rooms)
        return True, f"{direction} of here: {seen}, then a wall"

    @staticmethod
    def _answer(house: House, given: str) -> tuple[bool, str, bool | None]:
        options = answers_to(house.question, house)
        if given not in options:
            wanted = {"direction": "a direction", "object": "an object's name", "distance": "a number of steps"}
            return False, f"the answer must be {wanted[house.question.kind]}, {options[0]} for example", None
        right = given == answer_of(house.question, dict(house.objects))
        return True, "right" if right else "wrong", right

    def _generate(self, rng: np.random.Generator) -> House | None:
        return draw_house(self.rows, self.cols, self.objects, self.openness, self.questions, rng)

    def _current(self) -> House:
        if self._house is None:
            raise EnvironmentFault("spatial has no level yet; call reset(level_seed, noise_seed) first")
        return self._house

    def _show(self, house: House, remark: str = "") -> Observation:
        doors = " ".join(direction for direction in COMPASS if house.door(self._at, direction) is not None)
        lines = [
            f"question: {house.question.text}",
            f"you are in {cell_name(*self._at)}. here: {house.in_room(self._at) or 'empty'}. doors: {doors}.",
        ]
        image = None if self.render is None else draw_map(house, self._at, self._seen, self._visited)
        return Observation("\n".join([*lines, remark] if remark else lines), image)


def read_action(action: str) -> tuple[str, str]:
    """("move" or "look", direction), ("answer", what was answered), or two empty texts for anything else."""
    nothing = ("", "")
    text = clean_answer(action)
    if text is None or not text.isascii():
        return nothing
    if text.startswith("answer[") and text.endswith("]"):
        return "answer", text[len("answer[") : -1].strip(" ")
    verb, space, direction = text.partition(" ")
    return (verb, direction) if space and verb in ("move", "look") and direction in COMPASS else nothing


def _content(house: House) -> str:
    return f"spatial {house.text}"
