"""Diagnoses as JSON: what `ragen2 diagnose --json` prints. The schema is docs/diagnosis.schema.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ragen2.diagnostics.examine import Examination, Unreadable
from ragen2.diagnostics.online_verdict import Alarm

SCHEMA = "ragen2.diagnosis/1"
"""Keys may be added within a version; taking one away or changing its meaning makes a new one."""
ALARM_SCHEMA = "ragen2.alarm/1"


def diagnosis_json(run: Examination) -> dict[str, Any]:
    """One run as plain data. What is not a finite number is null: JSON has neither NaN nor infinity."""
    if isinstance(run, Unreadable):
        error = {"kind": run.kind, "message": run.message}
        return {"schema": SCHEMA, "path": run.path, "name": run.name, "error": error}
    first, last = run.step_range or (None, None)
    found = {
        "schema": SCHEMA,
        "path": run.path,
        "name": run.name,
        **{key: value for key, value in asdict(run.diagnosis).items() if key not in ("path", "signals")},
        "first_step": first,
        "last_step": last,
        "signals": [asdict(crossing) | {"role": crossing.role} for crossing in run.diagnosis.signals],
        "figures": asdict(run.figures),
        "unmapped": run.unmapped,
    }
    return {key: plain(value) for key, value in found.items()}


def alarm_json(alarm: Alarm) -> dict[str, Any]:
    """An alarm of `--follow` as plain data."""
    return {"schema": ALARM_SCHEMA, **{key: plain(value) for key, value in asdict(alarm).items()}}


def plain(value: Any) -> Any:
    """`value` with tuples as lists and non-finite numbers as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
