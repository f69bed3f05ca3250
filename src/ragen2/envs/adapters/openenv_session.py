"""A session with an OpenEnv server: a WebSocket, one message there, one back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ragen2.errors import ConfigError, EnvironmentFault

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

MAX_REPLY_BYTES = 8 << 20
MAX_ACTION_CHARS = 20_000
"""Longest action that is sent; the rollout cuts longer ones to the same length."""

CONNECT_SECONDS = 10.0
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class RefusedAction(Exception):
    """The server's schema refuses an action, or it cannot be written as one: the model's mistake, not the server's."""


class _Lost(Exception):
    """The connection broke before an answer came."""


class OpenEnvSession:
    """Connects on first use, and anew after a fault. Raises ConfigError for an address that is none."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url if isinstance(url, str) else "")
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ConfigError(f"url is {url!r}; give the address of an OpenEnv server, such as url=http://127.0.0.1:8000")
        self.url, self.timeout_s = url, timeout_s
        self._address = f"{_SCHEMES[parts.scheme]}{url[len(parts.scheme) :].rstrip('/')}/ws"
        self._local = parts.hostname in _LOOPBACK
        self._socket: ClientConnection | None = None
        self._open = contextlib.ExitStack()

    def ask(self, kind: str, data: Mapping[str, Any], *, fresh: bool = False) -> Mapping[str, Any]:
        """The data of the reply to a message. With `fresh` (a reset) a session that the server has closed is opened again.

        Raises RefusedAction for an action that the server's schema refuses, EnvironmentFault for everything else.
        """
        again = fresh and self._socket is not None
        try:
            reply = self._exchange(kind, data)
        except _Lost as lost:
            if not again:
                raise EnvironmentFault(str(lost)) from lost
            try:
                reply = self._exchange(kind, data)
            except _Lost as second:
                raise EnvironmentFault(str(second)) from second
        return self._read(kind, reply)

    def close(self) -> None:
        """End the session. Safe to call twice."""
        if self._socket is not None:
            with contextlib.suppress(OSError, *_broken()):
                self._socket.send(json.dumps({"type": "close"}))
        self._drop()

    def _exchange(self, kind: str, data: Mapping[str, Any]) -> str | bytes:
        try:
            if self._socket is None:
                self._socket = self._connect()
            with contextlib.suppress(*_broken()):
                # A server that is full says so and hangs up at once: what it said is read all the same.
                self._socket.send(json.dumps({"type": kind, "data": dict(data)}))
            return self._socket.recv(timeout=self.timeout_s)
        except TimeoutError as error:
            self._drop()
            raise EnvironmentFault(f"the server {self.url} gave no answer to {kind!r} in {self.timeout_s:g} s") from error
        except (OSError, *_broken()) as error:
            self._drop()
            raise _Lost(
                f"the server {self.url} cannot be reached or hung up at {kind!r}: {type(error).__name__}: {str(error)[:200]}. "
                "Is it running (ragen2 serve-env)?"
            ) from error

    def _connect(self) -> ClientConnection:
        from websockets.sync.client import connect

        # A proxy of the environment cannot reach a server on this machine.
        proxy = {"proxy": None} if self._local else {}
        wait = min(CONNECT_SECONDS, self.timeout_s)
        bounds = {"open_timeout": wait, "close_timeout": 1.0, "max_size": MAX_REPLY_BYTES}
        return self._open.enter_context(connect(self._address, **bounds, **proxy))

    def _read(self, kind: str, raw: str | bytes) -> Mapping[str, Any]:
        try:
            reply = json.loads(raw)
        except (ValueError, RecursionError) as error:
            self._drop()
            raise EnvironmentFault(f"the server {self.url} answered no JSON: {raw[:80]!r}") from error
        data = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(data, dict):
            self._drop()
            raise EnvironmentFault(f"the server {self.url} answered {str(reply)[:80]!r}; an object with data is due")
        if reply.get("type") == "error":
            code, message = str(data.get("code"))[:40], str(data.get("message"))[:200]
            if code == "VALIDATION_ERROR" and kind == "step":
                raise RefusedAction(message)
            self._drop()
            raise EnvironmentFault(f"the server {self.url} failed at {kind!r}: {code}: {message}")
        if reply.get("type") != "observation":
            self._drop()
            raise EnvironmentFault(f"the server {self.url} answered {kind!r} by {str(reply.get('type'))[:40]!r}")
        return data

    def _drop(self) -> None:
        """Give the connection up: a late answer must not be taken for that of the next question."""
        self._socket = None
        with contextlib.suppress(OSError, *_broken()):
            self._open.close()


def _broken() -> tuple[type[Exception], ...]:
    from websockets.exceptions import WebSocketException

    return (WebSocketException,)
