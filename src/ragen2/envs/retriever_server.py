"""A retrieval server: any retriever behind HTTP, for environments in other processes.

`POST /retrieve` with `{"queries": [text, ...], "topk": number}` answers `{"result": [[{"title", "text"}, ...], ...]}`; `topk` may
be left out (3). `GET /health` answers `{"status": "ok"}`. Anything wrong answers `{"error": text}` with a status of 400 or above.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ragen2.envs.retriever import MAX_QUERIES, MAX_QUERY_CHARS, MAX_TOPK, Retriever
from ragen2.errors import ConfigError, Ragen2Error

MAX_BODY_BYTES = 1 << 20
DEFAULT_TOPK = 3
SILENT_SECONDS = 10.0
"""A client that sends nothing for so long is hung up on."""


class RetrieverServer(ThreadingHTTPServer):
    """Serves a retriever, each request in its own thread. Port 0 takes a free one; `address` says which.

    Raises ConfigError where the port cannot be opened.
    """

    daemon_threads = True

    def __init__(self, retriever: Retriever, host: str = "127.0.0.1", port: int = 8000) -> None:
        self.retriever = retriever
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"cannot serve on {host}:{port}: {error}. Choose another port (0 takes a free one).") from error

    @property
    def address(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; the rest is told."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Refused(Exception):
    """A request that is answered with an error status."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        self.status = status
        super().__init__(message)


class _Handler(BaseHTTPRequestHandler):
    timeout = SILENT_SECONDS
    server_version = "ragen2"

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(HTTPStatus.OK, {"status": "ok"})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is GET /health and POST /retrieve"})

    def do_POST(self) -> None:
        try:
            if self.path != "/retrieve":
                raise _Refused(HTTPStatus.NOT_FOUND, "there is GET /health and POST /retrieve")
            queries, topk = _read_request(self._body())
            answer = {"result": self._found(queries, topk)}
        except _Refused as refusal:
            self._answer(refusal.status, {"error": str(refusal)})
        else:
            self._answer(HTTPStatus.OK, answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors of the protocol itself, as JSON like the rest."""
        self._answer(HTTPStatus(code), {"error": message or HTTPStatus(code).phrase})

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: a rollout makes thousands."""

    def _found(self, queries: list[str], topk: int) -> list[list[dict[str, str]]]:
        try:
            found = self._retriever().retrieve(queries, topk)
            return [[{"title": passage.title, "text": passage.text} for passage in one] for one in found]
        except Ragen2Error as error:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        except Exception as error:  # a retriever is foreign code: the client is told, the server goes on
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, f"the retriever raised {type(error).__name__}: {error}") from error

    def _retriever(self) -> Retriever:
        if not isinstance(self.server, RetrieverServer):
            raise ConfigError(f"the retriever is served by RetrieverServer, not by a {type(self.server).__name__}")
        return self.server.retriever

    def _body(self) -> bytes:
        told = self.headers.get("Content-Length", "")
        if not told.isascii() or not told.isdigit() or len(told) > 12:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length must give the length of the body in bytes")
        if int(told) > MAX_BODY_BYTES:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has {told} bytes; at most {MAX_BODY_BYTES} are read")
        body = self.rfile.read(int(told))
        if len(body) != int(told):
            raise _Refused(HTTPStatus.BAD_REQUEST, f"the body has {len(body)} bytes; Content-Length says {told}")
        return body

    def _answer(self, status: HTTPStatus, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _read_request(body: bytes) -> tuple[list[str], int]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {type(error).__name__}") from error
    if not isinstance(asked, dict):
        raise _Refused(HTTPStatus.BAD_REQUEST, 'the body must be an object: {"queries": [text], "topk": number}')
    queries, topk = asked.get("queries"), asked.get("topk", DEFAULT_TOPK)
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries) or len(queries) > MAX_QUERIES:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"queries must be a list of at most {MAX_QUERIES} texts")
    if any(len(query) > MAX_QUERY_CHARS for query in queries):
        raise _Refused(HTTPStatus.BAD_REQUEST, f"a query has at most {MAX_QUERY_CHARS} characters")
    if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= MAX_TOPK:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"topk must be a whole number from 1 to {MAX_TOPK}")
    return queries, topk
