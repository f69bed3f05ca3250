"""Reads a reply: reasoning, answer and actions out of hostile text, by linear scans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ragen2.trajectory import Ids

ParseStatus = Literal[
    "ok", "truncated", "no_think_start", "no_think_end", "repeated_think", "no_answer", "repeated_answer", "stray_text"
]
"""What a reply turned out to be.

ok: exactly one `</think>`, then exactly one answer block, only white space around them, ended by the model (an empty answer
block is still ok: it has no action) · truncated: cut before the model ended it, whatever it looks like · no_think_start: the
opening tag was not prefilled and the reply does not begin with it · no_think_end: no `</think>` · repeated_think: more than
one · no_answer: no whole answer block after the reasoning · repeated_answer: more than one opening or closing answer tag there
· stray_text: something else than white space before or after the answer block.
"""

MAX_ACTION_CHARS = 20_000
"""Longer actions are cut to this many characters before an environment sees them."""

# Tags count in any letter case; only A-Z are folded, because str.lower can change a string's length.
_FOLD_CASE = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True)
class ParsedReply:
    """A reply read. `reasoning`, `answer` and the offset are None, and `actions` empty, unless the status is "ok".

    `reasoning_end` is the character offset of `</think>` in the text; `surplus_actions` counts the actions beyond the turn's
    budget, which are dropped.
    """

    status: ParseStatus
    reasoning: str | None = None
    answer: str | None = None
    actions: tuple[str, ...] = ()
    surplus_actions: int = 0
    reasoning_end: int | None = None

    @property
    def valid_think(self) -> bool:
        """Whether the reply has the form the format asks for."""
        return self.status == "ok"


def parse_reply(
    text: str,
    *,
    multi_action: bool,
    separator: str = "||",
    max_actions: int,
    think_prefilled: bool = True,
    think: bool = True,
    ended: bool = True,
) -> ParsedReply:
    """Read the completion only (never prompt and completion), its end-of-turn token already taken off as an id.

    `think_prefilled` says that the opening `<think>` stands in the context, `think=False` that no reasoning is asked for: then
    the reply is the answer block alone and `<think>` is ordinary text. `ended=False` means that the model did not end it.
    An answer is split at `separator` only for `multi_action`; actions keep their text, stripped of white space around it.
    """
    if not ended:
        return ParsedReply("truncated")
    folded = text.translate(_FOLD_CASE)
    start, end, rest = 0, None, 0
    if think:
        if not think_prefilled:
            start = len(text) - len(text.lstrip())
            if not folded.startswith("<think>", start):
                return ParsedReply("no_think_start")
            start += len("<think>")
        end = folded.find("</think>", start)
        if end < 0:
            return ParsedReply("no_think_end")
        rest = end + len("</think>")
        if folded.find("</think>", rest) >= 0:
            return ParsedReply("repeated_think")
    answer_range = _answer_range(folded, rest)
    if isinstance(answer_range, str):
        return ParsedReply(answer_range)
    answer = text[slice(*answer_range)].strip()
    actions, surplus = _split_actions(answer, separator if multi_action else None, max_actions)
    return ParsedReply("ok", None if end is None else text[start:end], answer, actions, surplus, end)


def _answer_range(folded: str, start: int) -> tuple[int, int] | ParseStatus:
    """Character range of the answer in what follows the reasoning, or why there is none."""
    opening = folded.find("<answer>", start)
    closing = folded.find("</answer>", start)
    if opening < 0 or closing < opening:
        return "no_answer"
    inside, after = opening + len("<answer>"), closing + len("</answer>")
    if folded.find("<answer>", inside) >= 0 or folded.find("</answer>", after) >= 0:
        return "repeated_answer"
    if folded[start:opening].strip() or folded[after:].strip():
        return "stray_text"
    return inside, closing


def _split_actions(answer: str, separator: str | None, max_actions: int) -> tuple[tuple[str, ...], int]:
    pieces = [answer] if separator is None else answer.split(separator)
    found = [stripped for piece in pieces if (stripped := piece.strip())]
    kept = max(max_actions, 0)
    return tuple(action[:MAX_ACTION_CHARS] for action in found[:kept]), max(len(found) - kept, 0)


def reasoning_span(ids: Ids, decode: Callable[[Ids], str], reasoning_end: int) -> tuple[int, int]:
    """Half-open range of the tokens that lie wholly before character `reasoning_end`, where `</think>` begins.

    A token that straddles the tag is left out; white-space tokens at the edges stay. `decode` gives the text of any prefix of
    `ids` (special tokens shown, no clean-up), the same function that made the text in which `reasoning_end` was found.
    The text of a prefix never grows shorter with one more token (an incomplete UTF-8 character is one replacement character),
    so a binary search finds the border in about log2(len(ids)) decodes.
    """
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high + 1) // 2
        if len(decode(ids[:middle])) <= reasoning_end:
            low = middle
        else:
            high = middle - 1
    return 0, low
