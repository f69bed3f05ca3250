"""The program that makes and scores items of reasoning-gym: one JSON line in, one out. Run by `reasoning_gym_items`.

It runs as a child process with a limit on processor time, or, where an answer would be executed, inside the sandbox. It imports
nothing of ragen2. Items are made from an index alone, so any process makes the same ones.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import types
from collections.abc import Mapping
from typing import Any, TextIO

MEMORY = 4 << 30

SEEDED_EACH = ("acre", "gsm_symbolic", "list_functions", "word_ladder")
"""Data sets that prepare all their items at once: each item is made as a data set of one."""

COUNTED = ("countdown", "puzzle24")
"""Data sets whose answer must use the numbers that the item gives."""

_MANY = 2**31 - 1


def main() -> None:
    """Answer requests until standard input ends. With an argument: as a child with that limit, telling when it is ready."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    if seconds:
        importlib.import_module("reasoning_gym")
        for limit, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (most, most))
        reply(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, min(seconds, request.get("seconds", seconds)))
        answer = serve(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply(replies, answer)


def reply(replies: TextIO, answer: Mapping[str, Any]) -> None:
    """Write one line."""
    replies.write(json.dumps(answer) + "\n")
    replies.flush()


def serve(request: Mapping[str, Any]) -> dict[str, Any]:
    """The item of an index, or, with "answer", the score that its verifier gives; "error" where that failed.

    "where" asks for the data set's module instead; with "module" that one is imported without the rest of the package.
    """
    if request.get("where"):
        return {"module": importlib.import_module("reasoning_gym.factory").DATASETS[request["dataset"]][0].__module__}
    if "module" in request:
        import_alone(request["module"])
    name, options, index = request["dataset"], json.dumps(request["options"], sort_keys=True), request["index"]
    try:
        entry = item(name, options, index)
    except Exception as error:  # the package raises anything on options it does not like
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    if "answer" not in request:
        oracle = entry["answer"]
        numbers = [int(number) for number in entry["metadata"]["numbers"]] if name in COUNTED else None
        return {"question": str(entry["question"]), "answer": None if oracle is None else str(oracle), "numbers": numbers}
    try:
        return {"score": float(dataset(name, options, index).score_answer(request["answer"], entry))}
    except Exception as error:  # verifiers raise anything on odd answers; what cannot be read is not right
        return {"score": 0.0, "error": f"{type(error).__name__}: {error}"[:300]}


def import_alone(module: str) -> None:
    """Import a module of reasoning-gym, with the packages above it left empty: their start imports a hundred others."""
    package, _, _ = module.rpartition(".")
    spec = importlib.util.find_spec("reasoning_gym")
    if package not in sys.modules and spec is not None and spec.submodule_search_locations:
        folder = spec.submodule_search_locations[0]
        for name in ("reasoning_gym", package):
            empty = types.ModuleType(name)
            empty.__path__ = [os.path.join(folder, *name.split(".")[1:])]
            sys.modules[name] = empty
    importlib.import_module(module)


@functools.lru_cache(maxsize=256)
def item(name: str, options: str, index: int) -> dict[str, Any]:
    """The item of an index, with the global generators seeded by it: some data sets draw from those."""
    random.seed(index)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(index)
    return dataset(name, options, index)[0 if name in SEEDED_EACH else index]


def dataset(name: str, options: str, index: int) -> Any:
    """The data set that holds the item of an index."""
    return _one(name, options, index) if name in SEEDED_EACH else _whole(name, options)


@functools.lru_cache(maxsize=8)
def _whole(name: str, options: str) -> Any:
    return importlib.import_module("reasoning_gym.factory").create_dataset(
        name, **{**json.loads(options), "seed": 0, "size": _MANY}
    )


@functools.lru_cache(maxsize=256)
def _one(name: str, options: str, index: int) -> Any:
    return importlib.import_module("reasoning_gym.factory").create_dataset(
        name, **{**json.loads(options), "seed": index, "size": 1}
    )


if __name__ == "__main__":
    main()
