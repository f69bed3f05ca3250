"""The program that plays ALFWorld games with textworld: one JSON line in, one out. Run by `alfworld_play`.

It holds many games by key and imports nothing of ragen2. The planner behind textworld is a C library with global state, so it
lives in this process, not in the training's.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

MOST_GAMES = 256
"""Games held at once; the one that was asked last the longest ago gives way."""


def main() -> None:
    """Answer requests until standard input ends. The first line written says that the child is ready."""
    seconds = float(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    games = Games()
    _reply(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            answer = games.serve(request)
        except Exception as error:  # textworld and its grammar raise anything on a broken game file
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _reply(replies, answer)


def _reply(replies: TextIO, answer: Mapping[str, Any]) -> None:
    replies.write(json.dumps(answer) + "\n")
    replies.flush()


class Games:
    """The games that are open, by key."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("alfworld")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("alfworld is not installed")
        self._folder = Path(spec.submodule_search_locations[0])
        # the package makes this folder on import, in the home directory unless told otherwise
        os.environ["ALFWORLD_DATA"] = str(self._folder)
        import fast_downward
        from textworld.envs.pddl import logic

        # the same problem is translated twice at each start: once is enough for all episodes of a group
        fast_downward.pddl2sas = functools.lru_cache(maxsize=64)(fast_downward.pddl2sas)
        logic.GameLogic = functools.lru_cache(maxsize=8)(logic.GameLogic)
        self._close_lib = fast_downward.close_lib
        self._open: OrderedDict[str, Any] = OrderedDict()

    def serve(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request; "unknown" where the game of its key is not open."""
        if "world" in request:
            return self._world()
        key = str(request["key"])
        if "game" in request:
            return self._start(key, request["game"])
        if key not in self._open:
            return {"unknown": True}
        self._open.move_to_end(key)
        if "close" in request:
            self._close(key)
            return {"closed": True}
        if "plan" in request:
            return {"plan": [" ".join(step.split()) for step in self._plan(key)]}
        state, _, _ = self._open[key].step(request["command"])
        return _shown(state)

    def _start(self, key: str, game: Mapping[str, str]) -> dict[str, Any]:
        from alfworld.agents.utils.misc import Demangler
        from textworld.core import EnvInfos
        from textworld.envs.pddl.pddl import PddlEnv

        if key in self._open:
            self._close(key)
        while len(self._open) >= MOST_GAMES:
            self._close(next(iter(self._open)))
        env = PddlEnv(EnvInfos(won=True, admissible_commands=True))
        env.load(dict(game))
        names = Demangler(game_infos=env._entity_infos)
        infos: list[Any] = list(env._entity_infos.values())
        for info in infos:
            info.name = names.demangle_alfred_name(info.id).strip()
        state = env.reset()
        self._open[key] = env
        return _shown(state)

    def _plan(self, key: str) -> list[str]:
        env = self._open[key]
        return env._pddl_state.replan(env._entity_infos)

    def _close(self, key: str) -> None:
        self._close_lib(self._open.pop(key).downward_lib)

    def _world(self) -> dict[str, Any]:
        """What the package knows of homes: floor plans, what fits where, goals, the domain and the grammar."""
        from alfworld.gen import constants
        from alfworld.gen.goal_library import gdict

        plans = {}
        for path in sorted((self._folder / "gen" / "layouts").glob("FloorPlan*-objects.json")):
            number = path.name.removeprefix("FloorPlan").removesuffix("-objects.json")
            openable = path.with_name(f"FloorPlan{number}-openable.json")
            found = json.loads(openable.read_text(encoding="utf-8")) if openable.exists() else {}
            plans[number] = {
                "classes": sorted(json.loads(path.read_text(encoding="utf-8"))),
                "openable": sorted(name.partition("|")[0] for name in found),
            }
        data = self._folder / "data"
        return {
            "plans": plans,
            "fits": {place: sorted(things) for place, things in sorted(constants.VAL_RECEPTACLE_OBJECTS.items())},
            "can": {verb: sorted(things) for verb, things in sorted(constants.VAL_ACTION_OBJECTS.items())},
            "openable": sorted(constants.OPENABLE_CLASS_LIST),
            "movable": sorted({*constants.MOVABLE_RECEPTACLES, "Box"}),
            "goals": {task: {"pddl": goal["pddl"], "words": list(goal["templates"])} for task, goal in sorted(gdict.items())},
            "domain": (data / "alfred.pddl").read_text(encoding="utf-8"),
            "grammar": (data / "alfred.twl2").read_text(encoding="utf-8"),
        }


def _shown(state: Any) -> dict[str, Any]:
    text = str(state.feedback).replace("-= Welcome to TextWorld, ALFRED! =-", "")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    commands = sorted({" ".join(command.split()) for command in state["admissible_commands"]})
    return {"text": "\n".join(line for line in lines if line), "commands": commands, "won": bool(state["won"])}


if __name__ == "__main__":
    main()
