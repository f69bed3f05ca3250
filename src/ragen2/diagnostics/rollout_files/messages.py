"""Conversations logged as chat messages: the turns in them, and the text a model would have been shown before each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ragen2.diagnostics.rollout_files.replies import CLOSING, OPENING, text_sample
from ragen2.diagnostics.rollout_files.sample import Episode, ReadReport, Sample


@dataclass(frozen=True)
class Spoken:
    """One message. `reasoning` is the reasoning of an assistant where it was logged apart from the text, `calls` spells out
    its tool calls."""

    role: str
    text: str
    reasoning: str | None = None
    calls: str = ""

    @property
    def reply(self) -> str:
        """Text and tool calls: what comes after a reasoning that was logged apart."""
        return self.text + self.calls


Render = Callable[[Sequence[Spoken]], str]
"""Messages to the text that a model is given to reply to."""


def spoken_messages(value: Any) -> list[Spoken] | None:
    """Messages out of what a file holds, None where it is not a list of messages."""
    if not isinstance(value, list):
        return None
    found = [_spoken(item) for item in value]
    return [item for item in found if item is not None] if all(item is not None for item in found) else None


def plain_render(messages: Sequence[Spoken]) -> str:
    """Role and text on lines of their own: what stands in for a chat template."""
    return "".join(f"{item.role}\n{_whole_text(item)}\n" for item in messages) + "assistant\n"


def template_render(tokenizer: Any, report: ReadReport) -> Render:
    """The tokenizer's chat template; `plain_render` where it has none or refuses a conversation."""
    if not getattr(tokenizer, "chat_template", None):
        return plain_render

    def render(messages: Sequence[Spoken]) -> str:
        turns = [{"role": item.role, "content": _whole_text(item)} for item in messages]
        try:
            return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # the template is foreign code: whatever it raises is its reason to refuse
            report.assume(f"the chat template refused conversations ({type(error).__name__}): their contexts are plain text")
            return plain_render(messages)

    return render


def message_turns(
    episode: Episode,
    prompt: Sequence[Spoken],
    completion: Sequence[Spoken],
    render: Render,
    *,
    wants_answer: bool | None = None,
    truncated: bool | None = None,
    tokens: int | None = None,
) -> Iterator[Sample]:
    """The assistant messages of `completion` as turns. `truncated` is about the last of them, `tokens` about all together."""
    shown = list(prompt)
    last = max((place for place, item in enumerate(completion) if item.role == "assistant"), default=-1)
    turn = 0
    for place, item in enumerate(completion):
        if item.role == "assistant":
            yield text_sample(
                episode,
                turn,
                render(shown),
                item.reply,
                wants_answer=wants_answer,
                reasoning=item.reasoning,
                truncated=truncated if place == last or not truncated else False,
                tokens=None if tokens is None else tokens if turn == 0 else 0,
            )
            turn += 1
        shown.append(item)


def content_text(content: Any) -> str | None:
    """Text of a message's content: a string, or the text parts of a list; None where it is something else."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(part for part in parts if isinstance(part, str))
    return None


def _spoken(item: Any) -> Spoken | None:
    if not isinstance(item, dict) or not isinstance(item.get("role"), str):
        return None
    text = content_text(item.get("content"))
    if text is None:
        return None
    calls = item.get("tool_calls")
    called = "".join(_call_text(call) for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ""
    reasoning = item.get("reasoning_content")
    return Spoken(item["role"][:32], text, reasoning if isinstance(reasoning, str) else None, called)


def _call_text(call: dict[str, Any]) -> str:
    inner = call.get("function") if isinstance(call.get("function"), dict) else call
    return f"\n<tool_call>{inner.get('name')}({inner.get('arguments')})</tool_call>" if inner else ""


def _whole_text(item: Spoken) -> str:
    return item.reply if item.reasoning is None else f"{OPENING}{item.reasoning}{CLOSING}{item.reply}"
