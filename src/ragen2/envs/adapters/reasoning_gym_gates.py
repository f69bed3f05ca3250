"""What an answer must look like before a verifier of reasoning-gym sees it.

Some verifiers run the answer as code. An answer that is code could read the right answer from the interpreter that scores it, in
a sandbox too, so only texts of a small grammar get there, in which nothing can be called that is not arithmetic. Other verifiers
take wrong answers for right; those are caught here as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from ragen2.envs.adapters.reasoning_gym_names import EXECUTING_VERIFIERS
from ragen2.envs.arithmetic import NotArithmetic, read_expression

_CHARACTERS = {
    "binary_matrix": re.compile(r"[0-9,\[\]\s-]*"),
    "spiral_matrix": re.compile(r"[0-9,\[\]\s-]*"),
    "n_queens": re.compile(r"[Q_,\[\]'\"\s]*"),
    "string_insertion": re.compile(r"[A-Z,\[\]'\"\s]*"),
    # "nan" would score 1: the distance to it is not greater than any other
    "complex_arithmetic": re.compile(r"[0-9ij+\-.()\s]*"),
}
"""Characters of the answers that data sets ask for. No lower-case letters with a bracket: no call, no keyword."""

_NUMBER = re.compile(r"-?[0-9,]{1,20}(?:\.[0-9]{0,20})?(?:e-?[0-9]{1,2})?(?:/[0-9]{1,20})?")
_HUGE_POWER = re.compile(r"[eE][+-]?[0-9_]{4}")
_COIN_TOLERANCE = Fraction(1, 10_000)

_EXPRESSIONS = ("countdown", "puzzle24")

_FUNCTION_NAMES = "sin cos tan sec csc cot asin acos atan sinh cosh tanh exp log ln sqrt pi"
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_FORMULA = re.compile(r"[A-Za-z]+|[0-9]{1,9}(?:\.[0-9]{1,9})?|\*\*|[-+*/^(),]|\s+")
_FORMULA_CHARS = 400
_POWERS = ("**", "^")


def form_fault(dataset: str, answer: str) -> str | None:
    """Why an answer is not of the form that its data set asks for; None when it is, or when any text is allowed."""
    if _HUGE_POWER.search(answer):
        return "it holds a power of ten of more than three digits"
    if dataset == "coin_flip":
        return None if _NUMBER.fullmatch(answer) else "it is no number or fraction"
    characters = _CHARACTERS.get(dataset)
    if characters is not None:
        return None if characters.fullmatch(answer) else "it holds characters that no answer to this question has"
    if dataset in _EXPRESSIONS:
        try:
            read_expression(answer)
        except NotArithmetic as error:
            return str(error)
        return None
    return _formula_fault(answer) if dataset in EXECUTING_VERIFIERS else None


def surely_wrong(dataset: str, answer: str, right: str | None, numbers: Sequence[int] | None) -> bool:
    """Whether an answer of the right form is wrong whatever its verifier says.

    The verifier of puzzle24 takes any four numbers and any value from 24 to below 25; here the numbers must be the item's. That
    of coin_flip gives its full score to a number that begins as the right one does, such as 0.
    """
    if dataset == "coin_flip" and right is not None:
        return abs(_fraction(answer) - _fraction(right)) > _COIN_TOLERANCE
    if dataset not in _EXPRESSIONS or numbers is None:
        return False
    read = read_expression(answer)
    return sorted(read.numbers) != sorted(numbers) or (dataset == "puzzle24" and read.value != 24)


def _fraction(text: str) -> Fraction:
    """The value of a number or fraction; a far one where it has none, so that it equals nothing."""
    over, _, under = text.replace(",", "").partition("/")
    try:
        return Fraction(over) / Fraction(under or 1)
    except (ValueError, ZeroDivisionError):
        return Fraction(10**9)


def _formula_fault(answer: str) -> str | None:
    """Formulas: numbers, variables of one letter, elementary functions, + - * / powers, parentheses. No attribute, no text."""
    if len(answer) > _FORMULA_CHARS:
        return f"a formula has {_FORMULA_CHARS} characters at most"
    tokens, at = [""], 0
    while at < len(answer):
        found = _FORMULA.match(answer, at)
        if found is None:
            return f"{answer[at]!r} does not belong in a formula"
        at = found.end()
        if not found.group().isspace():
            tokens.append(found.group())
    for before, token in pairwise(tokens):
        if token.isalpha() and len(token) > 1 and token not in _FUNCTIONS:
            return f"{token[:20]!r} is no function or variable of a formula"
        if token[0].isalpha() and before[-1:].isdigit():
            return "a number and a name need a sign between them"
        if before in _POWERS and token[0].isdigit() and len(token) > 3:
            return "a power is three digits at most"
    towers = any(tokens[at] in _POWERS and tokens[at + 2] in _POWERS for at in range(len(tokens) - 2))
    return "a power of a power needs parentheses" if towers else None
