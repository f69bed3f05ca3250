"""ALFWorld: a task in a home, done by text commands (Shridhar et al., arXiv 2010.03768), on textworld."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragen2.envs.alfworld_games import TASKS, Game, content_of, game_files, generate, read_game
from ragen2.envs.alfworld_play import Play, Shown, require_alfworld, world
from ragen2.envs.alfworld_words import tell
from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.options import one_of, whole_number
from ragen2.envs.splits import check_seed, draw_level, level_rng, split_of
from ragen2.errors import ConfigError, EnvironmentFault

MOST_LISTED = 80
"""Most commands that an observation lists."""

_MAX_CHARS = 200
_IDLE = ("help", "inventory", "look")


class AlfWorld(TextEnv):
    """Find things in a home, clean, heat or cool them, and put them where they belong.

    Homes are generated over ALFWorld's floor plans (`tasks`: place, light, clean, heat, cool, two; all by default), or read from
    the game files of the original under the folder `path`, which run code of theirs. An action is one of the commands that the
    observation lists. Reward 1 when the goal is reached, and only that is success; after `max_steps` commands the episode is
    truncated. The level seed fixes the game; nothing in it is left to chance.

    Raises MissingDependency without alfworld and textworld, ConfigError for values that cannot be used.
    """

    concurrency = 2

    def __init__(
        self,
        split: str = "train",
        tasks: Sequence[str] | str = "all",
        path: str | Path | None = None,
        max_steps: int = 50,
    ) -> None:
        super().__init__(split)
        self.max_steps = whole_number("max_steps", max_steps, 1, 10_000)
        chosen = tuple(TASKS) if tasks == "all" else (tasks,) if isinstance(tasks, str) else tuple(tasks)
        self.tasks = tuple(one_of("alfworld task", task, TASKS) for task in chosen)
        if not self.tasks:
            raise ConfigError(f"alfworld tasks are empty; give some of {', '.join(TASKS)}")
        require_alfworld()
        self._files = None if path is None else _files_of(path, self.split)
        self._game: Game | None = None
        self._play: Play | None = None
        self._steps = 0
        self._plan: tuple[str, ...] = ()
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        return (
            "You are in a home and have a task. Look for things on and in furniture; what is closed must be opened. "
            "You can hold one thing.\n"
            "Action: one of the commands that are listed, word for word."
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        self.close()
        self._game = self._draw(level_seed)
        self._play = Play(self._game)
        self._steps, self._plan, self._last = 0, (), None
        return Observation(self._listed(self._play.shown))

    def step(self, action: str) -> StepResult:
        play = self._playing()
        if self._last is not None:
            return self._last.again()
        command = _read(action, play.shown)
        if command is None:
            told = f"Nothing happens.\n{self._listed(play.shown)}"
            return StepResult(Observation(told), 0.0, False, False, {"legal": False})
        shown = play.do(command)
        self._steps += 1
        self._plan = self._plan[1:] if self._plan[:1] == (command,) else ()
        late = not shown.won and self._steps >= self.max_steps
        info = {"legal": True} | ({"success": shown.won} if shown.won or late else {})
        result = StepResult(Observation(self._listed(shown)), float(shown.won), shown.won, late, info)
        self._last = result if result.done else None
        return result

    def content(self) -> str:
        self._playing()
        return self._game.content if self._game is not None else ""

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The next commands of a plan that reaches the goal, or a random one. Raises EnvironmentFault after the end."""
        most = whole_number("max_actions", max_actions, 1, 1000)
        play = self._playing()
        if self._last is not None or self._game is None:
            raise EnvironmentFault("alfworld: no demonstration after the end of an episode; reset first")
        sure = bool(rng.random() < expertise)
        if sure and not self._plan:
            self._plan = play.plan()
        useful = [command for command in play.shown.commands if command not in _IDLE] or list(play.shown.commands)
        commands = self._plan[:most] if sure and self._plan else (useful[int(rng.integers(len(useful)))],)
        return Demonstration(tell(self._game.task, play.shown.text, commands, sure, rng), tuple(commands))

    def close(self) -> None:
        play, self._play = self._play, None
        if play is not None:
            play.close()

    def _draw(self, level_seed: int) -> Game:
        if self._files is not None:
            return read_game(self._files[int(level_rng(level_seed).integers(len(self._files)))])
        homes = world()
        return draw_level(level_seed, self.split, lambda rng: generate(homes, self.tasks, rng), lambda game: game.content)

    def _listed(self, shown: Shown) -> str:
        told = f"Your task is to: {self._game.task}." if self._game is not None else ""
        lines = [shown.text] if told in shown.text else [told, shown.text]
        return "\n".join([*lines, f"Commands: {', '.join(shown.commands[:MOST_LISTED])}"])

    def _playing(self) -> Play:
        if self._play is None:
            raise EnvironmentFault("alfworld has no game yet; call reset(level_seed, noise_seed) first")
        return self._play


def _read(action: str, shown: Shown) -> str | None:
    """The command that an action names, letter case and white space aside."""
    if len(action) > _MAX_CHARS:
        return None
    given = " ".join(action.split()).casefold()
    return next((command for command in shown.commands if command.casefold() == given), None)


def _files_of(path: str | Path, split: str) -> tuple[Path, ...]:
    files = game_files(path)
    found = tuple(file for file in files if split_of(content_of(file)) == split)
    if not found:
        raise ConfigError(
            f"none of the {len(files)} games under {str(path)!r} belongs to split {split!r}; give a folder of more games"
        )
    return found
