"""What a demonstrator of ALFWorld says: the task, what is seen, and why the next command."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_TASK = ("the task is to {task}.", "i must {task}.", "goal: {task}.")
_SEEN = ("i see: {seen}", "now: {seen}", "here: {seen}")
_WHY = {
    "go": ("so i {command}.", "next i {command}."),
    "open": ("it may be inside, so i {command}.", "it is closed. i {command}."),
    "take": ("this is what i need. i {command}.", "found it. i {command}."),
    "move": ("this is where it belongs. i {command}.", "i put it down: {command}."),
    "use": ("the light shows it. i {command}.", "i need light: {command}."),
}
_ANY = ("i {command}.", "let me {command}.")
_TRY = ("i am not sure. i try to {command}.", "maybe {command}.")
_SEEN_CHARS = 160


def tell(task: str, seen: str, commands: Sequence[str], sure: bool, rng: np.random.Generator) -> str:
    """Reasoning about this state that ends with the commands; `sure` where a plan leads to the goal."""
    words = [
        _pick(_TASK, rng).format(task=task),
        _pick(_SEEN, rng).format(seen=seen.splitlines()[-1][:_SEEN_CHARS] if seen else ""),
    ]
    for command in commands:
        options = _WHY.get(command.partition(" ")[0], _ANY) if sure else _TRY
        words.append(_pick(options, rng).format(command=command))
    return " ".join(words)


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
