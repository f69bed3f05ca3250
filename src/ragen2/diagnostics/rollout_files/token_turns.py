"""Turns known as token ids: where in the sampled ids the reasoning stands, found with the tokenizer's own decoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from ragen2.diagnostics.rollout_files.replies import CLOSING, read_reply, without_end_marks
from ragen2.diagnostics.rollout_files.sample import Episode, Sample
from ragen2.errors import TokenMismatch
from ragen2.prompting.reply import reasoning_span
from ragen2.trajectory import Ids, as_ids

Decode = Callable[[Ids], str]
"""Token ids to text, special tokens shown, nothing cleaned up."""

LARGEST_ID = (1 << 31) - 1
CHECKED_TURNS = 8
"""Turns looked at to find out whether a tokenizer made the ids of a file."""

TAIL_IDS = 64
"""Ids at the end of a context that are decoded to see whether it ends with the opening tag."""


def decode_of(tokenizer: Any) -> Decode:
    """The decoding of a tokenizer. Raises TokenMismatch for an id that it does not have."""

    def decode(ids: Ids) -> str:
        try:
            return str(tokenizer.decode(ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False))
        except (OverflowError, IndexError, KeyError, TypeError) as error:
            raise TokenMismatch(
                f"the tokenizer cannot decode token ids up to {int(ids.max())}: it is another one's file"
            ) from error

    return decode


def ids_sized(value: Any) -> TypeGuard[list[int]]:
    """Whether this is a list of token ids that is not empty."""
    return isinstance(value, list) and len(value) > 0 and all(type(item) is int and 0 <= item <= LARGEST_ID for item in value)


class TokenizerCheck:
    """Counts how many turns a tokenizer decodes to the text logged for them."""

    def __init__(self) -> None:
        self._agreed = self._differed = 0

    @property
    def settled(self) -> bool:
        """Whether enough turns agreed."""
        return self._agreed >= CHECKED_TURNS

    def agrees(self, decoded: str, logged: str, name: str) -> bool:
        """Whether `decoded` holds the last words of `logged`, white space aside (a log may lack the reasoning).

        Raises TokenMismatch when none of the first few turns did: another tokenizer made the ids.
        """
        words = "".join(logged.rsplit(CLOSING, 1)[-1].split())[-200:]
        if not words:
            return True
        if words in "".join(decoded.split()):
            self._agreed += 1
            return True
        self._differed += 1
        if not self._agreed and self._differed >= CHECKED_TURNS:
            raise TokenMismatch(
                f"the token ids of {name} do not hold the text of the file, but {logged[-60:]!r} stands against "
                f"{decoded[-60:]!r}, as in all of the first {self._differed} turns: another tokenizer made them. Give the scorer "
                "of the model that sampled them."
            )
        return False


def ids_sample(
    episode: Episode,
    turn: int,
    context: list[int],
    sampled: list[int],
    decode: Decode,
    wants_answer: bool,
    truncated: bool | None,
) -> Sample:
    """A turn of sampled ids after the ids of its context."""
    sampled_ids = as_ids(sampled)
    reply = without_end_marks(decode(sampled_ids))
    tail = decode(as_ids(context[-TAIL_IDS:]))
    read = read_reply(reply, context=tail, wants_answer=wants_answer, truncated=truncated)
    start = _tokens_holding(sampled_ids, decode, len(read.opener)) if read.opener else 0
    reasoning = None
    if read.reasoning is not None:
        _, end = reasoning_span(sampled_ids, decode, len(read.opener) + len(read.reasoning))
        reasoning = sampled_ids[start : max(start, end)]
    context_ids = as_ids([*context, *sampled[:start]])
    return Sample(episode, turn, context_ids, reasoning, reply, read.status, truncated, len(sampled))


def _tokens_holding(ids: Ids, decode: Decode, characters: int) -> int:
    """Fewest leading tokens whose text has at least `characters`."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(decode(ids[:middle])) >= characters:
            high = middle
        else:
            low = middle + 1
    return low
