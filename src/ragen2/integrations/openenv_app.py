"""The web application around a served environment: bounded bodies, a bounded number of sessions, an address."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from ragen2.errors import ConfigError, MissingDependency
from ragen2.integrations.openenv_server import TextAction, TextObservation, session_factory

try:
    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.types import ConcurrencyConfig
    from starlette.websockets import WebSocketDisconnect
except ImportError as error:
    raise MissingDependency("openenv-core", "openenv", "serving an environment by OpenEnv") from error

MAX_BODY_BYTES = 1 << 20
"""Longest request body and WebSocket message."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """Refuses HTTP bodies of more than `most` bytes with status 413, whatever Content-Length says, and takes a client that hangs
    up for no error."""

    def __init__(self, app: AsgiApp, most: int = MAX_BODY_BYTES) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # OpenEnv closes a WebSocket that its client has closed already.
            with contextlib.suppress(WebSocketDisconnect):
                await self.app(scope, receive, send)
            return
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            chunks.append(message.get("body", b""))
            size, more = size + len(chunks[-1]), message.get("more_body", False)
            if size > self.most:
                await _refuse(send, f"the body has more than {self.most} bytes")
                return
        whole: list[Message] = [{"type": "http.request", "body": b"".join(chunks), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self.app(scope, replay, send)


async def _refuse(send: Send, why: str) -> None:
    body = json.dumps({"error": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def openenv_app(
    id: str,
    split: str = "train",
    options: Mapping[str, Any] | None = None,
    *,
    max_sessions: int = 64,
    idle_seconds: float | None = 3600.0,
) -> AsgiApp:
    """The environment `id` as an ASGI application that speaks OpenEnv (0.3): WebSocket /ws, GET /health, /schema, /metadata.

    `max_sessions` episodes run at once; one more is answered CAPACITY_REACHED. A session silent for `idle_seconds` is closed
    (None: never). Raises what `ragen2.make` raises, and ConfigError for bounds that make no sense.
    """
    if max_sessions < 1:
        raise ConfigError(f"max_sessions is {max_sessions}; give a whole number of at least 1")
    if idle_seconds is not None and not idle_seconds > 0:
        raise ConfigError(f"idle_seconds is {idle_seconds}; give seconds above 0, or None for no bound")
    bounds = ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=idle_seconds)
    app = create_fastapi_app(session_factory(id, split, options), TextAction, TextObservation, concurrency_config=bounds)
    return Guard(app)


class OpenEnvServer:
    """Serves an application on `host`:`port`; port 0 takes a free one, `address` says which.

    Raises ConfigError where the port cannot be opened.
    """

    def __init__(self, app: AsgiApp, host: str = "127.0.0.1", port: int = 8000) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise ConfigError(f"cannot serve on {host}:{port}: {error}. Choose another port (0 takes a free one).") from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="warning", access_log=False, ws_max_size=MAX_BODY_BYTES)  # pyright: ignore[reportArgumentType]
        self._server = uvicorn.Server(config)

    @property
    def started(self) -> bool:
        return self._server.started

    def serve_forever(self) -> None:
        """Serve until `stop` or Ctrl-C."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Let `serve_forever` end. May be called from another thread."""
        self._server.should_exit = True
