"""A function that lives in the sandbox and is called from outside by values."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen2.errors import SandboxBroken
from ragen2.sandbox.result import Cause
from ragen2.sandbox.session import Sandbox, memory_file, null_file, outcome, pipe, refusal
from ragen2.sandbox.transfer import Stopped, Watch, read_frame, write_frame
from ragen2.sandbox.values import NotAValue, read_tree, to_tree, write_tree

_GOODBYE_SECONDS = 1.0


@dataclass(frozen=True)
class Answer:
    """What a call gave: the `tree` of its value (see values.py) where `error` is None.

    `error` is the name of the exception, or what else went wrong; `cause` says whether a limit was the reason.
    """

    tree: object
    error: str | None = None
    cause: Cause = "ok"


class SandboxFunction:
    """The function `name` that a text defines, called in a process of its own. A context manager.

    The text runs once; the calls share its state. `preamble` runs before it (imports and helpers that a problem gives). A method
    of a class `Solution` is found too. All calls together may take `seconds` by the clock (default: the sandbox's limit).
    Arguments arrive one call at a time, after the answer to the call before, and answers are plain values: what the text does to
    its own interpreter can change its answers and nothing else.
    """

    def __init__(self, sandbox: Sandbox, code: str, name: str, *, preamble: str = "", seconds: float | None = None) -> None:
        self._sandbox, self._stack, self._theirs = sandbox, contextlib.ExitStack(), contextlib.ExitStack()
        self._dead: Answer | None = None
        self._refused = refusal(code, sandbox.limits)
        if self._refused is not None:
            self._dead = Answer(None, self._refused, "refused")
            return
        process = sandbox.start()
        with self._theirs as theirs:
            self._reply, reply_theirs = pipe(self._stack, theirs)
            request_theirs, self._request = pipe(theirs, self._stack)
            null = theirs.enter_context(null_file())
            fds = [null, null, null, memory_file(theirs, code.encode()), request_theirs, reply_theirs]
            try:
                process.order("function", fds, name=name, preamble=preamble)
            except SandboxBroken:
                self._stack.close()
                sandbox.close()
                raise
        self._watch = Watch(process, sandbox.limits, time.monotonic() + (seconds or sandbox.limits.wall_seconds))

    def __enter__(self) -> SandboxFunction:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, arguments: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> Answer:
        """Call it with plain values. After a call that ended the process every further one fails at once. Raises NotAValue for
        arguments that are none."""
        return self.call_trees(to_tree(list(arguments)), to_tree(dict(keywords or {})))

    def call_trees(self, arguments: object, keywords: object) -> Answer:
        """The same with trees."""
        if self._dead is not None:
            return self._dead
        token = secrets.token_hex(16)
        try:
            sent = write_frame(self._watch, self._request, write_tree([token, arguments, keywords]))
            frame = read_frame(self._watch, self._reply, self._sandbox.limits.output_bytes) if sent else None
            if frame is None:
                return self._die(self._end())
            return self._read(token, frame)
        except Stopped as stopped:
            return self._die(Answer(None, f"over the limit: {stopped.cause}", stopped.cause))

    def close(self) -> None:
        """End its process. Safe to call twice."""
        if self._refused is not None:
            return
        self._stack.close()
        self._refused = "closed"
        if self._dead is None:
            try:
                self._end()
            except Stopped:
                self._sandbox.close()
        self._dead = Answer(None, "closed", "refused")

    def _read(self, token: str, frame: bytes) -> Answer:
        try:
            tree = read_tree(frame)
        except NotAValue as error:
            return self._die(Answer(None, f"the reply {error}"))
        if not isinstance(tree, list) or len(tree) != 3 or tree[0] != token:
            return self._die(Answer(None, "the reply does not belong to the call"))
        if tree[1] == "value":
            return Answer(tree[2])
        error = tree[2] if isinstance(tree[2], str) else "unknown"
        cause: Cause = "memory" if error == "MemoryError" else "ok"
        return Answer(None, error[:300], cause)

    def _end(self) -> Answer:
        """Wait for the end of the process."""
        self._watch.deadline = min(self._watch.deadline, time.monotonic() + _GOODBYE_SECONDS)
        while not self._watch.ended:
            self._watch.wait([], [])
        status, cause = outcome(self._watch, "ok")
        if self._watch.gone:
            self._sandbox.close()
        return Answer(None, f"the process ended during the call (exit status {status})", cause)

    def _die(self, answer: Answer) -> Answer:
        if not self._watch.ended:
            self._sandbox.close()
        self._dead = answer
        return answer
