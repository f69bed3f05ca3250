"""Training steps out of file names."""

from __future__ import annotations

import re
from pathlib import Path

NUMBER = re.compile(r"[0-9]{1,12}")


def step_in_name(path: Path) -> int | None:
    """The last number in a file's name (000010 is 10), None where there is none."""
    found = NUMBER.findall(path.stem)
    return int(found[-1]) if found else None
