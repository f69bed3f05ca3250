"""The environments by id: registered with an entry point, loaded on first use."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, cast

from ragen2.envs.base import TextEnv
from ragen2.envs.catalogue import CATALOGUE, FAMILIES
from ragen2.envs.spec import EntryPoint, EnvFamily, EnvSpec
from ragen2.envs.splits import check_split
from ragen2.errors import ConfigError, MissingDependency, MissingProgram, UnknownName, did_you_mean

_ID = re.compile(r"[a-z0-9][a-z0-9._/-]{0,79}")


PLUGIN_GROUP = "ragen2.envs"
"""Entry-point group by which installed packages add environments: the entry's name is the id, its value the entry point."""

_BUILT_IN = {spec.id: spec for spec in CATALOGUE}
_registered: dict[str, EnvSpec] = dict(_BUILT_IN)
_families: dict[str, EnvFamily] = {family.prefix: family for family in FAMILIES}


def register(
    id: str,
    entry_point: EntryPoint,
    *,
    summary: str = "",
    needs: Iterable[str] = (),
    extra: str = "",
    programs: Iterable[str] = (),
    **defaults: Any,
) -> None:
    """Make an environment known to `make` under `id`; `defaults` are passed to it unless overridden.

    `needs` are import names of packages it uses, `extra` the extra of ragen2 that installs them, `programs` commands it runs.
    Registering an id again replaces the earlier one, so that a notebook cell can be run twice. Raises ConfigError for an id of
    a built-in environment, for a malformed id or entry point.
    """
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise ConfigError(f"environment id {id!r} is not allowed; use lower-case letters, digits and - . _ / (80 at most)")
    if id in _BUILT_IN:
        raise ConfigError(f"environment id {id!r} is built in and cannot be replaced; choose another id")
    if not callable(entry_point) and not _is_location(entry_point):
        raise ConfigError(
            f"entry point {entry_point!r} of {id!r} is not allowed; give a class, a function or 'package.module:Name'"
        )
    _registered[id] = EnvSpec(id, entry_point, summary, tuple(needs), extra, tuple(programs), dict(defaults))


def list_envs() -> list[EnvSpec]:
    """All known environments, sorted by id, those of installed packages included. Loads none of them."""
    known = _known()
    return [known[id] for id in sorted(known)]


def register_family(
    prefix: str,
    entry_point: EntryPoint,
    option: str,
    names: Iterable[str] | str | None,
    *,
    summary: str = "",
    needs: Iterable[str] = (),
    extra: str = "",
) -> None:
    """Make all environments "prefix/name" known to `make` at once: `option` is the argument that takes the name.

    `names` lists them, or says where a tuple of them is found ("package.module:NAME"), or is None where any name may be tried.
    Raises ConfigError for a malformed prefix or entry point, and for the prefix of a built-in family.
    """
    if not isinstance(prefix, str) or not _ID.fullmatch(prefix) or "/" in prefix:
        raise ConfigError(f"prefix {prefix!r} is not allowed; use lower-case letters, digits and - . _ (80 at most)")
    if any(family.prefix == prefix for family in FAMILIES):
        raise ConfigError(f"prefix {prefix!r} is built in and cannot be replaced; choose another prefix")
    if not callable(entry_point) and not _is_location(entry_point):
        raise ConfigError(
            f"entry point {entry_point!r} of {prefix!r} is not allowed; give a class, a function or 'package.module:Name'"
        )
    listed = names if names is None or isinstance(names, str) else tuple(names)
    _families[prefix] = EnvFamily(prefix, entry_point, option, listed, summary, tuple(needs), extra)


def list_families() -> list[EnvFamily]:
    """All families of environments, sorted by prefix. Loads none of them."""
    return [_families[prefix] for prefix in sorted(_families)]


def family_names(family: EnvFamily) -> tuple[str, ...] | None:
    """The names within a family, sorted; None where any name may be tried. Raises ConfigError when they cannot be loaded."""
    if family.names is None:
        return None
    names = _find(family.names, f"family {family.prefix!r}") if isinstance(family.names, str) else family.names
    return tuple(sorted(cast("Iterable[str]", names)))


def make(id: str, /, split: str = "train", **config: Any) -> TextEnv:
    """An environment by id, for a split ("train", "validation" or "test"), with its options.

    Raises UnknownName for an unknown id, split or option (naming the nearest), ConfigError for a value that cannot be used, and
    MissingDependency when a package it needs is not installed.
    """
    spec = _registered.get(id) or _known().get(id) or _member(id)
    if spec is None:
        raise UnknownName("environment", str(id), [*_known(), *(f"{prefix}/*" for prefix in _families)])
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


def _known() -> dict[str, EnvSpec]:
    """Environments by id; what this process registered comes before what an installed package offers under the same id."""
    plugins = {
        entry.name: EnvSpec(entry.name, entry.value, f"from the package {entry.dist.name}" if entry.dist else "")
        for entry in entry_points(group=PLUGIN_GROUP)
        if _ID.fullmatch(entry.name) and _is_location(entry.value)
    }
    return plugins | _registered


def _member(id: str) -> EnvSpec | None:
    """The spec of "prefix/name" where a family has that prefix. Raises UnknownName for a name it lacks, ConfigError, with
    the reason, for one that is left out."""
    prefix, slash, name = str(id).partition("/")
    family = _families.get(prefix)
    if family is None or not slash:
        return None
    names = family_names(family)
    left_out = {} if family.left_out is None else cast("dict[str, str]", _find(family.left_out, f"family {prefix!r}"))
    if name in left_out:
        raise ConfigError(f"environment {id!r} is left out: {left_out[name]}")
    if names is not None and name not in names:
        raise UnknownName(f"environment of {prefix!r}", name, names)
    return family.member(name)


def _load(spec: EnvSpec) -> Callable[..., TextEnv]:
    if spec.missing and not spec.refuses_itself:
        raise _missing(spec)
    if not isinstance(spec.entry_point, str):
        return spec.entry_point
    entry = _find(spec.entry_point, f"environment {spec.id!r}")
    if not callable(entry):
        raise ConfigError(f"entry point {spec.entry_point!r} of environment {spec.id!r} is no class or function")
    return cast("Callable[..., TextEnv]", entry)


def _find(location: str, owner: str) -> object:
    """What "package.module:Name" names."""
    module_name, _, name = location.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"entry point {location!r} of {owner} cannot be imported: {error}") from error
    if not hasattr(module, name):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise ConfigError(f"module {module_name!r} of {owner} has no {name!r}.{did_you_mean(name, public)}")
    return getattr(module, name)


def _missing(spec: EnvSpec) -> Exception:
    first = spec.missing[0]
    if first in spec.programs:
        return MissingProgram(first, f"environment {spec.id!r}")
    return MissingDependency(first, spec.extra or spec.id, f"environment {spec.id!r}")


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
