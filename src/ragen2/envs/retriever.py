"""What a retriever is, and how one is opened: an HTTP server, or a class of the user's own given as "package.module:Name"."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ragen2.errors import ConfigError, EnvironmentFault, did_you_mean

MAX_QUERIES = 64
MAX_QUERY_CHARS = 400
MAX_TOPK = 100


@dataclass(frozen=True)
class Passage:
    """A title and the text below it."""

    title: str
    text: str


@runtime_checkable
class Retriever(Protocol):
    """Finds passages. Called from several threads at the same time; it raises EnvironmentFault when it cannot answer."""

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """For each query the best passages, best first, `topk` at most."""
        ...


def open_retriever(where: str, timeout_s: float) -> Retriever:
    """The retriever at an address ("http://127.0.0.1:8000"), or what "package.module:Name" makes when called with no argument.

    Raises ConfigError for a text that is neither, for a module or name that is not there, and for an object without `retrieve`.
    """
    if where.startswith(("http://", "https://")):
        from ragen2.envs.retriever_client import HttpRetriever

        return HttpRetriever(where, timeout_s)
    module_name, colon, name = where.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"retriever is {where!r}; give the address of a server (http://host:port) or 'package.module:Name'")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"retriever {where!r} cannot be imported: {error}") from error
    make = getattr(module, name, None)
    if not callable(make):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise ConfigError(f"retriever {where!r}: the module has no {name!r} to call.{did_you_mean(name, public)}")
    made = make()
    if not isinstance(made, Retriever):
        raise ConfigError(f"retriever {where!r} made a {type(made).__name__}, which has no method retrieve(queries, topk)")
    return made


def ask(retriever: Retriever, query: str, topk: int) -> list[Passage]:
    """The passages of one query. Raises EnvironmentFault for whatever goes wrong, and for an answer of another form."""
    try:
        found = retriever.retrieve([query], topk)
    except EnvironmentFault:
        raise
    except Exception as error:  # a retriever is foreign code: what it raised makes the episode invalid, and is told
        raise EnvironmentFault(f"the retriever raised {type(error).__name__}: {str(error)[:200]}") from error
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], list):
        raise EnvironmentFault("the retriever must return one list of passages a query; it returned something else")
    passages = found[0][:topk]
    if not all(isinstance(item, Passage) and isinstance(item.title, str) and isinstance(item.text, str) for item in passages):
        raise EnvironmentFault("the retriever must return ragen2.envs.retriever.Passage objects with texts")
    return passages
