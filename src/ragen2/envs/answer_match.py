"""Compares a short answer with gold answers: exact match and F1 over normalised words (RAGEN-2, arXiv 2604.06268, 4.1).

Normalising: compatibility forms of Unicode joined, accents dropped, lower case, articles and punctuation dropped, numbers and
units written one way. A minus in front of a number stays: -5 and 5 are different answers.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

MAX_CHARS = 400
"""A longer answer or gold matches nothing."""

LEAST_F1 = 0.3
"""F1 below this earns nothing."""

_MINUS = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d", "-"))
_QUOTES = re.compile(r"['\u2018\u2019\u201b\u02bc\u02bb`]")
_NUMBER = re.compile(r"[0-9]{1,3}(?:,[0-9]{3}){1,8}(?![0-9])|[0-9]{1,30}")
_FRACTION = re.compile(r"\.([0-9]{1,30})")
_WORD = re.compile(r"[^\W_]+")
_ARTICLES = frozenset(("a", "an", "the"))
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_UNITS = {
    "metre": "m",
    "meter": "m",
    "kilometre": "km",
    "kilometer": "km",
    "kms": "km",
    "mile": "mi",
    "percent": "%",
    "pct": "%",
    "square": "sq",
    "year": "years",
}
_UNITS |= {f"{word}s": short for word, short in _UNITS.items() if len(word) > 3 and not word.endswith("s")}
_UNITS |= {"km2": "sq km", "m2": "sq m"}
_CHOICES = frozenset(("yes", "no", "noanswer"))


def normalise(text: str) -> str:
    """The words that are compared, joined by single spaces; empty where nothing is left, or for more than `MAX_CHARS`."""
    if len(text) > MAX_CHARS:
        return ""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text)).casefold()[: 4 * MAX_CHARS]
    plain = "".join(char for char in folded if not unicodedata.combining(char)).translate(_MINUS)
    words = _tokens(_QUOTES.sub("", plain))
    return " ".join(_scaled([unit for word in words for unit in _UNITS.get(word, word).split() if word not in _ARTICLES]))


def is_exact(answer: str, golds: Sequence[str]) -> bool:
    """Whether the answer equals a gold after normalising. Never where nothing is left of it."""
    given = normalise(answer)
    return bool(given) and any(given == normalise(gold) for gold in golds)


def f1(answer: str, gold: str) -> float:
    """Harmonic mean of precision and recall of words, repeats counted; 0 for an empty side, or for another yes or no."""
    given, wanted = normalise(answer), normalise(gold)
    if not given or not wanted or (given != wanted and (given in _CHOICES or wanted in _CHOICES)):
        return 0.0
    first, second = Counter(given.split()), Counter(wanted.split())
    shared = sum((first & second).values())
    return 2.0 * shared / (first.total() + second.total())


def score_answer(answer: str, golds: Sequence[str]) -> tuple[float, bool]:
    """(reward, exact): 1 for an exact match, else the best F1 where it is at least `LEAST_F1`, else 0.

    An answer with the same words in another order has F1 1 and is no exact match: it is paid 1 and is no success.
    """
    if is_exact(answer, golds):
        return 1.0, True
    best = max((f1(answer, gold) for gold in golds), default=0.0)
    return (best if best >= LEAST_F1 else 0.0), False


def _tokens(text: str) -> list[str]:
    """Words and canonical numbers in order; `%` is a word, other punctuation parts words."""
    tokens: list[str] = []
    at = 0
    while at < len(text):
        if text[at].isascii() and text[at].isdigit() and (number := _NUMBER.match(text, at)):
            at = _number(text, at, number, tokens)
        elif word := _WORD.match(text, at):
            at = word.end()
            tokens.append(word.group())
        else:
            if text[at] == "%":
                tokens.append("%")
            at += 1
    return tokens


def _number(text: str, start: int, number: re.Match[str], tokens: list[str]) -> int:
    """Append the number at `start`; the position after it. Digits with letters at once behind (7t, m2) stay one word."""
    end = number.end()
    if (word := _WORD.match(text, start)) and word.end() > end:
        tokens.append(word.group())
        return word.end()
    digits = number.group().replace(",", "")
    if fraction := _FRACTION.match(text, end):
        end = fraction.end()
        digits = f"{digits}.{fraction.group(1)}"
    tokens.append(("-" if _is_negative(text, start) else "") + _plain(Decimal(digits)))
    return end


def _is_negative(text: str, start: int) -> bool:
    before = text[:start].rstrip("$\u20ac\u00a3 ")
    return before.endswith("-") and (len(before) == 1 or not before[-2].isalnum())


def _scaled(words: list[str]) -> list[str]:
    """`35.3 million` as `35300000`."""
    joined: list[str] = []
    for word in words:
        if word in _SCALES and joined and joined[-1].lstrip("-").replace(".", "", 1).isdecimal() and joined[-1].isascii():
            joined[-1] = _plain(Decimal(joined[-1]).scaleb(_SCALES[word]))
        else:
            joined.append(word)
    return joined


def _plain(value: Decimal) -> str:
    """Digits without exponent and without trailing zeros behind the point."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text.lstrip("0") or "0"
