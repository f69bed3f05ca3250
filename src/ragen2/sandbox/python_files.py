"""Which files the Python interpreter needs, so that the sandbox shows these and nothing else."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ragen2.errors import SandboxUnavailable

_PROBE = """
import importlib, json, os, sys, sysconfig
for name in "ssl sqlite3 ctypes lzma bz2 zlib hashlib decimal readline uuid curses xml.parsers.expat".split():
    try:
        importlib.import_module(name)
    except ImportError:
        continue
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/") and ".so" in line}
folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
json.dump({"mapped": sorted(mapped), "folders": sorted(set(folders))}, sys.stdout)
"""

# `-S -s -P` and an empty environment leave the path to the standard library alone. `-I` would ignore PYTHONHASHSEED too.
PYTHON_OPTIONS = ("-S", "-s", "-P", "-B", "-X", "utf8")


@dataclass(frozen=True)
class PythonFiles:
    """The interpreter and what it needs: `folders` to show, folders of installed packages to `hide`, `links` at the root."""

    executable: str
    folders: tuple[str, ...]
    hide: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """(target, place), such as ("usr/lib", "/lib")."""


@functools.cache
def python_files() -> PythonFiles:
    """The files of the interpreter that runs this process, found by asking it what it loads. Raises SandboxUnavailable."""
    executable = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    command = [executable, *PYTHON_OPTIONS, "-c", _PROBE]
    try:
        probe = subprocess.run(command, env={}, capture_output=True, timeout=60, check=True, stdin=subprocess.DEVNULL)
        found = json.loads(probe.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxUnavailable(
            f"the sandbox needs a Python on Linux that starts by itself; {executable} did not: {error}. Use a Python of the "
            f"system, of pyenv, uv or conda."
        ) from error
    libraries = {os.path.dirname(path) for path in found["mapped"]}
    links, roots = [], []
    for place in ("/lib", "/lib64"):
        if os.path.islink(place):
            links.append((os.readlink(place), place))
            # The loader's own path, /lib64/ld-linux-…, may lead through a folder that nothing else is mapped from.
            roots += [os.path.realpath(place)] if place == "/lib64" else []
        elif os.path.isdir(place):
            roots.append(place)
    folders = _outermost({*found["folders"], *libraries, *roots})
    return PythonFiles(executable, folders, _package_folders(found["folders"], folders), tuple(links))


def _outermost(folders: set[str]) -> tuple[str, ...]:
    """Folders that lie in none of the others, in order."""
    return tuple(
        folder for folder in sorted(folders) if not any(Path(other) in Path(folder).parents for other in folders - {folder})
    )


def _package_folders(standard: list[str], shown: tuple[str, ...]) -> tuple[str, ...]:
    """Folders of installed packages that lie in what is shown."""
    names = ("site-packages", "dist-packages")
    places = {f"{folder}/{name}" for folder in standard for name in names}
    places |= {f"{os.path.dirname(folder)}/python3/{name}" for folder in standard for name in names}
    places |= {str(place) for folder in shown for name in names for place in Path(folder).glob(f"python3*/{name}")}
    inside = (place for place in places if any(Path(folder) in Path(place).parents for folder in shown))
    return tuple(sorted(place for place in inside if os.path.isdir(place)))
