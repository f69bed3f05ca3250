"""Games of ALFWorld: generated homes with a task in them, and game files of the original.

A generated game is a PDDL problem over ALFWorld's own domain: a floor plan's receptacles, things that fit on them, and a goal of
one of six kinds. Its text is the level's content.
"""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragen2.errors import ConfigError

TASKS = {
    "place": "pick_and_place_simple",
    "light": "look_at_obj_in_light",
    "clean": "pick_clean_then_place_in_recep",
    "heat": "pick_heat_then_place_in_recep",
    "cool": "pick_cool_then_place_in_recep",
    "two": "pick_two_obj_and_place",
}
"""Kinds of task, by the names that ALFWorld gives them."""

_APPLIANCES = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}
_VERBS = {"clean": "Cleanable", "heat": "Heatable", "cool": "Coolable"}
_LAMP = "DeskLamp"
_LAMP_PLACES = ("Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "Shelf")
"""Where a lamp stands: it is never carried, so ALFWorld does not say where it fits."""

_MANY = {"Cabinet": 5, "Drawer": 4, "CounterTop": 2, "Shelf": 3, "StoveBurner": 4, "SideTable": 2}
"""Most receptacles of a kind that comes in numbers; the others come once."""

_FEWEST_THINGS, _MOST_THINGS = 8, 14


@dataclass(frozen=True)
class World:
    """What ALFWorld knows of homes. `fits[place]` are the things that go there, `can[verb]` those that can be heated and so on,
    `goals[task]` the goal in PDDL and in words."""

    plans: Mapping[str, Mapping[str, Sequence[str]]]
    fits: Mapping[str, Sequence[str]]
    can: Mapping[str, Sequence[str]]
    openable: Sequence[str]
    movable: Sequence[str]
    goals: Mapping[str, Mapping[str, Any]]
    domain: str
    grammar: str

    def places(self, plan: str) -> list[str]:
        """Kinds of receptacles of a floor plan."""
        return [kind for kind in self.plans[plan]["classes"] if kind in self.fits and kind not in self.movable]


@dataclass(frozen=True)
class Game:
    """A game as textworld takes it; `content` tells it from others, `task` is the goal in words."""

    content: str
    task: str
    problem: str
    grammar: str
    domain: str

    def as_textworld(self) -> dict[str, str]:
        """The fields of a game file."""
        return {"pddl_domain": self.domain, "grammar": self.grammar, "pddl_problem": self.problem}


@dataclass(frozen=True)
class _Goal:
    kind: str
    thing: str
    place: str


def generate(world: World, tasks: Sequence[str], rng: np.random.Generator) -> Game | None:
    """A game of one of the kinds of tasks; None where the floor plan drawn has no such task after all."""
    kind = _pick(tasks, rng)
    needed = _LAMP if kind == "light" else _APPLIANCES.get(kind)
    plan = _pick([plan for plan in sorted(world.plans, key=int) if needed is None or needed in world.plans[plan]["classes"]], rng)
    goal = _draw_goal(world, plan, kind, rng)
    if goal is None:
        return None
    places = _draw_places(world, plan, rng)
    things = _draw_things(world, places, goal, rng)
    if things is None:
        return None
    told = world.goals[TASKS[goal.kind]]
    names = {"obj": goal.thing, "recep": goal.place, "toggle": _LAMP, "mrecep": ""}
    words = _pick(told["words"], rng).format(**{key: name.lower() for key, name in names.items()})
    problem = _problem(world, places, things, str(told["pddl"]).replace("#", "-").format(**names))
    return Game(f"alfworld {words}\n{problem}", words, problem, world.grammar.replace("UNKNOWN GOAL", words), world.domain)


def _draw_goal(world: World, plan: str, kind: str, rng: np.random.Generator) -> _Goal | None:
    places = world.places(plan)
    present = set(world.plans[plan]["classes"])
    if kind == "light":
        lit = _LAMP in present and any(place in _LAMP_PLACES for place in places)
        held = sorted({thing for place in places for thing in world.fits[place] if thing in present} - {_LAMP})
        return _Goal(kind, _pick(held, rng), "") if lit and held else None
    appliance = _APPLIANCES.get(kind)
    if appliance is not None and appliance not in places:
        return None
    pairs = [
        (thing, place)
        for place in places
        if place != appliance
        for thing in world.fits[place]
        if thing in present and thing != _LAMP and (appliance is None or thing in world.can[_VERBS[kind]])
        # it must have somewhere else to lie at first
        if any(other != place and thing in world.fits[other] for other in places)
    ]
    if not pairs:
        return None
    thing, place = pairs[int(rng.integers(len(pairs)))]
    return _Goal(kind, thing, place)


def _draw_places(world: World, plan: str, rng: np.random.Generator) -> list[tuple[str, str]]:
    """(id, kind) of each receptacle, as many of a kind as the floor plan has, within bounds."""
    counted = Counter(world.plans[plan]["openable"])
    places = []
    for kind in world.places(plan):
        most = min(_MANY.get(kind, 1), counted[kind] or _MANY.get(kind, 1))
        for number in range(int(rng.integers(1, most + 1))):
            # ALFWorld names a basin by the sink it is in
            basin = kind.endswith("Basin")
            places.append((f"{kind.removesuffix('Basin')}_bar_{number + 1}" + (f"_bar_{kind}" if basin else ""), kind))
    return places


def _draw_things(
    world: World, places: Sequence[tuple[str, str]], goal: _Goal, rng: np.random.Generator
) -> list[tuple[str, str, str]] | None:
    """(id, kind, receptacle) of each thing: those of the task away from where they belong, and others."""
    spots = {
        kind: [place for place, of in places if kind in world.fits[of] and of != goal.place] for kind in _kinds(world, places)
    }
    spots[_LAMP] = [place for place, of in places if of in _LAMP_PLACES]
    wanted = [goal.thing] * (int(rng.integers(2, 4)) if goal.kind == "two" else int(rng.integers(1, 3)))
    wanted += [_LAMP] if goal.kind == "light" else []
    others = sorted(kind for kind in spots if kind not in (goal.thing, _LAMP) and not kind.endswith("Sliced"))
    wanted += [_pick(others, rng) for _ in range(int(rng.integers(_FEWEST_THINGS, _MOST_THINGS + 1)))] if others else []
    numbers: Counter[str] = Counter()
    things = []
    for kind in wanted:
        if not spots.get(kind):
            if kind in (goal.thing, _LAMP):
                return None
            continue
        numbers[kind] += 1
        things.append((f"{kind}_bar_{numbers[kind]}", kind, _pick(spots[kind], rng)))
    return things


def _kinds(world: World, places: Sequence[tuple[str, str]]) -> set[str]:
    return {thing for kind in {kind for _, kind in places} for thing in world.fits[kind]}


def _problem(world: World, places: Sequence[tuple[str, str]], things: Sequence[tuple[str, str, str]], goal: str) -> str:
    at = {place: f"loc_{number}" for number, (place, _) in enumerate(places, start=1)}
    place_kinds, thing_kinds = sorted({kind for _, kind in places}), sorted({kind for _, kind, _ in things})
    objects = ["agent1 - agent", "loc_0 - location", *(f"{spot} - location" for spot in at.values())]
    objects += [f"{place} - receptacle" for place, _ in places] + [f"{thing} - object" for thing, _, _ in things]
    objects += [f"{kind}Type - rtype" for kind in place_kinds] + [f"{kind}Type - otype" for kind in thing_kinds]
    facts = ["atLocation agent1 loc_0"]
    for place, kind in places:
        facts += [f"receptacleType {place} {kind}Type", f"receptacleAtLocation {place} {at[place]}"]
        facts += [f"openable {place}"] if kind in world.openable else []
    facts += [f"canContain {p}Type {t}Type" for p in place_kinds for t in thing_kinds if t in world.fits[p]]
    for thing, kind, place in things:
        facts += [f"objectType {thing} {kind}Type", f"inReceptacle {thing} {place}", f"objectAtLocation {thing} {at[place]}"]
        facts += [f"{verb.lower()} {thing}" for verb, kinds in world.can.items() if kind in kinds]
        facts += [f"pickupable {thing}"] if kind not in world.can["Toggleable"] else []
    listed, held = "\n".join(objects), "\n".join(f"({fact})" for fact in facts)
    return f"(define (problem home)\n(:domain alfred)\n(:objects\n{listed})\n(:init\n(= (total-cost) 0)\n{held})\n{goal}"


def game_files(folder: str | Path) -> tuple[Path, ...]:
    """The solvable game files (`game.tw-pddl`) under a folder, sorted. Raises ConfigError where there are none."""
    root = Path(folder).expanduser()
    files = tuple(sorted(Path(parent) / "game.tw-pddl" for parent, _, names in os.walk(root) if "game.tw-pddl" in names))
    if not files:
        raise ConfigError(
            f"alfworld path {str(folder)!r} holds no game.tw-pddl; point it at a folder that alfworld-download filled"
        )
    return files


@functools.lru_cache(maxsize=256)
def read_game(path: Path) -> Game:
    """A game file of the original. Its grammar is code that textworld runs: read files of people you trust only.

    Raises ConfigError for a file that is no game.
    """
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        problem, grammar, domain = (str(held[key]) for key in ("pddl_problem", "grammar", "pddl_domain"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{str(path)!r} is no game of ALFWorld: {error}") from error
    _, _, told = grammar.partition("Your task is to: ")
    return Game(content_of(path), told.partition('"')[0].rstrip("."), problem, grammar, domain)


def content_of(path: Path) -> str:
    """What tells a game file from others: the folders of its task and trial."""
    return "alfworld file " + "/".join(path.parts[-3:-1])


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
