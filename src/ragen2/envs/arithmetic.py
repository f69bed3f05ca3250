"""Reads an arithmetic expression that a model wrote and computes its exact value, without `eval`.

Grammar: whole numbers in ASCII digits (no leading zero, at most 9 digits), + - * /, unary minus, parentheses, ASCII white space.
Nothing else: no powers, no floor division, no names, no underscores, no exponents, no digits of other scripts. The printed signs
U+00D7, U+00F7 and U+2212 count as * / and -, since models copy them from text books. Length and depth are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ragen2.errors import Ragen2Error

MAX_LENGTH = 200
MAX_DEPTH = 24
MAX_DIGITS = 9

_SIGNS = {"\u00d7": "*", "\u00f7": "/", "\u2212": "-"}
_DIGITS = "0123456789"


class NotArithmetic(Ragen2Error):
    """A text that is no expression of the grammar, or has no value (division by zero)."""


@dataclass(frozen=True)
class Expression:
    """An expression's exact value and the whole numbers written in it, in order (a unary minus is not part of a number)."""

    value: Fraction
    numbers: tuple[int, ...]


def read_expression(text: str, claim: int | None = None) -> Expression:
    """The value and the numbers of an expression.

    With `claim`, a trailing "= claim" is allowed: people and models end an expression with the result they claim. It must be
    that very number and changes nothing, since the left side is computed all the same. Raises NotArithmetic saying what is wrong.
    """
    if len(text) > MAX_LENGTH:
        raise NotArithmetic(f"the expression has {len(text)} characters; at most {MAX_LENGTH} are read")
    tokens = list(_tokens(text))
    if claim is not None and tokens[-2:] == ["=", str(claim)]:
        tokens = tokens[:-2]
    return _Reader(tokens).read()


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        char = _SIGNS.get(text[at], text[at])
        end = at + 1
        if char in _DIGITS:
            while end < len(text) and text[end] in _DIGITS:
                end += 1
            if end - at > MAX_DIGITS or (char == "0" and end - at > 1):
                raise NotArithmetic(f"a number has {end - at} digits or a leading zero; at most {MAX_DIGITS}, none leading")
            yield text[at:end]
        elif char in "+-*/()=":
            yield char
        elif char not in " \t\r\n":
            raise NotArithmetic(f"{char!r} is not allowed; use whole numbers, + - * / and parentheses")
        at = end


class _Reader:
    """Recursive descent over the tokens, one method a level of precedence."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = [*tokens, ""]
        self.at = 0
        self.numbers: list[int] = []

    def read(self) -> Expression:
        value = self._sum(0)
        if self.tokens[self.at]:
            raise NotArithmetic(f"{self.tokens[self.at]!r} does not belong after the expression")
        return Expression(value, tuple(self.numbers))

    def _take(self, allowed: str) -> str:
        token = self.tokens[self.at]
        if token and token in allowed:
            self.at += 1
            return token
        return ""

    def _sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while sign := self._take("+-"):
            right = self._product(depth)
            value = value + right if sign == "+" else value - right
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._factor(depth)
        while sign := self._take("*/"):
            right = self._factor(depth)
            if sign == "/" and not right:
                raise NotArithmetic("the expression divides by zero")
            value = value * right if sign == "*" else value / right
        return value

    def _factor(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise NotArithmetic(f"the expression is nested more than {MAX_DEPTH} deep")
        if self._take("-"):
            return -self._factor(depth + 1)
        if self._take("("):
            value = self._sum(depth + 1)
            if not self._take(")"):
                raise NotArithmetic("a parenthesis is not closed")
            return value
        token = self.tokens[self.at]
        if not token or token[0] not in _DIGITS:
            raise NotArithmetic(f"a number is missing before {token!r}" if token else "a number is missing at the end")
        self.at += 1
        self.numbers.append(int(token))
        return Fraction(int(token))
