"""BM25 over passages: built once, kept on disk, shared by the environments of a process."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragen2.cache import build_once, cache_folder
from ragen2.envs.retriever import MAX_QUERY_CHARS, Passage
from ragen2.errors import ConfigError, MissingDependency, StorageError

MAX_QUERY_WORDS = 64
TITLE_WEIGHT = 3
"""Times a title is counted: what a passage is about comes before what it mentions."""
LEAST_KEPT = 5000
"""Indexes of fewer passages are built each time: that is faster than reading them."""

_WORD = re.compile(r"[^\W_]+")
_QUOTES = re.compile(r"['\u2018\u2019]")
_COMMON = frozenset(
    ("a", "an", "the", "of", "in", "on", "at", "to", "and", "or", "for", "is", "are", "by", "with", "which", "whose")
)
_FORMAT = "2"
"""Part of the name of a kept index: changes with the way texts become words."""


class Bm25Retriever:
    """An index of passages, read-only once built. `seconds` is the time it took to build or read.

    `folder` is where indexes are kept; None takes the user's cache. Raises MissingDependency without bm25s, and ConfigError for
    passages without a single word.
    """

    def __init__(self, passages: Sequence[Passage], folder: Path | None = None) -> None:
        start = time.perf_counter()
        self.passages = tuple(passages)
        bm25s = _bm25s()
        if len(self.passages) < LEAST_KEPT:
            self._index = _built(bm25s, self.passages)
        else:
            self._index = _kept(bm25s, self.passages, folder)
        self._vocabulary: dict[str, int] = self._index.vocab_dict
        self.seconds = time.perf_counter() - start

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """Passages that share a word with the query; equal scores in the order of the passages."""
        return [[self.passages[place] for place in self._find(query, topk)] for query in queries]

    def _find(self, query: str, topk: int) -> list[int]:
        known = [
            self._vocabulary[word] for word in dict.fromkeys(split_words(query[:MAX_QUERY_CHARS])) if word in self._vocabulary
        ]
        if not known or topk < 1:
            return []
        scores = self._index.get_scores_from_ids(known[:MAX_QUERY_WORDS])
        count = min(topk, len(scores))
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        among = np.flatnonzero(scores >= max(least, np.finfo(np.float32).tiny))
        return among[np.argsort(-scores[among], kind="stable")][:count].tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> Bm25Retriever:
        return self


def split_words(text: str) -> list[str]:
    """Words in lower case without accents; the commonest are left out."""
    plain = text.lower()
    if not text.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFKD", text).casefold() if not unicodedata.combining(c))
    return [word for word in _WORD.findall(_QUOTES.sub("", plain)) if word not in _COMMON]


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise MissingDependency("bm25s", "search", "the built-in retriever") from error
    return bm25s


def _built(bm25s: Any, passages: Sequence[Passage]) -> Any:
    from bm25s.tokenization import Tokenized

    documents = [split_words(passage.title) * TITLE_WEIGHT + split_words(passage.text) for passage in passages]
    words = sorted({word for document in documents for word in document})
    if not words:
        raise ConfigError(f"the corpus of {len(passages)} passages has no words; give passages with text")
    vocabulary = {word: number for number, word in enumerate(words)}
    index = bm25s.BM25()
    index.index(Tokenized(ids=[[vocabulary[word] for word in text] for text in documents], vocab=vocabulary), show_progress=False)
    return index


def _kept(bm25s: Any, passages: Sequence[Passage], folder: Path | None) -> Any:
    """The index of these passages on disk, built when it is not there; without a writable disk it is built and not kept."""
    texts = json.dumps([[passage.title, passage.text] for passage in passages])
    key = hashlib.sha256(f"{_FORMAT} {bm25s.__version__} {texts}".encode()).hexdigest()[:16]
    place = (cache_folder() if folder is None else folder) / f"bm25-{key}"

    def build(into: Path) -> None:
        _built(bm25s, passages).save(into, show_progress=False)

    try:
        index = _read(bm25s, build_once(place, build), len(passages))
        if index is None:
            shutil.rmtree(place, ignore_errors=True)
            index = _read(bm25s, build_once(place, build), len(passages))
    except StorageError:
        return _built(bm25s, passages)
    return _built(bm25s, passages) if index is None else index


def _read(bm25s: Any, place: Path, count: int) -> Any:
    """A kept index; None where its files are damaged."""
    try:
        index = bm25s.BM25.load(place, load_corpus=False, show_progress=False)
        pointers, data, documents = (index.scores[name] for name in ("indptr", "data", "indices"))
        whole = index.scores["num_docs"] == count and len(pointers) >= len(index.vocab_dict) and len(data) == len(documents)
        whole = whole and int(pointers[-1]) == len(data) and (not len(documents) or int(documents.max()) < count)
    except (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError):
        return None
    return index if whole else None
