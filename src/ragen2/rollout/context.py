"""What the policy is shown next: the ids of a turn's context, made from the very ids shown and sampled before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragen2.prompting.chat_format import ChatFormat
from ragen2.prompting.template import Message
from ragen2.trajectory import Ids


@dataclass(frozen=True)
class Exchange:
    """A past turn: the text it showed, the ids sampled (as text: `reply`) and whether the model ended them itself."""

    text: str
    sampled_ids: Ids
    reply: str
    ended: bool


def next_context(
    chat_format: ChatFormat, system: str, past: Sequence[Exchange], last_context: Ids, text: str, window: int | None
) -> Ids:
    """Ids of the context that shows `text` after the `past` turns (not empty).

    `window` is how many turns are shown, the new one included (None: all). Where the chat format appends, what was sampled is
    taken over verbatim: the whole context so far, or within a window the same ids after a fresh beginning. Where it does not,
    the conversation is rendered afresh by the template.
    """
    kept = past if window is None else past[max(0, len(past) - window + 1) :]
    if chat_format.mode == "row-a-turn":
        messages: list[Message] = []
        for turn in kept:
            messages.append(("user", turn.text))
            messages.append(("assistant", turn.reply))
        return chat_format.rerender_ids(system, [*messages, ("user", text)])
    if len(kept) == len(past):
        return np.concatenate([last_context, past[-1].sampled_ids, chat_format.bridge_ids(text, ended=past[-1].ended)])
    texts = [*(turn.text for turn in kept), text]
    pieces = [chat_format.initial_ids(system, texts[0])]
    for turn, following in zip(kept, texts[1:], strict=True):
        pieces += [turn.sampled_ids, chat_format.bridge_ids(following, ended=turn.ended)]
    return np.concatenate(pieces)
