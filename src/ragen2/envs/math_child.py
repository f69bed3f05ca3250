"""The child process that asks math-verify whether two formulas are equal: one JSON line in, one out. Run by `math_checker`.

It limits itself: memory, no files, and processor time per question, beyond which the system ends it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import TextIO

MEMORY = 2 << 30


def main() -> None:
    """Answer questions until standard input ends. The first line written says that the child is ready."""
    seconds = float(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    from math_verify import parse, verify
    from math_verify.parser import LatexExtractionConfig
    from sympy import Basic, MatrixBase

    def formula(text: str) -> Basic | MatrixBase | None:
        found = parse(f"${text}$", extraction_config=[LatexExtractionConfig()], parsing_timeout=0)
        return next((part for part in found if isinstance(part, (Basic, MatrixBase))), None)

    def equal(given: str, wanted: str) -> bool:
        ours, theirs = formula(wanted), formula(given)
        return ours is not None and theirs is not None and bool(verify([ours], [theirs], timeout_seconds=None))

    equal("x", "x+1")
    for limit, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (most, most))
    _reply(replies, {"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            answer = {"equal": equal(question["given"], question["wanted"])}
        except Exception as error:  # sympy raises anything on odd formulas; a formula it cannot handle equals nothing
            answer = {"equal": False, "error": type(error).__name__}
        signal.setitimer(signal.ITIMER_PROF, 0)
        _reply(replies, answer)


def _reply(replies: TextIO, answer: Mapping[str, object]) -> None:
    replies.write(json.dumps(answer) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
