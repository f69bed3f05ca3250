"""Questions with gold answers from exact facts of the factbook, of one hop and of two, each of which names one country only."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragen2.envs.answer_match import normalise
from ragen2.envs.factbook import Country, fact_passages, fact_title, read_factbook
from ragen2.envs.factbook_fields import FIELDS
from ragen2.envs.retriever import Passage
from ragen2.errors import ConfigError

FORMS = ("field", "inverse", "bridge")
"""One hop: a fact of a named country; the country with a fact. Two hops: a fact of the country with another fact."""

_SAME_START = 4
"""Letters that a country's name and a fact share where the fact gives the country away (Kuwait City)."""


@dataclass(frozen=True)
class Hop:
    """One look-up: a query that finds it, the title of the passage that says it, and what it says (may be empty).

    `about` is what is known before (a country, or a fact with its value), `wanted` what is looked for.
    """

    query: str
    title: str
    value: str
    about: str = ""
    wanted: str = ""


@dataclass(frozen=True)
class Question:
    """A question, its accepted answers (the best first) and the look-ups that answer it."""

    text: str
    golds: tuple[str, ...]
    hops: tuple[Hop, ...] = ()
    form: str = "field"

    @property
    def content(self) -> str:
        """Canonical text of the level."""
        return f"searchqa {' '.join(self.text.casefold().split())}"


@dataclass(frozen=True)
class QuestionSet:
    """Questions by form (no form without any), and the passages that they are about."""

    questions: dict[str, tuple[Question, ...]]
    passages: tuple[Passage, ...]


@functools.lru_cache(maxsize=8)
def factbook_questions(corpus: str, countries: int, fields: tuple[str, ...], hops: int) -> QuestionSet:
    """All questions about `countries` countries (0: all) and these fields, of one hop, of two, or of both (`hops` 0).

    `corpus` "full" is the whole factbook, "facts" one short passage for each fact of these countries and fields. Raises
    ConfigError where nothing can be asked; MissingDependency without the factbook.
    """
    book = read_factbook()
    asked = sorted((country for country in book.countries if country.asked), key=lambda country: _order(country.code))
    chosen = tuple(sorted(asked[: countries or None], key=lambda country: country.code))
    owners = _owners(book.countries)
    forms = {0: FORMS, 1: FORMS[:2], 2: FORMS[2:]}[hops]
    made = {form: tuple(_distinct(_questions(form, chosen, fields, corpus, owners))) for form in forms}
    questions = {form: found for form, found in made.items() if found}
    if not questions:
        raise ConfigError(
            f"searchqa: no question can be asked of {len(chosen)} countries and the fields {fields}; give more of them"
        )
    if corpus == "full":
        return QuestionSet(questions, book.passages)
    kept = {FIELDS[key].label for key in fields}
    short = [passage for country in chosen for passage in fact_passages(country) if passage.title.rpartition(": ")[2] in kept]
    return QuestionSet(questions, tuple(short))


def _order(code: str) -> str:
    """Mixes countries, so that the first few come from all over the world."""
    return hashlib.sha256(code.encode()).hexdigest()


def _owners(countries: Sequence[Country]) -> dict[tuple[str, str], set[str]]:
    """Which countries and territories a fact (field and normalised value) is true of."""
    owners: dict[tuple[str, str], set[str]] = {}
    for country in countries:
        for key, values in country.facts.items():
            for value in values:
                owners.setdefault((key, normalise(value)), set()).add(country.code)
    return owners


def _distinct(questions: Iterator[Question]) -> list[Question]:
    return list({question.content: question for question in questions}.values())


def _questions(
    form: str, countries: Sequence[Country], fields: Sequence[str], corpus: str, owners: dict[tuple[str, str], set[str]]
) -> Iterator[Question]:
    for country in countries:
        known = [key for key in FIELDS if key in fields and key in country.facts]
        telling = [key for key in known if FIELDS[key].identifies and _tells_one(country, key, owners)]
        if form == "field":
            yield from (question for key in known if (question := _field(country, key, corpus)))
        elif form == "inverse":
            yield from (_inverse(country, key, corpus) for key in telling)
        else:
            yield from (
                question
                for bridge in telling
                for key in known
                if FIELDS[key].path != FIELDS[bridge].path and (question := _bridge(country, bridge, key, corpus))
            )


def _tells_one(country: Country, key: str, owners: dict[tuple[str, str], set[str]]) -> bool:
    """Whether the fact is true of this country alone, and does not hold its name."""
    alone = all(normalise(value) and owners[key, normalise(value)] == {country.code} for value in country.facts[key])
    starts = {word[:_SAME_START] for name in country.names for word in normalise(name).split() if len(word) >= _SAME_START}
    starts |= {normalise(word)[:_SAME_START] for word in country.facts.get("adjective", ())}
    told = {word[:_SAME_START] for word in normalise(country.facts[key][0]).split()}
    return alone and not starts & told


def _field(country: Country, key: str, corpus: str) -> Question | None:
    text = f"what is the {FIELDS[key].label} of {country.name}?"
    return _question(text, country.facts[key], (_fact_hop(country, key, corpus),), "field")


def _inverse(country: Country, key: str, corpus: str) -> Question:
    value = country.facts[key][0]
    text = f"which country has the {FIELDS[key].label} {value}?"
    return Question(text, country.names, (_country_hop(country, key, corpus),), "inverse")


def _bridge(country: Country, bridge: str, key: str, corpus: str) -> Question | None:
    value = country.facts[bridge][0]
    text = f"what is the {FIELDS[key].label} of the country whose {FIELDS[bridge].label} is {value}?"
    hops = (_country_hop(country, bridge, corpus), _fact_hop(country, key, corpus))
    return _question(text, country.facts[key], hops, "bridge")


def _question(text: str, golds: tuple[str, ...], hops: tuple[Hop, ...], form: str) -> Question | None:
    """None where the question says its own answer, or where nothing of the answer can be compared."""
    shown = f" {normalise(text)} "
    usable = tuple(gold for gold in golds if normalise(gold))
    told = any(f" {normalise(gold)} " in shown for gold in usable)
    return Question(text, usable, hops, form) if usable and not told else None


def _fact_hop(country: Country, key: str, corpus: str) -> Hop:
    title, words = _where(country, key, corpus)
    return Hop(f"{country.name} {words}", title, country.facts[key][0], country.name, FIELDS[key].label)


def _country_hop(country: Country, key: str, corpus: str) -> Hop:
    title, words = _where(country, key, corpus)
    value = country.facts[key][0]
    return Hop(f"{words} {value}", title, value, f"{FIELDS[key].label} {value}", country.name)


def _where(country: Country, key: str, corpus: str) -> tuple[str, str]:
    """Title of the fact's passage and the words of its heading, remarks left out."""
    title = fact_title(country, key) if corpus == "facts" else country.titles[key]
    return title, title.removeprefix(f"{country.name}: ").partition("(")[0].strip().lower()
