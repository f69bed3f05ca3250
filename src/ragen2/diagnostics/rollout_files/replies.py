"""Reasoning out of the replies of other trainers, whose format is not known beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from ragen2.diagnostics.rollout_files.sample import Episode, Sample
from ragen2.prompting.reply import parse_reply

OPENING, CLOSING, ANSWER = "<think>", "</think>", "<answer>"

END_MARKS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>", "<eos>", "<end_of_turn>", "<|end|>")
"""Spelled-out end tokens that may stand at the end of a logged reply; they are no part of it."""

# Tags count in any letter case; only A-Z are folded, because str.lower can change a string's length.
_FOLD_CASE = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True)
class ReadReply:
    """`opener` is the part of the reply that belongs to the context: white space and the opening tag, "" where there is none.
    `reasoning` is None unless the status is "ok"."""

    status: str
    opener: str = ""
    reasoning: str | None = None


def read_reply(reply: str, *, context: str | None, wants_answer: bool, truncated: bool | None = None) -> ReadReply:
    """Read a reply that may or may not begin with the opening tag.

    Where it does not, the tag is taken as prefilled: many logs drop it. With `wants_answer` exactly one answer block must
    follow the reasoning and nothing else, as in `parse_reply`; without, any text may follow, but not a second closing tag.
    """
    folded = reply.translate(_FOLD_CASE)
    start = len(reply) - len(reply.lstrip())
    opens = folded.startswith(OPENING, start) and not _ends_with_opening(context)
    opener = reply[: start + len(OPENING)] if opens else ""
    if truncated:
        return ReadReply("truncated", opener)
    if wants_answer:
        parsed = parse_reply(reply, multi_action=False, max_actions=0, think_prefilled=not opens)
        return ReadReply(parsed.status, opener, parsed.reasoning)
    end = folded.find(CLOSING, len(opener))
    if end < 0:
        return ReadReply("no_think_end" if opens or _ends_with_opening(context) else "no_think_start", opener)
    if folded.find(CLOSING, end + len(CLOSING)) >= 0:
        return ReadReply("repeated_think", opener)
    if not reply[end + len(CLOSING) :].strip():
        return ReadReply("no_answer", opener)
    return ReadReply("ok", opener, reply[len(opener) : end])


def text_sample(
    episode: Episode,
    turn: int,
    context: str | None,
    reply: str,
    *,
    wants_answer: bool | None = None,
    reasoning: str | None = None,
    truncated: bool | None = None,
    tokens: int | None = None,
) -> Sample:
    """A turn known as text. `wants_answer` None: where the context names `<answer>`.

    `reasoning` is the reasoning where the file holds it apart from the reply, which is then what follows it.
    """
    reply = without_end_marks(reply)
    if reasoning is not None:
        status = "truncated" if truncated else "ok" if reply.strip() else "no_answer"
        shown = None if context is None else context if _ends_with_opening(context) else context + OPENING
        kept = reasoning if status == "ok" else None
        return Sample(episode, turn, shown, kept, f"{OPENING}{reasoning}{CLOSING}{reply}", status, truncated, tokens)
    if wants_answer is None:
        wants_answer = context is not None and ANSWER in context
    read = read_reply(reply, context=context, wants_answer=wants_answer, truncated=truncated)
    shown = None if context is None else context + read.opener
    return Sample(episode, turn, shown, read.reasoning, reply, read.status, truncated, tokens)


def without_end_marks(reply: str) -> str:
    """A reply without the end token spelled out at its end."""
    text = reply.rstrip()
    for mark in END_MARKS:
        if text.endswith(mark):
            return text.removesuffix(mark)
    return reply


def _ends_with_opening(context: str | None) -> bool:
    return context is not None and context[-64:].rstrip().translate(_FOLD_CASE).endswith(OPENING)
