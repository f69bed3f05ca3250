"""The environments by id: registered with an entry point, loaded on first use."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ragen2.envs.base import TextEnv
from ragen2.envs.splits import check_split
from ragen2.errors import ConfigError, MissingDependency, UnknownName, did_you_mean

EntryPoint = str | Callable[..., TextEnv]
"""A class or function returning a TextEnv, or where to find one: "package.module:Name"."""

_ID = re.compile(r"[a-z0-9][a-z0-9._/-]{0,79}")


@dataclass(frozen=True)
class EnvSpec:
    """What is known of an environment before it is loaded. `installed` says whether all packages in `needs` are found."""

    id: str
    entry_point: EntryPoint
    summary: str = ""
    needs: tuple[str, ...] = ()
    extra: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        return not self.missing

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages of `needs` that are not installed."""
        return tuple(package for package in self.needs if not _is_installed(package))


_BUILT_IN = {
    spec.id: spec
    for spec in (
        EnvSpec("frozen-lake", "ragen2.envs.frozen_lake:FrozenLake", "walk over slippery ice to the goal, around the holes"),
        EnvSpec("bandit", "ragen2.envs.bandit:Bandit", "choose between a steady and a risky arm by their names, one step"),
        EnvSpec("sokoban", "ragen2.envs.sokoban:Sokoban", "push every box onto a target"),
        EnvSpec("countdown", "ragen2.envs.countdown:Countdown", "reach a target number with + - * / and every number once"),
    )
}
_registered: dict[str, EnvSpec] = dict(_BUILT_IN)


def register(
    id: str,
    entry_point: EntryPoint,
    *,
    summary: str = "",
    needs: Iterable[str] = (),
    extra: str = "",
    **defaults: Any,
) -> None:
    """Make an environment known to `make` under `id`; `defaults` are passed to it unless overridden.

    `needs` are import names of packages it uses, `extra` the extra of ragen2 that installs them. Registering an id again replaces
    the earlier one, so that a notebook cell can be run twice. Raises ConfigError for an id of a built-in environment, for a
    malformed id or entry point.
    """
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise ConfigError(f"environment id {id!r} is not allowed; use lower-case letters, digits and - . _ / (80 at most)")
    if id in _BUILT_IN:
        raise ConfigError(f"environment id {id!r} is built in and cannot be replaced; choose another id")
    if not callable(entry_point) and not _is_location(entry_point):
        raise ConfigError(
            f"entry point {entry_point!r} of {id!r} is not allowed; give a class, a function or 'package.module:Name'"
        )
    _registered[id] = EnvSpec(id, entry_point, summary, tuple(needs), extra, dict(defaults))


def list_envs() -> list[EnvSpec]:
    """All known environments, sorted by id. Loads none of them."""
    return [_registered[id] for id in sorted(_registered)]


def make(id: str, /, split: str = "train", **config: Any) -> TextEnv:
    """An environment by id, for a split ("train", "validation" or "test"), with its options.

    Raises UnknownName for an unknown id, split or option (naming the nearest), ConfigError for a value that cannot be used, and
    MissingDependency when a package it needs is not installed.
    """
    spec = _registered.get(id)
    if spec is None:
        raise UnknownName("environment", str(id), _registered)
    check_split(split)
    entry = _load(spec)
    options = {**spec.defaults, **config}
    _check_options(spec.id, entry, options)
    try:
        env = entry(split=split, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"environment {spec.id!r} refused the options {options!r}: {error}") from error
    if not isinstance(env, TextEnv):
        raise ConfigError(f"entry point of {spec.id!r} returned a {type(env).__name__}; it must return a ragen2.envs.TextEnv")
    env.made_as = (spec.id, dict(config))
    return env


def _load(spec: EnvSpec) -> Callable[..., TextEnv]:
    if spec.missing:
        raise MissingDependency(spec.missing[0], spec.extra or spec.id, f"environment {spec.id!r}")
    if not isinstance(spec.entry_point, str):
        return spec.entry_point
    module_name, _, name = spec.entry_point.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"entry point {spec.entry_point!r} of environment {spec.id!r} cannot be imported: {error}") from error
    entry = getattr(module, name, None)
    if not callable(entry):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise ConfigError(f"module {module_name!r} of environment {spec.id!r} has no {name!r}.{did_you_mean(name, public)}")
    return cast("Callable[..., TextEnv]", entry)


def _check_options(id: str, entry: Callable[..., TextEnv], options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(entry).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {"split"}
    for key in options:
        if key not in named:
            raise UnknownName(f"option of environment {id!r}", key, named)


def _is_location(entry_point: object) -> bool:
    if not isinstance(entry_point, str):
        return False
    module, colon, name = entry_point.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
