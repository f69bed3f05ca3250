"""One program, one sandbox, one result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ragen2.sandbox.limits import SandboxLimits
from ragen2.sandbox.result import SandboxResult
from ragen2.sandbox.session import Sandbox


def run_python(
    code: str,
    stdin: bytes | str = b"",
    limits: SandboxLimits | None = None,
    *,
    sandbox: str = "bubblewrap",
    paths: Sequence[Path | str] = (),
) -> SandboxResult:
    """Run a Python program that nobody trusts and tell what it printed and how it ended.

    `limits` default to `SandboxLimits()`. `paths` are files or folders it may read besides the standard library. Raises
    SandboxUnavailable where bubblewrap is missing or forbidden; `sandbox="unsafe"` runs it without protection and warns.
    """
    with Sandbox(limits, mode=sandbox, paths=paths) as session:
        return session.run(code, stdin)


def check_sandbox() -> None:
    """Return where the sandbox works on this machine. Raises SandboxUnavailable, saying what to do, where it does not."""
    with Sandbox() as session:
        session.start().wait_ready()
