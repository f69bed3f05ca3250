"""Writes a package by which verifiers (0.4, its v1 interface) loads one of our environments."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen2 import __version__
from ragen2.envs.registry import make
from ragen2.errors import ConfigError, StorageError
from ragen2.storage import write_whole

VERIFIERS = "verifiers>=0.4,<0.5"
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class WrittenPackage:
    """A package that was written: its name, its module and its files."""

    name: str
    module: str
    files: tuple[Path, ...]


def write_package(
    id: str, folder: str | Path, options: Mapping[str, Any] | None = None, *, package: str | None = None
) -> WrittenPackage:
    """Write the package of environment `id` with these options into `folder`, which must be absent or empty.

    Raises what `ragen2.make` raises, ConfigError for a package name that is none and for options that are no plain data,
    StorageError where the folder holds something or cannot be written.
    """
    settings = dict(options or {})
    if "split" in settings:
        raise ConfigError(f"split={settings['split']!r} is no option of an environment; it is a setting of the taskset")
    name = f"ragen2-{re.sub('[^a-z0-9]+', '-', id.lower()).strip('-')}" if package is None else package
    if not _NAME.fullmatch(name) or len(name) > 80:
        raise ConfigError(f"package name {name!r} is not allowed; use lower-case letters and digits, parts joined by -")
    try:
        held = json.loads(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"options {settings!r} cannot be written down: {error}; use plain data") from error
    env = make(id, **held)
    summary = f"ragen2 environment {id}"
    env.close()
    module = name.replace("-", "_")
    files = {
        "pyproject.toml": _PROJECT.format(name=name, module=module, summary=json.dumps(summary), version=__version__),
        "README.md": _README.format(name=name, id=id, options=json.dumps(held, sort_keys=True)),
        f"{module}/__init__.py": _MODULE.format(summary=summary, id=id, options=held),
    }
    return WrittenPackage(name, module, _write(Path(folder), files))


def _write(folder: Path, files: Mapping[str, str]) -> tuple[Path, ...]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise StorageError(f"folder {folder} is not empty; name one that is absent or empty")
        for path in files:
            (folder / path).parent.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error}") from error
    for path, text in files.items():
        write_whole(folder / path, text.encode())
    return tuple(folder / path for path in files)


_PROJECT = """[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = {summary}
requires-python = ">=3.11"
dependencies = ["ragen2>={version}", "{verifiers}"]

[tool.hatch.build.targets.wheel]
packages = ["{module}"]
""".replace("{verifiers}", VERIFIERS)

_README = """# {name}

The environment `{id}` of ragen2 for verifiers, with the options `{options}`.

    pip install .
    vf-eval {name} -m MODEL --select.limit 64 --env.taskset.split validation

Settings of the taskset: `split`, `max_turns`, `actions_per_turn`, `max_actions`, `think`. Task i is level seed i. The reward is
the sum of the task's rewards; the metrics are success, turns, valid_think_rate and valid_action_rate.
"""

_MODULE = '''"""{summary}, for verifiers."""

from typing import Any, ClassVar

from ragen2.integrations.verifiers_tasks import Ragen2Env, Ragen2Taskset


class ExportedTaskset(Ragen2Taskset):
    ENVIRONMENT: ClassVar[str] = {id!r}
    OPTIONS: ClassVar[dict[str, Any]] = {options!r}


class ExportedEnv(Ragen2Env):
    pass


__all__ = ["ExportedEnv", "ExportedTaskset"]
'''
