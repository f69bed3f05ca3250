"""`--map OURS=THEIRS`: which column of a home-made log stands for which of our metrics."""

from __future__ import annotations

from collections.abc import Iterable

from ragen2.diagnostics.readers.metric_names import resolve
from ragen2.errors import ConfigError


def parse_mapping(texts: Iterable[str]) -> dict[str, str]:
    """Full metric name -> column, out of OURS=THEIRS texts. OURS is a full or a short name (`valid_think`), or `step`;
    everything after the first equals sign is the column.

    Raises ConfigError for a text without both sides or a metric named twice, UnknownName for a metric that does not exist.
    """
    mapping: dict[str, str] = {}
    for text in texts:
        ours, equals, theirs = text.partition("=")
        if not (equals and ours.strip() and theirs.strip()):
            raise ConfigError(f"--map {text!r} is not OURS=THEIRS. Write for example --map valid_think=my_column.")
        ((name, column),) = resolve({ours: theirs}).items()
        if name in mapping:
            raise ConfigError(f"--map names {name} twice: {mapping[name]!r} and {column!r}. Keep one.")
        mapping[name] = column
    return mapping
