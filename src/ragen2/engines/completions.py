"""Reading prompt log-probabilities from the replies of OpenAI-compatible `/v1/completions` servers, in both shapes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ragen2.errors import BadServerReply, TokenMismatch
from ragen2.trajectory import Ids

Shape = Literal["prompt_logprobs", "echo", "echo_and_one"]
"""vLLM's own field, which names the ids it scored; OpenAI's echo with log-probabilities, which gives texts; the same for servers
that insist on sampling a token."""

ABOVE_ZERO = 1e-3
"""A log-probability above 0 by more than rounding is none."""


class NoPromptLogprobs(BadServerReply):
    """The server ignores this way of asking for the log-probabilities of a prompt."""


def request_body(model: str, prompts: Sequence[Ids], shape: Shape) -> bytes:
    """The JSON of one request for rows of token ids."""
    body: dict[str, Any] = {"model": model, "prompt": [[int(token) for token in ids] for ids in prompts], "temperature": 1.0}
    if shape == "prompt_logprobs":
        # Zero alternatives beside the prompt's own token; this server wants to sample at least one.
        body |= {"max_tokens": 1, "prompt_logprobs": 0}
    else:
        body |= {"max_tokens": int(shape == "echo_and_one"), "echo": True, "logprobs": 1}
    return json.dumps(body).encode()


def read_reply(text: bytes, prompts: Sequence[Ids], shape: Shape) -> list[np.ndarray]:
    """Log-probabilities (nats) of each prompt's tokens, float64, NaN for the first.

    Raises:
        NoPromptLogprobs: none where this shape has them.
        BadServerReply: no JSON, a choice missing, a value that is no number or above 0.
        TokenMismatch: another number of tokens, or other ids, than were sent.
    """
    try:
        reply = json.loads(text)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadServerReply(f"the server's answer is no JSON: {shown(text)}") from error
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise BadServerReply(f"the server's answer has no list of choices: {shown(text)}")
    order = [choice.get("index", number) for number, choice in enumerate(choices)]
    if sorted(order, key=str) != sorted(range(len(prompts)), key=str):
        raise BadServerReply(f"the server was sent {len(prompts)} rows and answered choices {order[:8]}")
    by_index = dict(zip(order, choices, strict=True))
    read = _from_field if shape == "prompt_logprobs" else _from_echo
    return [read(by_index[number], ids) for number, ids in enumerate(prompts)]


def shown(text: bytes) -> str:
    """The beginning of a server's answer, on one line."""
    return repr(text[:200].decode("utf-8", "replace"))


def _from_field(choice: dict[str, Any], ids: Ids) -> np.ndarray:
    entries = choice.get("prompt_logprobs")
    if not isinstance(entries, list):
        raise NoPromptLogprobs(f"the server returns no prompt_logprobs (choice has {sorted(choice)[:8]})")
    _check_count(len(entries), len(ids), 0)
    values = np.full(len(ids), np.nan)
    for t, (token, entry) in enumerate(zip(ids.tolist(), entries, strict=True)):
        if t == 0:
            continue
        if not isinstance(entry, dict):
            raise BadServerReply(f"prompt_logprobs holds {type(entry).__name__} at token {t}, not an object")
        if str(token) not in entry:
            raise TokenMismatch(f"the server scored the ids {sorted(entry)[:4]} at token {t}, but {token} was sent")
        found = entry[str(token)]
        values[t] = _number(found.get("logprob") if isinstance(found, dict) else found, t)
    return values


def _from_echo(choice: dict[str, Any], ids: Ids) -> np.ndarray:
    logprobs = choice.get("logprobs")
    entries = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    if not isinstance(entries, list) or not entries:
        raise NoPromptLogprobs(f"the server returns no log-probabilities with echo (choice has {sorted(choice)[:8]})")
    # One more where the server insisted on sampling a token.
    _check_count(len(entries), len(ids), 1)
    tokens = logprobs.get("tokens") if isinstance(logprobs, dict) else None
    values = np.full(len(ids), np.nan)
    for t, (token, entry) in enumerate(zip(ids.tolist(), entries[: len(ids)], strict=True)):
        said = tokens[t] if isinstance(tokens, list) and len(tokens) == len(entries) else None
        if isinstance(said, str) and said.startswith("token_id:") and said != f"token_id:{token}":
            raise TokenMismatch(f"the server scored {said[:40]!r} at token {t}, but token_id:{token} was sent")
        if t:
            values[t] = _number(entry, t)
    return values


def _check_count(found: int, sent: int, more: int) -> None:
    if not sent <= found <= sent + more:
        raise TokenMismatch(f"a row of {sent} token ids came back with {found} log-probabilities")


def _number(value: Any, token: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadServerReply(f"the server's log-probability of token {token} is {str(value)[:40]!r}, not a number")
    number = float(value)
    if math.isnan(number) or number > ABOVE_ZERO:
        raise BadServerReply(f"the server's log-probability of token {token} is {number}; it must be 0 or less")
    return min(number, 0.0)
