"""Code run in fresh processes that hash strings differently."""

from __future__ import annotations

import os
import subprocess
import sys


def outputs_under_hash_seeds(code: str, seeds: tuple[str, ...] = ("0", "77")) -> set[str]:
    """The distinct outputs of a program under each PYTHONHASHSEED: one where it does not depend on how strings are hashed."""
    return {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in seeds
    }
