"""Compares formulas with math-verify in a child process that can be ended: a formula may hang it, never the training."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
from pathlib import Path

from ragen2.envs.json_child import JsonChild, TookTooLong
from ragen2.errors import EnvironmentFault, MissingDependency

SECONDS = 3.0
"""Processor time of one comparison. Beyond it the formulas count as different. Processor time, so that a busy machine gives the
same verdicts."""

WALL_SECONDS = 60.0
"""Longest wait for an answer by the clock: beyond it the machinery is broken, not the answer."""

_PROGRAM = Path(__file__).with_name("math_child.py")


def require_math_verify() -> None:
    """Raises MissingDependency where math-verify is not installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise MissingDependency("math-verify", "math", "comparing formulas in environment 'metamathqa'")


@functools.lru_cache(maxsize=100_000)
def same_formula(given: str, wanted: str) -> bool:
    """Whether math-verify takes two formulas (LaTeX) for equal; False when it needs more than SECONDS.

    Raises MissingDependency, and EnvironmentFault when the child does not start, dies or does not answer.
    """
    require_math_verify()
    return ask(_child(os.getpid()), given, wanted)


def ask(child: JsonChild, given: str, wanted: str) -> bool:
    """What the child says of two formulas; False where it took too long. Raises EnvironmentFault when it fails otherwise."""
    try:
        equal = child.ask({"given": given, "wanted": wanted}).get("equal")
    except TookTooLong:
        return False
    if not isinstance(equal, bool):
        child.close()
        raise EnvironmentFault(f"{child.what} gave no verdict but {str(equal)[:80]!r}; the episode is invalid")
    return equal


def formula_child(seconds: float = SECONDS, wall_seconds: float = WALL_SECONDS) -> JsonChild:
    """A child process that compares formulas; close it when done."""
    return JsonChild(_PROGRAM, seconds, "the formula checker", wall_seconds)


@functools.lru_cache(maxsize=1)
def _child(process: int) -> JsonChild:
    """The child of this process: a forked one must not share its parent's pipes."""
    child = formula_child()
    atexit.register(child.close)
    return child
