"""A scorer on an OpenAI-compatible server (vLLM, SGLang, ...), which must return the log-probabilities of a prompt.

Needs the standard library only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from http.client import HTTPException, HTTPMessage
from threading import Event
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from ragen2.engines.completions import NoPromptLogprobs, Shape, read_reply, request_body, shown
from ragen2.engines.scored import Scored, gathered
from ragen2.errors import BadServerReply, ConfigError, ServerRefused, ServerUnreachable, TokenMismatch
from ragen2.trajectory import Ids, as_ids

AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)
"""Statuses after which a request is tried again."""

LONGEST_WAIT_S = 30.0
CHUNK = 1 << 16
SHAPES: tuple[Shape, ...] = ("prompt_logprobs", "echo", "echo_and_one")


class OpenAIScorer:
    """Scores rows of token ids by `/v1/completions`.

    Equal pairs are asked for once, `rows_per_request` rows at a time, at most `concurrency` requests together. The first request
    finds out which way of asking the server understands; `shape` settles it. `timeout_s` bounds one request as a whole. A busy
    or broken server is asked `retries` times more, with waits that double. `tokenizer` is only kept for those who have texts.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        tokenizer: Any = None,
        api_key: str | None = None,
        shape: Shape | None = None,
        concurrency: int = 4,
        rows_per_request: int = 16,
        timeout_s: float = 120.0,
        retries: int = 4,
        backoff_s: float = 0.5,
        max_body_bytes: int = 1 << 26,
    ) -> None:
        self._url = _completions_url(base_url)
        if shape is not None and shape not in SHAPES:
            raise ConfigError(f"shape {shape!r} is unknown; allowed are {', '.join(SHAPES)}, or None to find out")
        if min(concurrency, rows_per_request, max_body_bytes) < 1 or retries < 0 or min(timeout_s, backoff_s) <= 0:
            raise ConfigError(
                "concurrency, rows_per_request and max_body_bytes must be at least 1, retries 0 or more, times above 0"
            )
        self.model, self.tokenizer = model, tokenizer
        self.shape: Shape | None = shape
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._concurrency, self._rows = concurrency, rows_per_request
        self._timeout_s, self._retries, self._backoff_s, self._max_bytes = timeout_s, retries, backoff_s, max_body_bytes
        self._opener = build_opener(_NoRedirect())

    def score(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> list[list[np.ndarray]]:
        """See `engines.base.Engine.score`. Raises what `score_each` raises."""
        return gathered(continuations, self.score_each(contexts, continuations))

    def score_each(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> Iterator[Scored]:
        """`(i, k, log-probabilities)` of every continuation once, as the answers arrive; rows of one context are sent together.

        Raises:
            ServerUnreachable: refused, unknown host or silent, after every retry.
            ServerRefused: an error status that a retry does not help, or that stays.
            BadServerReply: no JSON, too large, values that are no log-probabilities; none for a prompt at all (NoPromptLogprobs).
            TokenMismatch: other tokens than were sent; an empty context, ids that are negative or no whole numbers.
        """
        _check(contexts, continuations)
        wanted: dict[bytes, tuple[Ids, int, list[tuple[int, int]]]] = {}
        for i, (context, rows) in enumerate(zip(contexts, continuations, strict=True)):
            for k, row in enumerate(rows):
                if not len(row):
                    yield i, k, np.zeros(0, dtype=np.float64)
                    continue
                whole = np.concatenate([as_ids(context), as_ids(row)])
                key = len(context).to_bytes(8, "little") + whole.tobytes()
                wanted.setdefault(key, (whole, len(context), []))[2].append((i, k))
        items = list(wanted.values())
        requests = [items[at : at + self._rows] for at in range(0, len(items), self._rows)]
        for request, values in self._answers(requests):
            for (_, start, places), logprobs in zip(request, values, strict=True):
                for i, k in places:
                    yield i, k, logprobs[start:].copy()

    def _answers(self, requests: list[list[Any]]) -> Iterator[tuple[list[Any], list[np.ndarray]]]:
        """Each request with its answer, as they arrive. The first goes alone: it settles the shape."""
        begin, stop = 0, Event()
        if requests and self.shape is None:
            yield requests[0], self._settle([item[0] for item in requests[0]], stop)
            begin = 1
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="ragen2-scorer")
        running: dict[Future[list[np.ndarray]], list[Any]] = {}
        try:
            while begin < len(requests) or running:
                while begin < len(requests) and len(running) < self._concurrency:
                    request = requests[begin]
                    running[pool.submit(self._ask, [item[0] for item in request], self.shape or SHAPES[0], stop)] = request
                    begin += 1
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _settle(self, prompts: list[Ids], stop: Event) -> list[np.ndarray]:
        """Ask in each way until the server gives log-probabilities of the prompt, and keep that way."""
        reasons = []
        for shape in SHAPES:
            try:
                values = self._ask(prompts, shape, stop)
            except NoPromptLogprobs as error:
                reasons.append(str(error))
            except ServerRefused as error:
                # A strict server refuses a field it does not know.
                if error.status not in (400, 422):
                    raise
                reasons.append(str(error))
            else:
                self.shape = shape
                return values
        raise NoPromptLogprobs(
            f"{self._url} gives no prompt log-probabilities: {'; '.join(reasons)}. "
            "Use a server that does (vLLM, or one with echo and logprobs), or score with the model's folder."
        )

    def _ask(self, prompts: list[Ids], shape: Shape, stop: Event) -> list[np.ndarray]:
        return read_reply(self._post(request_body(self.model, prompts, shape), stop), prompts, shape)

    def _post(self, body: bytes, stop: Event) -> bytes:
        """The answer's body; `stop` ends the tries early."""
        for attempt in range(self._retries + 1):
            last = attempt == self._retries or stop.is_set()
            pause = min(LONGEST_WAIT_S, self._backoff_s * 2**attempt)
            try:
                return self._post_once(body)
            except HTTPError as error:
                with error:
                    if last or error.code not in AGAIN:
                        raise ServerRefused(error.code, f"{self._url} answered {error.code}: {_said(error)}") from error
                    pause = max(pause, _retry_after(error.headers))
            except (URLError, OSError, HTTPException) as error:
                if last:
                    reason = getattr(error, "reason", None) or error
                    raise ServerUnreachable(
                        f"no answer from {self._url} after {self._retries + 1} tries: {str(reason) or type(reason).__name__}. "
                        "Is the server running, and is the address right?"
                    ) from error
            stop.wait(pause)
        raise AssertionError("the last try returns or raises")

    def _post_once(self, body: bytes) -> bytes:
        until = time.monotonic() + self._timeout_s
        request = Request(self._url, data=body, headers=self._headers, method="POST")
        parts, size = [], 0
        with self._opener.open(request, timeout=self._timeout_s) as response:
            while part := response.read1(CHUNK):
                size += len(part)
                if size > self._max_bytes:
                    raise BadServerReply(
                        f"{self._url} answered more than {self._max_bytes} bytes; ask for fewer rows_per_request "
                        "or raise max_body_bytes"
                    )
                if time.monotonic() > until:
                    raise TimeoutError(f"timed out: the answer was not complete after {self._timeout_s:g} s")
                parts.append(part)
        return b"".join(parts)


class _NoRedirect(HTTPRedirectHandler):
    """A redirected POST would lose its body and could carry the key elsewhere."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        return None


def _completions_url(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
    except ValueError as error:
        raise ConfigError(
            f"the server address {base_url!r} cannot be read ({error}); it must be like http://host:8000"
        ) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"the server address {base_url!r} must be like http://host:8000 or https://host/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError("the server address must hold no user name, password, query or fragment; give the key as api_key")
    base = base_url.rstrip("/").removesuffix("/completions")
    return f"{base}/completions" if base.endswith("/v1") else f"{base}/v1/completions"


def _check(contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> None:
    if len(contexts) != len(continuations) or any(len(ids) == 0 for ids in contexts):
        raise TokenMismatch(f"{len(contexts)} contexts for {len(continuations)} lists of continuations, or an empty context")
    for ids in (*contexts, *(row for rows in continuations for row in rows)):
        array = np.asarray(ids)
        if array.size and (array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= 2**31):
            raise TokenMismatch(f"token ids must be whole numbers from 0 to 2**31 - 1, got {array.tolist()[:8]} ({array.dtype})")


def _said(error: HTTPError) -> str:
    """What the server says of an error, bounded and on one line."""
    try:
        text = error.read(4096)
    except (OSError, HTTPException):
        return "(its explanation broke off)"
    try:
        reply = json.loads(text)
    except (UnicodeDecodeError, ValueError, RecursionError):
        return shown(text)
    inner = reply.get("error", reply) if isinstance(reply, dict) else reply
    message = (inner.get("message") or inner.get("detail")) if isinstance(inner, dict) else inner
    return repr(str(message)[:300]) if message else shown(text)


def _retry_after(headers: Any) -> float:
    """Seconds a server asks to wait, bounded; 0 when it does not say or gives a date."""
    value = headers.get("Retry-After", "") if headers is not None else ""
    return min(LONGEST_WAIT_S, float(value)) if value.strip().isdecimal() else 0.0
