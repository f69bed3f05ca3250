"""Finds algorithms by name. A module of this package that defines `ALGORITHM` is one; others can be registered.

The settings that a name stands for are the shared defaults (the fields of ResolvedAlgorithm) under the algorithm's own.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields
from functools import cache
from typing import Any

from ragen2.algorithms.algorithm import Algorithm
from ragen2.algorithms.config import AlgorithmConfig, ResolvedAlgorithm
from ragen2.errors import ConfigError, UnknownName

__all__ = [
    "Algorithm",
    "AlgorithmConfig",
    "ResolvedAlgorithm",
    "get_algorithm",
    "list_algorithms",
    "register_algorithm",
    "resolve",
]

_registered: dict[str, Algorithm] = {}


@cache
def _built_in() -> dict[str, Algorithm]:
    package = importlib.import_module("ragen2.algorithms")
    found: dict[str, Algorithm] = {}
    for module in pkgutil.iter_modules(package.__path__):
        algorithm = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "ALGORITHM", None)
        if isinstance(algorithm, Algorithm):
            found[algorithm.name] = algorithm
    return found


def register_algorithm(algorithm: Algorithm) -> None:
    """Make an algorithm of one's own known by its name. Raises ConfigError when the name is taken or a default is no setting."""
    if get_or_none(algorithm.name) not in (None, algorithm):
        raise ConfigError(f"algorithm {algorithm.name!r} already exists; give yours another name.")
    ResolvedAlgorithm(**_settings(algorithm))
    _registered[algorithm.name] = algorithm


def get_or_none(name: str) -> Algorithm | None:
    """The algorithm of that name, or None."""
    return _registered.get(name) or _built_in().get(name)


def list_algorithms() -> list[str]:
    """Names of all algorithms."""
    return sorted({*_built_in(), *_registered})


def get_algorithm(name: str) -> Algorithm:
    """The algorithm of that name. Raises UnknownName, which names the nearest."""
    found = get_or_none(name)
    if found is None:
        raise UnknownName("algorithm", name, list_algorithms())
    return found


def resolve(config: AlgorithmConfig) -> ResolvedAlgorithm:
    """`config` with every None filled: the algorithm's own default, else the shared one.

    Raises UnknownName for an unknown algorithm and ConfigError for a combination that cannot work.
    """
    algorithm = get_algorithm(config.name)
    own = {field.name: getattr(config, field.name) for field in fields(AlgorithmConfig)}
    given = {key: value for key, value in own.items() if value is not None}
    settings = {**_settings(algorithm), **given}
    if "kl_estimator" not in settings and settings.get("kl_in") == "reward":
        settings["kl_estimator"] = "k1"
    resolved = ResolvedAlgorithm(**settings)
    if resolved.bi_level and not algorithm.uses_critic:
        raise ConfigError(f"algorithm.bi_level is on, but {config.name!r} has no critic. Use algorithm=ppo or turn it off.")
    return resolved


def _settings(algorithm: Algorithm) -> dict[str, Any]:
    known = [field.name for field in fields(AlgorithmConfig) if field.name != "name"]
    for key in algorithm.defaults:
        if key not in known:
            raise UnknownName(f"default of algorithm {algorithm.name!r}", key, known)
    return {"name": algorithm.name, **algorithm.defaults}
