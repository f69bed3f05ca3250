"""Turns messages into token ids the way a model's chat template would, found out by probing the template once.

Sampled ids are never re-encoded: a conversation goes on by appending ids to what the policy sampled. Where the template cannot
be continued that way (it strips earlier reasoning) every turn is rendered afresh and becomes a training row of its own. Which
of the two holds is found out at start-up and is `ChatFormat.mode`; the two are never mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ragen2.errors import TemplateError
from ragen2.prompting.control_text import Marks, cut_inside
from ragen2.prompting.template import PLAIN_TEMPLATE, Message, Scaffold, merge, probe_template
from ragen2.trajectory import Ids, as_ids

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
"""Structure that contents may name (the system text does): never control tokens, whatever the tokenizer flags them as."""

CACHED_CHARS = 8192
"""Longer contents are not kept in the cache of encoded contents."""


class ChatFormat:
    """Token ids of conversations in the format of one tokenizer's chat template (`PLAIN_TEMPLATE` where it has none).

    `think=True` starts every reply after an opening `<think>`: the template's own where it emits one, else ours is appended.
    `end_ids` are further ids that end a reply (those of the model's generation config). `template_kwargs` go to the template.
    Raises TemplateError when the template can be used in neither mode, or the tokenizer does not give text back unchanged.

    Attributes: `mode` ("append" or "row-a-turn"), `system_role` (False: the template takes no system message and the system
    text is put in front of the first user message), `prefilled` (the opening tag as it stands in the context, "" for
    `think=False`), `end_ids` (frozenset of the ids that end a reply).
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        think: bool = True,
        chat_template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        end_ids: Iterable[int] = (),
    ) -> None:
        self.tokenizer, self.think = tokenizer, think
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self.template = chat_template or getattr(tokenizer, "chat_template", None) or PLAIN_TEMPLATE
        self._template_kwargs = {"enable_thinking": think, "thinking": think, **(template_kwargs or {})}
        scaffold = probe_template(self._render, think=think)
        self.mode, self.prefilled, self.system_role = scaffold.mode, scaffold.prefilled, not scaffold.merged
        self._addition = scaffold.addition
        self._anchor_ids: list[int] | None = None
        self._anchor_ids = self._find_anchor()
        self._head_ids = self._encode_template(scaffold.head)
        self._after_system_ids = [] if scaffold.merged else self._encode_template(scaffold.after_system)
        self._generation_ids = self._encode_template(scaffold.generation)
        self._turn_end_ids = self._encode_template(scaffold.turn_end)
        self._control_ids = self._find_control_ids()
        tokens = tokenizer.convert_ids_to_tokens(sorted(self._control_ids))
        self._control_tokens = sorted((token for token in tokens if token), key=lambda token: (-len(token), token))
        self.end_ids = self._find_end_ids(end_ids)
        # The members of a group are shown the same texts.
        self._cached_content = lru_cache(maxsize=512)(lambda text: tuple(self._encode_content_afresh(text)))
        self._check_round_trip(scaffold)

    def initial_ids(self, system: str, user: str) -> Ids:
        """Ids of the first context: system text, first user message, generation prompt, opening think tag."""
        if not self.system_role:
            return as_ids(self._head_ids + self._encode_content(merge(system, user)) + self._generation_ids)
        front = self._head_ids + self._encode_content(system) + self._after_system_ids
        return as_ids(front + self._encode_content(user) + self._generation_ids)

    def bridge_ids(self, user: str, *, ended: bool) -> Ids:
        """Ids between the sampled ids of one reply and the first sampled id of the next (append mode only).

        With `ended=False` they begin with the end-of-turn token the model did not give; with `ended=True` the sampled ids
        already hold it. Raises TemplateError in the other mode.
        """
        if self.mode != "append":
            raise TemplateError("this chat template cannot be continued by appending ids (mode 'row-a-turn'): use rerender_ids")
        turn_end = self._turn_end_ids[1:] if ended and self._turn_ends_with_token() else self._turn_end_ids
        return as_ids(turn_end + self._encode_content(user) + self._generation_ids)

    def reply_ids(self, reply: str) -> Ids:
        """Ids of a whole reply as a policy would have sampled them: `reply` (without the prefilled tag), then the end token."""
        end = self._turn_end_ids[0] if self._turn_ends_with_token() else min(self.end_ids)
        return as_ids([*self._encode_content(reply), end])

    def rerender_ids(self, system: str, messages: Sequence[Message]) -> Ids:
        """Ids of a whole conversation rendered afresh. `messages` alternate ("user", text), ("assistant", reply text without the
        prefilled tag) and end with the user's; the template may drop earlier reasoning."""
        spoken: list[Message] = [(role, self.prefilled + text if role == "assistant" else text) for role, text in messages]
        marks = Marks([self.template, system, *(text for _, text in spoken)], self._control_tokens)
        hidden: list[Message] = [(role, marks.hide(text)) for role, text in spoken]
        rendered = self._render(marks.hide(system), hidden, not self.system_role) + self._addition
        ids: list[int] = []
        for is_control, piece in marks.split(rendered):
            ids += self._encode_content(piece) if is_control else self._encode_template(piece)
        return as_ids(ids)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Text of ids, special tokens shown, nothing cleaned up."""
        plain = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
        if self._backend is not None:
            # What `tokenizer.decode` calls in the end; its checks of every id cost five times the decoding.
            return self._backend.decode(plain, skip_special_tokens=False)
        return self.tokenizer.decode(plain, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def without_end(self, ids: Ids) -> Ids:
        """Sampled ids without the end token at their end, if there is one."""
        return ids[:-1] if len(ids) and int(ids[-1]) in self.end_ids else ids

    def describe(self) -> str:
        """One line for the log: which mode is on and why."""
        why = "keeps earlier replies whole" if self.mode == "append" else "changes earlier replies (strips their reasoning)"
        place = "" if self.system_role else "; it takes no system message, so the system text opens the first user message"
        return f"chat format {self.mode}: the template {why}{place}"

    def _render(self, system: str, messages: Sequence[Message], merged: bool) -> str:
        turns = [{"role": role, "content": text} for role, text in messages]
        if merged:
            turns[0]["content"] = merge(system, turns[0]["content"])
        else:
            turns.insert(0, {"role": "system", "content": system})
        return self.tokenizer.apply_chat_template(
            turns, chat_template=self.template, tokenize=False, add_generation_prompt=True, **self._template_kwargs
        )

    def _encode(self, text: str, *, special_as_text: bool) -> list[int]:
        """`text` as it is encoded in the middle of a longer text (no prefix space, no special tokens added)."""
        options = {"add_special_tokens": False, "split_special_tokens": special_as_text}
        if self._anchor_ids is not None:
            ids = list(self.tokenizer.encode("\n" + text, **options))
            if ids[: len(self._anchor_ids)] == self._anchor_ids:
                return ids[len(self._anchor_ids) :]
        return list(self.tokenizer.encode(text, **options))

    def _encode_template(self, text: str) -> list[int]:
        return self._encode(text, special_as_text=False) if text else []

    def _encode_content(self, text: str) -> list[int]:
        """Content as plain text: a control token spelled out in it does not become the control token's id."""
        return list(self._cached_content(text)) if len(text) <= CACHED_CHARS else self._encode_content_afresh(text)

    def _encode_content_afresh(self, text: str) -> list[int]:
        ids = self._encode(text, special_as_text=True) if text else []
        if self._control_ids.isdisjoint(ids):
            return ids
        # Added tokens that are not flagged special are matched even so: cut their spelling in two and encode the halves.
        ids = []
        for piece in cut_inside(text, self._control_tokens):
            ids += self._encode(piece, special_as_text=True)
        if not self._control_ids.isdisjoint(ids):
            raise TemplateError(f"the tokenizer turns plain text into a control token: {text[:80]!r}")
        return ids

    def _turn_ends_with_token(self) -> bool:
        return bool(self._turn_end_ids) and self._turn_end_ids[0] in self.end_ids

    def _find_anchor(self) -> list[int] | None:
        """Ids of a newline to encode pieces after, for tokenizers that put a space before every text; None where none do."""
        if self.decode(self._encode_template("a") + self._encode_template("b")) == "ab":
            return None
        return list(self.tokenizer.encode("\n", add_special_tokens=False))

    def _find_control_ids(self) -> frozenset[int]:
        """Special tokens and the added tokens the template itself writes, the tags aside: content must not forge them."""
        added = {i: str(token) for i, token in self.tokenizer.added_tokens_decoder.items()}
        written = self._head_ids + self._after_system_ids + self._generation_ids + self._turn_end_ids
        control = set(self.tokenizer.all_special_ids) | {i for i in written if added.get(i, "").strip()}
        return frozenset(control - {i for i, token in added.items() if token in TAGS})

    def _find_end_ids(self, more: Iterable[int]) -> frozenset[int]:
        found = {int(i) for i in more}
        if self.tokenizer.eos_token_id is not None:
            found.add(int(self.tokenizer.eos_token_id))
        if self._turn_end_ids and self._turn_end_ids[0] in self._control_ids:
            found.add(self._turn_end_ids[0])
        if not found:
            raise TemplateError("no token ends a reply: the tokenizer has no end-of-sequence token and the template ends no turn")
        return frozenset(found)

    def _check_round_trip(self, scaffold: Scaffold) -> None:
        system, user, expected = scaffold.first_context
        found = self.decode(self.initial_ids(system, user))
        if found != expected:
            raise TemplateError(
                f"the tokenizer does not give the template's text back: {found[:200]!r} instead of {expected[:200]!r}. "
                "A tokenizer that keeps text unchanged is needed."
            )
