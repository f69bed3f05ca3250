"""What code in the sandbox may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ragen2.errors import ConfigError

MIB = 1 << 20

_ALLOWED = {
    "cpu_seconds": (1, 3600),
    "wall_seconds": (0.1, 3600),
    "memory_bytes": (64 * MIB, 1 << 40),
    "output_bytes": (1, 1 << 30),
    "file_bytes": (4096, 1 << 34),
    "processes": (1, 4096),
    "open_files": (16, 4096),
    "code_bytes": (1, 64 * MIB),
}


@dataclass(frozen=True)
class SandboxLimits:
    """Limits of one run. Raises ConfigError for a value outside its range.

    Processor time decides in the usual case; the wall clock is looser, so that a busy machine does not fail good code.
    """

    cpu_seconds: int = 4
    """Processor time of each process."""
    wall_seconds: float = 8.0
    """Time by the clock, sleeping included."""
    memory_bytes: int = 512 * MIB
    """Address space of each process, and the resident memory of all together."""
    output_bytes: int = MIB
    """Bytes of standard output, and again of standard error, and of each value a function gives."""
    file_bytes: int = 16 * MIB
    """Size of /tmp, the only place that can be written, and of each file in it."""
    processes: int = 16
    """Processes and threads at once."""
    open_files: int = 64
    """Open files of each process."""
    code_bytes: int = 256 * 1024
    """Length of the program in UTF-8; a longer one is refused."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            low, high = _ALLOWED[field.name]
            whole = isinstance(value, int) or (field.name == "wall_seconds" and isinstance(value, float))
            if isinstance(value, bool) or not whole or not low <= value <= high:
                kind = "a number" if field.name == "wall_seconds" else "a whole number"
                raise ConfigError(f"sandbox limit {field.name} is {value!r}; give {kind} from {low} to {high}")
