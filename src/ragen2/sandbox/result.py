"""What came of running code in the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal["ok", "time", "memory", "output", "processes", "killed", "refused"]
"""How a run ended.

ok: it ended by itself, well or with an error (see the exit status) · time, memory, output, processes: it went over that limit ·
killed: it died of a signal, or ended the process that ran it · refused: the text is no program (too long, a null byte, a lone
surrogate), nothing was run.
"""


@dataclass(frozen=True)
class SandboxResult:
    """Standard output and error (bytes, cut at the limit), exit status, cause of the end, seconds by the clock.

    `exit_status` is None where the program did not end by itself.
    """

    stdout: bytes
    stderr: bytes
    exit_status: int | None
    cause: Cause
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself with exit status 0."""
        return self.cause == "ok" and self.exit_status == 0
