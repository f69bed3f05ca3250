"""Keeps environments between iterations, so that each is built once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ragen2.envs.base import TextEnv

MakeEnv = Callable[[], TextEnv]
Key = tuple[str, MakeEnv]

MAX_KINDS = 8
"""Kinds of environment kept; the one unused for longest is closed."""


class EnvPool:
    """Idle environments by name and factory (the factory carries split and configuration: the same object, the same kind)."""

    def __init__(self) -> None:
        self._idle: OrderedDict[Key, list[TextEnv]] = OrderedDict()

    def take(self, environment: str, make: MakeEnv) -> TextEnv:
        """An idle environment of this kind, or a new one (whatever its constructor raises passes through)."""
        idle = self._idle.get((environment, make))
        return idle.pop() if idle else make()

    def give_back(self, environment: str, make: MakeEnv, env: TextEnv) -> None:
        """Keep an environment that is still in order; one that raised or hung must not come back."""
        key = (environment, make)
        self._idle.setdefault(key, []).append(env)
        self._idle.move_to_end(key)
        while len(self._idle) > MAX_KINDS:
            _, envs = self._idle.popitem(last=False)
            for old in envs:
                old.close()

    def close(self) -> None:
        """Close all idle environments."""
        while self._idle:
            _, envs = self._idle.popitem()
            for env in envs:
                env.close()
