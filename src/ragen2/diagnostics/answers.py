"""The answers a policy can choose between, as the token ids that it would sample after its reasoning."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragen2.errors import NotMeasurable
from ragen2.prompting.messages import SEPARATOR
from ragen2.prompting.reply import parse_reply
from ragen2.trajectory import Ids, Turn

if TYPE_CHECKING:
    from ragen2.prompting.chat_format import ChatFormat

DEFAULT_FRAME = ("</think><answer>", "</answer>")
"""What stands before and after an answer in replies like those of the demonstrations."""

MOST_FRAME_CHARS = 200
"""A longer frame is not a frame but stray text."""


@dataclass(frozen=True)
class AnswerSet:
    """Candidate answers as text, and what is scored for each: the ids from the end of the reasoning to the end of the reply."""

    texts: tuple[str, ...]
    tails: tuple[Ids, ...]


def answer_set(turns: Sequence[Turn], chat: ChatFormat, texts: Iterable[str] | None = None, most: int = 32) -> AnswerSet:
    """Candidates for turns of one environment: `texts` (a closed set of answers), or the distinct answers of the turns.

    Answers that name the same actions are one candidate, in their most frequent spelling (for `texts` in any letter case); of
    more than `most` the most frequent stay. White space around the tags is as in most of these replies, so that the ids are
    those that the policy would use.
    Raises NotMeasurable for fewer than two candidates.
    """
    read = [found for turn in turns if (found := _read(turn)) is not None]
    frames = Counter(frame for frame, _, _ in read)
    before, after = frames.most_common(1)[0][0] if frames else DEFAULT_FRAME
    seen = [(turn, text) for _, text, turn in read]
    chosen = _frequent(seen, most) if texts is None else _spelt(list(dict.fromkeys(texts)), seen)
    if len(chosen) < 2:
        raise NotMeasurable(
            f"{len(chosen)} distinct answers: the action cannot move; give the environment's answers or sample more"
        )
    return AnswerSet(tuple(chosen), tuple(chat.reply_ids(f"{before}{text}{after}") for text in chosen))


def move_answers(moves: Sequence[str], per_turn: int) -> list[str]:
    """All answers of one to `per_turn` moves: the closed answer set of an environment in which every move is always legal."""
    lengths = range(1, per_turn + 1)
    return [f" {SEPARATOR} ".join(chain) for length in lengths for chain in itertools.product(moves, repeat=length)]


def _read(turn: Turn) -> tuple[tuple[str, str], str, Turn] | None:
    """Frame and answer of a well-formed reply; None for another, and for tags in unusual letter case."""
    parsed = parse_reply(turn.reply, multi_action=False, max_actions=1)
    if turn.reasoning_ids is None or parsed.reasoning_end is None or parsed.answer is None:
        return None
    rest = turn.reply[parsed.reasoning_end :]
    opening, closing = rest.find("<answer>"), rest.rfind("</answer>")
    if opening < 0 or closing < opening:
        return None
    inside = rest[opening + len("<answer>") : closing]
    left = len(inside) - len(inside.lstrip())
    right = len(inside.rstrip()) if inside.strip() else left
    begin = opening + len("<answer>")
    frame = (rest[: begin + left], rest[begin + right :])
    if max(len(part) for part in frame) > MOST_FRAME_CHARS:
        return None
    return frame, parsed.answer, turn


def _frequent(answers: Sequence[tuple[Turn, str]], most: int) -> list[str]:
    """The most frequent answers, those of equal actions counted as one; ties keep the order of appearance."""
    spellings: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for turn, text in answers:
        spellings[turn.actions or (text,)][text] += 1
    ranked = sorted(spellings.values(), key=lambda counter: -counter.total())
    return [counter.most_common(1)[0][0] for counter in ranked[:most]]


def _spelt(texts: Sequence[str], seen: Sequence[tuple[Turn, str]]) -> list[str]:
    """The texts as the turns mostly spell them; those never seen as they are."""
    spellings: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for _, text in seen:
        spellings[_folded(text)][text] += 1
    return [spellings[key].most_common(1)[0][0] if (key := _folded(text)) in spellings else text for text in texts]


def _folded(text: str) -> tuple[str, ...]:
    return tuple(part.strip().casefold() for part in text.split(SEPARATOR))
