"""Client of a Kimina Lean server: files go there by HTTP, messages come back."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

from ragen2.errors import ConfigError
from ragen2.provers.base import ProverFault, TacticError
from ragen2.provers.lean import LeanMessage

MAX_REPLY_BYTES = 16 << 20
RETRIES = 2
RETRY_SECONDS = 1.0

KEY_VARIABLE = "KIMINA_API_KEY"
"""Environment variable with the server's bearer key, where it wants one."""


class KiminaChecker:
    """Asks `POST {server}/api/check` with `{"snippets": [{"id", "code"}], "timeout", "reuse"}`; the answer's `results[0]` holds
    `response.messages` (or `error`). Busy or unreachable servers are asked again `RETRIES` times, then ProverFault is raised."""

    name = "kimina"

    def __init__(self, server: str, seconds: float = 60.0, concurrency: int = 16, key: str | None = None) -> None:
        if not server.startswith(("http://", "https://")):
            raise ConfigError(
                f"server is {server!r}; give the address of a Kimina Lean server, for example http://localhost:8000"
            )
        self.url = f"{server.rstrip('/')}/api/check"
        self.seconds, self.concurrency = seconds, concurrency
        self._key = os.environ.get(KEY_VARIABLE, "") if key is None else key

    def check(self, code: str) -> list[LeanMessage] | TacticError:
        """Have one file read."""
        answer = self._post({"snippets": [{"id": "0", "code": code}], "timeout": int(self.seconds), "reuse": True})
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or len(results) != 1 or not isinstance(results[0], dict):
            raise ProverFault(f"{self.url} answered without one result: {str(answer)[:200]}")
        result = results[0]
        error = result.get("error")
        if error:
            if "timeout" in str(error).lower() or "timed out" in str(error).lower():
                return TacticError(f"stopped: it needs more than {self.seconds:g} s")
            raise ProverFault(f"{self.url} reports a fault of its own: {str(error)[:200]}")
        response = result.get("response")
        if not isinstance(response, dict):
            raise ProverFault(f"{self.url} answered without a response: {str(result)[:200]}")
        return [_message(entry, self.url) for entry in response.get("messages") or []]

    def close(self) -> None:
        """Nothing is kept open."""

    def _post(self, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self._key}"} if self._key else {})}
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers, method="POST")
        reason = ""
        for attempt in range(RETRIES + 1):
            try:
                with urllib.request.urlopen(request, timeout=self.seconds + 15) as reply:
                    return _read(reply.read(MAX_REPLY_BYTES + 1), self.url)
            except urllib.error.HTTPError as error:
                reason = f"status {error.code}"
                if error.code not in (429, 500, 502, 503, 504):
                    hint = f"; set {KEY_VARIABLE}" if error.code in (401, 403) else ""
                    raise ProverFault(f"{self.url} refuses the request with {reason}{hint}") from error
            except OSError as error:  # refused, unknown host, silent for too long
                reason = str(error)
            if attempt < RETRIES:
                time.sleep(RETRY_SECONDS)
        raise ProverFault(f"{self.url} cannot be used after {RETRIES + 1} tries: {reason}. Is the Kimina Lean server running?")


def _read(data: bytes, url: str) -> Any:
    if len(data) > MAX_REPLY_BYTES:
        raise ProverFault(f"{url} answered more than {MAX_REPLY_BYTES} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProverFault(f"{url} answered something that is no JSON: {error}") from error


def _message(entry: object, url: str) -> LeanMessage:
    if isinstance(entry, dict):
        severity, place, text = entry.get("severity"), entry.get("pos"), entry.get("data")
        line = place.get("line") if isinstance(place, dict) else None
        if isinstance(severity, str) and isinstance(line, int) and isinstance(text, str):
            return LeanMessage(severity, line, text)
    raise ProverFault(f"{url} sent a message without severity, pos.line and data: {str(entry)[:200]}")
