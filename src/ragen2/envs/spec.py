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


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
