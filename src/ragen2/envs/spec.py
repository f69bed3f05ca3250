"""What is known of an environment before it is loaded."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragen2.envs.base import TextEnv

EntryPoint = str | Callable[..., TextEnv]
"""A class or function returning a TextEnv, or where to find one: "package.module:Name"."""


@dataclass(frozen=True)
class EnvSpec:
    """What is known of an environment before it is loaded. `installed` says whether all it needs is found: `needs` are import
    names of packages, `programs` names of commands on the path."""

    id: str
    entry_point: EntryPoint
    summary: str = ""
    needs: tuple[str, ...] = ()
    extra: str = ""
    programs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    refuses_itself: bool = False
    """Whether the environment itself says what is missing, because some of its options do without."""

    @property
    def installed(self) -> bool:
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages of `needs` and commands of `programs` that are not installed."""
        programs = tuple(program for program in self.programs if shutil.which(program) is None)
        return tuple(package for package in self.needs if not _is_installed(package)) + programs


@dataclass(frozen=True)
class EnvFamily:
    """Many environments of one package behind one prefix: id "prefix/name" makes `entry_point(split, option=name, ...)`.

    `names` are those that exist, as a tuple or where to find one ("package.module:NAME"); None when only the package itself
    knows them, and then a name is checked when it is made. `left_out` says where a mapping of further names to the reason why
    they are not offered is found.
    """

    prefix: str
    entry_point: EntryPoint
    option: str
    names: tuple[str, ...] | str | None
    summary: str = ""
    needs: tuple[str, ...] = ()
    extra: str = ""
    left_out: str | None = None

    def member(self, name: str) -> EnvSpec:
        """One environment of the family."""
        return EnvSpec(
            f"{self.prefix}/{name}", self.entry_point, self.summary, self.needs, self.extra, defaults={self.option: name}
        )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
