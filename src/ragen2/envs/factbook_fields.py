"""Fields of the factbook that questions ask for: where each stands, and how its entry becomes accepted answers.

A reader returns () for an entry that is no single exact fact (several capitals, a range, a remark): no question asks for it then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Reader = Callable[[str], tuple[str, ...]]

MAX_ANSWER = 80

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September")
_MONTHS += ("October", "November", "December")
_DATE = re.compile(r"(\d{1,2}) ([A-Z][a-z]{2,8}) (\d{4})")
_HEIGHT = re.compile(r"^(.{2,60}?) (-?[\d,]{1,7}) m\b")
_CODE = re.compile(r"^\.[a-z]{2}$")
_PREFIX = re.compile(r"^[A-Z0-9]{1,2}$")
_CURRENCY = re.compile(r"^([A-Za-zÀ-ž '-]{2,40}?) \(([A-Z]{3})\) per US dollar")
_COUNT = re.compile(r"^(\d{1,3}(?:,\d{3}){0,3}) \(\d{4}(?: est\.)?\)$")
_LENGTH = re.compile(r"^(\d{1,3}(?:,\d{3})?(?:\.\d)?) km$")
_AGE = re.compile(r"^(\d{1,2}(?:\.\d)?) years \(\d{4} est\.\)$")
_NAME = re.compile(r"^[A-ZÀ-Ž][\w'’.\- ]*$")
_QUOTES = "\"'“”„«»‘’ "


def name_of_place(text: str) -> tuple[str, ...]:
    """One name, without remarks; () for several."""
    main = text.partition("(")[0].strip()
    other = _inside(text)
    if any(mark in text for mark in (";", "/", " in ", " and ")) or "," in main or not _short(main) or not _NAME.match(main):
        return ()
    return (main, other) if other and _NAME.match(other) and len(other.split()) <= 3 else (main,)


def quoted_title(text: str) -> tuple[str, ...]:
    """The first title of an entry as "Himno Nacional" (National Hymn), without quotation marks, then its translation."""
    if ";" in text or " note" in text.lower():
        return ()
    main, other = text.partition("(")[0].strip(_QUOTES), _inside(text).strip(_QUOTES)
    if not _short(main) or any(mark in main for mark in '"“”'):
        return ()
    return (main, other) if other and _short(other) else (main,)


def body(text: str) -> tuple[str, ...]:
    """A legislature's name, then the name in its own language."""
    main, other = text.partition("(")[0].strip(), _inside(text).strip(_QUOTES)
    if ";" in text or not _short(main):
        return ()
    return (main, other) if other and _short(other) else (main,)


def peak(text: str) -> tuple[str, ...]:
    """The name of a highest point."""
    found = _HEIGHT.match(text)
    name = found.group(1).partition("(")[0].strip() if found else ""
    other = _inside(found.group(1)) if found else ""
    if not _short(name) or name.lower().startswith(("unnamed", "no ")) or " on " in name:
        return ()
    return (name, other) if other and _short(other) and " " not in other[:1] else (name,)


def height(text: str) -> tuple[str, ...]:
    """The elevation of a highest point: with and without its unit."""
    found = _HEIGHT.match(text)
    return (f"{found.group(2)} m", found.group(2)) if found else ()


def date(text: str) -> tuple[str, ...]:
    """The only date of an entry, in both orders."""
    found = _DATE.findall(text)
    if len(found) != 1 or found[0][1] not in _MONTHS or not _DATE.match(text):
        return ()
    day, month, year = found[0]
    return (f"{day} {month} {year}", f"{month} {day} {year}")


def currency(text: str) -> tuple[str, ...]:
    """The code of a currency."""
    found = _CURRENCY.match(text)
    return (found.group(2),) if found else ()


def adjective(text: str) -> tuple[str, ...]:
    """One adjective."""
    return (text,) if text.isalpha() and text[0].isupper() and len(text) <= 30 else ()


def matching(pattern: re.Pattern[str], unit: str = "") -> Reader:
    """Reader of entries of exactly one form: what the pattern (or its first group) matched, with its unit and without."""

    def read(text: str) -> tuple[str, ...]:
        found = pattern.match(text)
        if found is None:
            return ()
        value = found.group(1) if pattern.groups else found.group()
        return (f"{value} {unit}", value) if unit else (value,)

    return read


def _inside(text: str) -> str:
    """What stands in the first parentheses."""
    return text.partition("(")[2].partition(")")[0].strip()


def _short(text: str) -> bool:
    return 0 < len(text) <= MAX_ANSWER and text.lower() not in ("none", "na", "n/a")


@dataclass(frozen=True)
class Field:
    """A fact of a country: the path of its entry, and its name in questions and short passages.

    `identifies` says that the fact may stand for the country in a question ("the country whose anthem is ...").
    """

    label: str
    path: tuple[str, ...]
    read: Reader
    identifies: bool = False


_GOVERNMENT = "Government"

FIELDS: dict[str, Field] = {
    "capital": Field("capital", (_GOVERNMENT, "Capital", "name"), name_of_place, True),
    "anthem": Field("anthem", (_GOVERNMENT, "National anthem(s)", "title"), quoted_title, True),
    "internet": Field("internet code", ("Communications", "Internet country code"), matching(_CODE), True),
    "aircraft": Field(
        "aircraft prefix", ("Transportation", "Civil aircraft registration country code prefix"), matching(_PREFIX), True
    ),
    "peak": Field("highest point", ("Geography", "Elevation", "highest point"), peak, True),
    "legislature": Field("legislature", (_GOVERNMENT, "Legislative branch", "legislature name"), body, True),
    "currency": Field("currency code", ("Economy", "Exchange rates", "Currency"), currency, True),
    "height": Field("highest elevation", ("Geography", "Elevation", "highest point"), height),
    "independence": Field("independence date", (_GOVERNMENT, "Independence"), date),
    "adjective": Field("nationality adjective", ("People and Society", "Nationality", "adjective"), adjective),
    "population": Field("population", ("People and Society", "Population", "total"), matching(_COUNT)),
    "coastline": Field("coastline", ("Geography", "Coastline"), matching(_LENGTH, "km")),
    "age": Field("median age", ("People and Society", "Median age", "total"), matching(_AGE, "years")),
}
"""The fields by key, in the order in which they are drawn."""
