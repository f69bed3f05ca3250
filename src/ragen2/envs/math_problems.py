"""Problems with a gold answer: from a file of MetaMathQA, or from the templates of reasoning-gym's GSM-Symbolic.

A file is JSON lines or parquet with the fields of meta-math/MetaMathQA: `query`, `response` (the gold answer stands after the
last "The answer is:"), and where present `original_question`. Rows without a gold answer that can be compared are left out and
counted.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ragen2.envs.math_numbers import read_number
from ragen2.envs.math_text import tidy
from ragen2.errors import ConfigError, MissingDependency

MARK = "The answer is:"
MAX_QUESTION = 8_000
_MAX_SOLUTION = 2_000


@dataclass(frozen=True)
class Sum:
    """One step of a worked answer: `left operator right` is `result`. The operator is one of + - * /."""

    left: int
    operator: str
    right: int
    result: int


@dataclass(frozen=True)
class MathProblem:
    """A question and its gold answer.

    `family` names the question it was rephrased from: the split goes by it, so that no rephrasing crosses splits. `lines` is the
    worked answer, or `sums` its steps, for demonstrations.
    """

    question: str
    gold: str
    family: str
    lines: tuple[str, ...] = ()
    sums: tuple[Sum, ...] = ()

    @property
    def content(self) -> str:
        """Canonical text of the level."""
        return f"metamathqa {' '.join(self.family.split())}"


@dataclass(frozen=True)
class ProblemFile:
    """The problems of a file in its order, and how many rows were left out for which reason."""

    problems: tuple[MathProblem, ...]
    dropped: Mapping[str, int]


def gold_answer(response: str) -> str | None:
    """What stands after the last "The answer is:", to the end of its line; None where nothing that can be compared does."""
    _, mark, after = response.rpartition(MARK)
    gold = after.strip().partition("\n")[0].strip()
    return gold if mark and tidy(gold) is not None and gold.casefold() not in ("none", "nan", "null") else None


@functools.lru_cache(maxsize=8)
def read_metamath(path: str | Path) -> ProblemFile:
    """The problems of a .jsonl or .parquet file.

    Raises ConfigError for a missing file, a line that is no JSON object and a file without any problem; MissingDependency for
    parquet without pyarrow.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"problem file {str(path)!r} does not exist; give a .jsonl or .parquet file with query and response")
    problems: dict[str, MathProblem] = {}
    dropped: Counter[str] = Counter()
    for row in _rows(path):
        query, response = row.get("query"), row.get("response")
        original = row.get("original_question")
        if not isinstance(query, str) or not isinstance(response, str) or not query.strip():
            dropped["no query or response"] += 1
        elif len(query) > MAX_QUESTION or not _is_text(query + response):
            dropped["question too long or no text"] += 1
        elif (gold := gold_answer(response)) is None:
            dropped["no gold answer"] += 1
        elif query in problems:
            dropped["repeated question"] += 1
        else:
            family = original if isinstance(original, str) and _is_text(original) and original.strip() else query
            problems[query] = MathProblem(query.strip(), gold, family, _lines(response.rpartition(MARK)[0]))
    if not problems:
        raise ConfigError(f"{path}: no problem is left; rows were left out for {dict(dropped)}. Rows need query and response")
    return ProblemFile(tuple(problems.values()), dict(dropped))


def gsm_problem(rng: np.random.Generator) -> MathProblem | None:
    """A problem of one of the 100 templates of GSM-Symbolic, with its worked answer; None where the template's gold is no number.

    Raises MissingDependency without the package reasoning-gym.
    """
    seed = int(rng.integers(2**31))
    example: dict[str, Any] = _create_dataset()("gsm_symbolic", size=1, seed=seed)[0]
    question, gold = str(example["question"]).strip(), str(example["answer"]).strip()
    if read_number(gold) is None:
        return None
    worked = str(example["metadata"].get("answer_cot", "")).rpartition("####")[0]
    return MathProblem(question, gold, question, _lines(worked))


@functools.cache
def _create_dataset() -> Any:
    try:
        return import_module("reasoning_gym").create_dataset
    except ModuleNotFoundError:
        raise MissingDependency("reasoning-gym", "math", "environment 'metamathqa' with source=gsm") from None


def _lines(worked: str) -> tuple[str, ...]:
    """The lines of a worked answer; none of an answer too long to be shown as a demonstration."""
    text = worked.replace("####", "").strip()
    return tuple(line.strip() for line in text.splitlines() if line.strip()) if len(text) <= _MAX_SOLUTION else ()


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        try:
            parquet = import_module("pyarrow.parquet")
        except ModuleNotFoundError:
            raise MissingDependency("pyarrow", "logs", f"reading {path.name}") from None
        yield from parquet.read_table(path).to_pylist()
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}, line {number} is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise ConfigError(f"{path}, line {number} is a {type(row).__name__}; give an object with query and response")
            yield row
