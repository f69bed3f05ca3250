"""Client of a retrieval server: queries go there by HTTP, passages come back."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ragen2.envs.retriever import MAX_QUERY_CHARS, Passage
from ragen2.errors import ConfigError, EnvironmentFault

MAX_REPLY_BYTES = 8 << 20
RETRIES = 2
RETRY_SECONDS = 0.2
_BUSY = (429, 502, 503, 504)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CHUNK = 1 << 16


class HttpRetriever:
    """Asks `POST {address}/retrieve` with `{"queries": [text], "topk": number}`; the answer is `{"result": [[passage, ...]]}`,
    one list a query, of objects with `title` and `text`, or with `contents` (first line the title), or with such a `document`.

    A server that is busy or cannot be reached is asked again `RETRIES` times. Whatever fails raises EnvironmentFault, in about
    `timeout_s` seconds for each try. Raises ConfigError for an address that is none.
    """

    def __init__(self, address: str, timeout_s: float = 10.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"retriever is {address!r}; give an address such as http://127.0.0.1:8000")
        self.url = f"{address.rstrip('/')}/retrieve"
        self.timeout_s = timeout_s
        # A proxy of the environment cannot reach a server on this machine.
        proxies = (urllib.request.ProxyHandler({}),) if parts.hostname in _LOOPBACK else ()
        self._opener = urllib.request.build_opener(*proxies)

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """Passages of each query, as the server orders them, `topk` at most."""
        body = json.dumps({"queries": [query[:MAX_QUERY_CHARS] for query in queries], "topk": topk}).encode()
        answer = self._post(body)
        results = answer.get("result") if isinstance(answer, Mapping) else None
        if not isinstance(results, list) or len(results) != len(queries) or not all(isinstance(one, list) for one in results):
            raise EnvironmentFault(f'{self.url} must answer {{"result": [...]}} with one list a query; got {str(answer)[:200]}')
        return [[_passage(entry, self.url) for entry in one[:topk]] for one in results]

    def _post(self, body: bytes) -> Any:
        for attempt in range(RETRIES + 1):
            try:
                return self._once(body)
            except (OSError, ValueError, http.client.HTTPException) as error:
                if attempt == RETRIES or not _may_pass(error):
                    raise EnvironmentFault(
                        f"the retriever {self.url} did not answer: {type(error).__name__}: {str(error)[:200]}. "
                        "Is the server running (ragen2 serve-retriever)?"
                    ) from error
            time.sleep(RETRY_SECONDS * 2**attempt)
        raise AssertionError("the last try returns or raises")

    def _once(self, body: bytes) -> Any:
        deadline = time.monotonic() + self.timeout_s
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"}, method="POST")
        chunks: list[bytes] = []
        size = 0
        with self._opener.open(request, timeout=self.timeout_s) as reply:
            while chunk := reply.read1(_CHUNK):
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_REPLY_BYTES:
                    raise ValueError(f"the answer is longer than {MAX_REPLY_BYTES} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the answer took more than {self.timeout_s:g} s")
        try:
            return json.loads(b"".join(chunks))
        except RecursionError as error:
            raise ValueError("the answer is nested too deeply") from error


def _may_pass(error: Exception) -> bool:
    """Whether asking again may help: not after a time-out, a refusal or an answer that cannot be read."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return error.code in _BUSY
    return not isinstance(error, (TimeoutError, ValueError)) and not isinstance(getattr(error, "reason", None), TimeoutError)


def _passage(entry: object, url: str) -> Passage:
    if isinstance(entry, Mapping) and isinstance(entry.get("document"), Mapping):
        entry = entry["document"]
    if isinstance(entry, Mapping):
        title, text, contents = entry.get("title", ""), entry.get("text"), entry.get("contents")
        if isinstance(title, str) and isinstance(text, str):
            return Passage(title, text)
        if isinstance(contents, str):
            first, _, rest = contents.partition("\n")
            return Passage(first.strip('"'), rest)
    raise EnvironmentFault(f"{url} answered a passage without title and text: {str(entry)[:200]}")
