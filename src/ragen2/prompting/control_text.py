"""Control tokens spelled out in contents: kept text, so that an observation cannot forge the end of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def cut_inside(text: str, tokens: Sequence[str]) -> list[str]:
    """`text` in pieces, none of which holds one of `tokens` whole: each occurrence is cut after its first character."""
    cuts = {0, len(text)}
    for token in tokens:
        found = text.find(token)
        while found >= 0:
            cuts.add(found + 1)
            found = text.find(token, found + 1)
    return [text[a:b] for a, b in pairwise(sorted(cuts))]


class Marks:
    """Hides control tokens spelled out in contents behind a private-use character while a template renders them.

    `texts` is everything that goes into the rendering: the character is one that none of them holds.
    """

    def __init__(self, texts: Sequence[str], tokens: Sequence[str]) -> None:
        used = set().union(*texts)
        self._mark = next(chr(code) for code in range(0xE000, 0x10FFFE) if chr(code) not in used)
        self._tokens = tokens

    def hide(self, text: str) -> str:
        """`text` with each token replaced by its number between two marks."""
        for number, token in enumerate(self._tokens):
            text = text.replace(token, f"{self._mark}{number}{self._mark}")
        return text

    def split(self, rendered: str) -> list[tuple[bool, str]]:
        """Pieces of a rendering in order: (True, a token that was hidden) or (False, anything else)."""
        parts = rendered.split(self._mark)
        return [(True, self._tokens[int(part)]) if k % 2 else (False, part) for k, part in enumerate(parts)]
