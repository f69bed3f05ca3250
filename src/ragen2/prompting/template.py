"""Finds out, by rendering probe conversations, what a chat template writes around contents and whether it can be appended to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ragen2.errors import TemplateError

Mode = Literal["append", "row-a-turn"]
Role = Literal["user", "assistant"]
Message = tuple[Role, str]
Render = Callable[[str, Sequence[Message], bool], str]
"""(system text, messages, merged) -> the template's text with a generation prompt; `merged` puts the system text in front of the
first user message instead of giving it a message of its own."""

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] + '\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n\n' }}"
    "{% else %}{{ 'Assistant: ' + message['content'] + eos_token + '\n\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}"
)
"""What stands in for a chat template where the tokenizer has none: "User: …", "Assistant: …" and the end-of-sequence token."""

OPENING_TAG = "<think>"

_SYSTEM, _USER_1, _USER_2, _USER_3 = "qzsystemqz", "qzuseroneqz", "qzusertwoqz", "qzuserthreeqz"
_ANSWER_1, _ANSWER_2 = "qzansweroneqz</answer>", "qzanswertwoqz</answer>"
_REPLY_1 = f"qzreasononeqz</think><answer>{_ANSWER_1}"
_REPLY_2 = f"qzreasontwoqz</think><answer>{_ANSWER_2}"


@dataclass(frozen=True)
class Scaffold:
    """What a template writes around the contents: `head` + system + `after_system` + user + `generation` + reply + `turn_end` +
    user + `generation` + …

    `mode`: whether a longer conversation extends a shorter one's text ("append") or not. `merged`: there is no system message
    of its own. `prefilled` is the opening think tag as it stands at the end of `generation`, of which `addition` is the part the
    template does not write itself.
    """

    head: str
    after_system: str
    generation: str
    turn_end: str
    mode: Mode
    merged: bool
    prefilled: str
    addition: str

    @property
    def first_context(self) -> tuple[str, str, str]:
        """A system text, a user text and what the first context with them reads: to check a tokenizer with."""
        user = merge(_SYSTEM, _USER_1) if self.merged else f"{_SYSTEM}{self.after_system}{_USER_1}"
        return _SYSTEM, _USER_1, f"{self.head}{user}{self.generation}"


def merge(system: str, user: str) -> str:
    """The system text in front of the first user message, for templates without system messages."""
    return f"{system}\n\n{user}"


def probe_template(render: Render, *, think: bool) -> Scaffold:
    """Find the scaffold, with a system message of its own or, if that fails, merged into the user's. Raises TemplateError."""
    reasons = []
    for merged in (False, True):
        try:
            first = render(_SYSTEM, [("user", _USER_1)], merged)
        except Exception as error:  # the template is foreign code: whatever it raises is its reason to refuse
            problem = f"it raised {type(error).__name__}: {error}"
        else:
            problem = _misplaced(first, (_SYSTEM, _USER_1))
            if problem is None:
                return _probe_turns(render, first, merged, think)
        reasons.append(f"{'without' if merged else 'with'} a system message: {problem}")
    raise TemplateError(
        f"the chat template cannot render a system text and a user message ({'; '.join(reasons)}). "
        "Give another one as chat_template."
    )


def _probe_turns(render: Render, first: str, merged: bool, think: bool) -> Scaffold:
    head, _, rest = first.partition(_SYSTEM)
    after_system, _, generation = rest.partition(_USER_1)
    prefilled, addition = _prefill(generation) if think else ("", "")
    generation += addition
    talk: list[Message] = [("user", _USER_1), ("assistant", prefilled + _REPLY_1), ("user", _USER_2)]
    more: list[Message] = [*talk, ("assistant", prefilled + _REPLY_2), ("user", _USER_3)]
    try:
        second, third = render(_SYSTEM, talk, merged) + addition, render(_SYSTEM, more, merged) + addition
    except Exception as error:  # the template is foreign code: whatever it raises is its reason to refuse
        problem = f"it raised {type(error).__name__}: {error}"
        raise TemplateError(f"the chat template cannot render several turns: {problem}. Give another one.") from error
    problem = _misplaced(third, (_SYSTEM, _USER_1, _ANSWER_1, _USER_2, _ANSWER_2, _USER_3)) or _misplaced(
        second, (_SYSTEM, _USER_1, _ANSWER_1, _USER_2)
    )
    if problem is None and not (second.endswith(_USER_2 + generation) and third.endswith(_USER_3 + generation)):
        problem = "its generation prompt differs from turn to turn"
    if problem is not None:
        raise TemplateError(f"the chat template cannot render several turns: {problem}. Give another one as chat_template.")
    turn_end = second.partition(_ANSWER_1)[2].partition(_USER_2)[0]
    appends = (
        second == f"{first}{addition}{_REPLY_1}{turn_end}{_USER_2}{generation}"
        and third == f"{second}{_REPLY_2}{turn_end}{_USER_3}{generation}"
    )
    mode: Mode = "append" if appends else "row-a-turn"
    return Scaffold(head, after_system, generation, turn_end, mode, merged, prefilled, addition)


def _prefill(generation: str) -> tuple[str, str]:
    """The opening tag as it will stand in the context, and what must be added to the generation prompt for that."""
    if "</think>" in generation:
        raise TemplateError(
            f"the chat template closes the reasoning before the reply begins ({generation[-60:]!r}). Give template_kwargs that "
            "switch thinking on, or think=False."
        )
    start = generation.rfind(OPENING_TAG)
    if start >= 0 and not generation[start + len(OPENING_TAG) :].strip():
        return generation[start:], ""
    return OPENING_TAG, OPENING_TAG


def _misplaced(rendered: str, contents: Iterable[str]) -> str | None:
    """What is wrong with where the contents stand in a rendering (each once, in order), or None."""
    position = -1
    for content in contents:
        if rendered.count(content) != 1:
            return f"a message's text appears {rendered.count(content)} times instead of once"
        if rendered.index(content) < position:
            return "messages appear out of order"
        position = rendered.index(content)
    return None
