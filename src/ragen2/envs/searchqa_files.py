"""Questions and passages from files: HotpotQA, and corpora for the retriever.

HotpotQA (.parquet, .jsonl or .json as published): `question`, `answer`, `context` (either {"title": [...], "sentences": [[...]]}
or a list of [title, [sentences]]), and where present `supporting_facts` ({"title": [...]} or a list of [title, number]). The
corpus is made of all contexts. A corpus file holds in each row a `title` and a `text`, or `contents` whose first line is the
title. Rows that cannot be used are left out and counted.
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

from ragen2.envs.answer_match import normalise
from ragen2.envs.retriever import MAX_QUERY_CHARS, Passage
from ragen2.envs.searchqa_questions import Hop, Question, QuestionSet
from ragen2.errors import ConfigError, MissingDependency

MAX_QUESTION = 1000
MAX_PASSAGE = 20_000


@dataclass(frozen=True)
class HotpotFile:
    """What was read. `dropped` counts, by reason, the rows that were left out."""

    questions: QuestionSet
    dropped: Mapping[str, int]


@functools.lru_cache(maxsize=4)
def read_hotpotqa(path: str | Path) -> HotpotFile:
    """The questions of a file, and the passages of their contexts, each once.

    Raises ConfigError for a file that cannot be read or that holds no question; MissingDependency for parquet without pyarrow.
    """
    dropped: Counter[str] = Counter()
    questions: dict[str, Question] = {}
    passages: dict[Passage, None] = {}
    for row in read_rows(Path(path)):
        context = _context(row.get("context"))
        question, answer = row.get("question"), row.get("answer")
        passages.update(dict.fromkeys(context))
        if not isinstance(question, str) or not question.strip() or len(question) > MAX_QUESTION or not _is_text(question):
            dropped["no question, or one too long"] += 1
        elif not isinstance(answer, str) or not _is_text(answer) or not normalise(answer):
            dropped["no answer that can be compared"] += 1
        elif not context:
            dropped["no context"] += 1
        else:
            one = Question(" ".join(question.split()), (answer,), _hops(row, context), "file")
            if one.content in questions:
                dropped["repeated question"] += 1
            questions.setdefault(one.content, one)
    if not questions:
        raise ConfigError(
            f"{path}: no question is left; rows were left out for {dict(dropped)}. Rows need question, answer, context"
        )
    return HotpotFile(QuestionSet({"file": tuple(questions.values())}, tuple(passages)), dict(dropped))


def read_passages(path: str | Path) -> tuple[Passage, ...]:
    """The passages of a corpus file, or of a HotpotQA file's contexts, each once. Raises like `read_hotpotqa`."""
    passages: dict[Passage, None] = {}
    for row in read_rows(Path(path)):
        if "context" in row:
            passages.update(dict.fromkeys(_context(row["context"])))
            continue
        title, text = row.get("title", ""), row.get("text")
        if text is None and isinstance(row.get("contents"), str):
            title, _, text = row["contents"].partition("\n")
        passages.update(dict.fromkeys(_passage(title, text)))
    if not passages:
        raise ConfigError(f"{path}: no passage was found; rows need title and text, or contents, or the context of HotpotQA")
    return tuple(passages)


def read_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a .parquet, .jsonl or .json (one list) file. Raises ConfigError naming the line that is no JSON object."""
    if not path.is_file():
        raise ConfigError(f"file {str(path)!r} does not exist; give a .parquet, .jsonl or .json file")
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    try:
        with path.open(encoding="utf-8") as file:
            rows = json.load(file) if path.suffix == ".json" else (json.loads(line) for line in file if line.strip())
            if path.suffix == ".json" and not isinstance(rows, list):
                raise ConfigError(f"{path} holds a {type(rows).__name__}; a .json file is one list of objects")
            for number, row in enumerate(rows, start=1):
                if not isinstance(row, dict):
                    raise ConfigError(f"{path}, row {number} is a {type(row).__name__}; give a JSON object")
                yield row
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from error


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise MissingDependency("pyarrow", "logs", f"reading {path.name}") from None
    try:
        file = parquet.ParquetFile(path)
        for batch in file.iter_batches(batch_size=1000):
            yield from batch.to_pylist()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as parquet: {error}") from error


def _context(found: object) -> list[Passage]:
    pairs: list[tuple[object, object]] = []
    if isinstance(found, Mapping):
        titles, texts = found.get("title"), found.get("sentences")
        if isinstance(titles, list) and isinstance(texts, list):
            pairs = list(zip(titles, texts, strict=False))
    elif isinstance(found, list):
        pairs = [(entry[0], entry[1]) for entry in found if isinstance(entry, (list, tuple)) and len(entry) == 2]
    return [passage for title, text in pairs for passage in _passage(title, text)]


def _passage(title: object, text: object) -> list[Passage]:
    """One passage, or none where the two are no texts. Sentences are joined."""
    if isinstance(text, list):
        text = " ".join(part.strip() for part in text if isinstance(part, str))
    if not isinstance(title, str) or not isinstance(text, str) or not text.strip() or not _is_text(title + text):
        return []
    return [Passage(" ".join(title[:MAX_QUERY_CHARS].split()), " ".join(text[:MAX_PASSAGE].split()))]


def _hops(row: Mapping[str, Any], context: list[Passage]) -> tuple[Hop, ...]:
    """One look-up for each title that supports the answer and that the context holds."""
    facts = row.get("supporting_facts")
    named: object = facts.get("title") if isinstance(facts, Mapping) else facts
    listed = named if isinstance(named, list) else []
    firsts = [entry[0] if isinstance(entry, (list, tuple)) and entry else entry for entry in listed]
    known = {passage.title for passage in context}
    titles = dict.fromkeys(" ".join(title.split()) for title in firsts if isinstance(title, str))
    return tuple(Hop(title, title, "", title, "it") for title in titles if title in known)


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)
