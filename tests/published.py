"""The labelled runs of other people that tests read, and what their logs say."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from ragen2.diagnostics import Alarm, OnlineVerdict, VerdictConfig
from ragen2.diagnostics.readers import RunSeries, read_log
from ragen2.diagnostics.series import Points, Series

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
RUNS = DATA / "reproduction-runs"
needs_data = pytest.mark.skipif(not RUNS.exists(), reason="shared/data is not beside this checkout")
LABELS: dict[str, dict] = json.loads((RUNS / "labels.json").read_text()) if RUNS.exists() else {}


@cache
def run(name: str, file: str = "train.log") -> RunSeries:
    """A run, read once."""
    return read_log(RUNS / name / file)


def alarms(series: Mapping[str, Points], config: VerdictConfig | None = None) -> list[Alarm]:
    """What the on-line verdict says when it is fed a run step by step."""
    online = OnlineVerdict(config)
    tables = {name: dict(points) for name, points in series.items()}
    steps = sorted({step for points in series.values() for step, _ in points})
    return [alarm for step in steps for alarm in online.update(step, {n: t[step] for n, t in tables.items() if step in t})]


def halved_for_good(series: Mapping[str, Points]) -> int | None:
    """The first validation after which success stays below half of its highest reading; None where it does not."""
    name = next(name for name in series if name.startswith("validation/") and name.endswith("/success"))
    success = Series.of(series[name])
    low_K = success.values_K < success.values_K.max() / 2
    if not low_K[-1]:
        return None
    first = len(low_K) - 1
    while first > 0 and low_K[first - 1]:
        first -= 1
    return int(success.steps_K[first])
