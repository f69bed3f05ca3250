"""Servers for tests of the OpenEnv adapter: ours in a thread, and a scripted one that says whatever a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def scripted_server(answer: Callable[[dict[str, Any]], Any]) -> Iterator[str]:
    """Address of a WebSocket server that answers each message by `answer(message)`: an object, raw text, or None to hang up."""
    from websockets.sync.server import ServerConnection, serve

    def talk(connection: ServerConnection) -> None:
        for raw in connection:
            reply = answer(json.loads(raw))
            if reply is None:
                return
            connection.send(reply if isinstance(reply, str) else json.dumps(reply))

    with serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join(5)


@contextmanager
def our_server(id: str, **arguments: Any) -> Iterator[str]:
    """Address of a `ragen2 serve-env` server."""
    from ragen2.integrations.openenv_app import OpenEnvServer, openenv_app

    server = OpenEnvServer(openenv_app(id, **arguments), port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield server.address
    server.stop()
    thread.join(10)


def observed(reward: Any = 0.0, done: Any = False, **fields: Any) -> dict[str, Any]:
    """An observation message."""
    return {"type": "observation", "data": {"observation": {"text": "board", **fields}, "reward": reward, "done": done}}


def failed(code: str, message: str = "no") -> dict[str, Any]:
    """An error message."""
    return {"type": "error", "data": {"code": code, "message": message}}
