"""Logs of runs with a known end, and the console script in this process, without any model."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ragen2.cli import main

STEPS = 100


def signals_of(kind: str, step: int, begin: int = 40, steps: int = STEPS) -> dict[str, float]:
    """Metrics of a step of a run that ends healthy, or in template, format or no collapse but never learned."""
    gone = min(1.0, max(0.0, (step - begin) / 20))
    learned = 0.2 if kind == "never" else 0.2 + 0.5 * min(1.0, step / 60)
    broken = gone if kind == "format" else 0.0
    metrics = {
        "train/success": learned * (1 - broken) + 0.01 * math.sin(step),
        "collapse/valid_think_rate": 0.98 * (1 - 0.95 * broken),
        "collapse/valid_action_rate": 0.96 * (1 - 0.95 * broken),
        "policy/entropy": 0.6 - 0.002 * step,
        "collapse/reward_spread": 0.4 - 0.001 * step,
        "train/response_length": 60 + 100 * broken,
    }
    if step % 5 == 0:
        template = gone if kind == "template" else 0.0
        metrics |= {
            "collapse/first_turn/mi_sequence": (0.9 - 0.1 * step / steps) * (1 - template) * math.log(8),
            "collapse/first_turn/mi_upper_bound": math.log(8),
            "collapse/first_turn/conditional_entropy_token": 1.2 - 0.004 * step,
        }
    if step % 10 == 0:
        metrics |= {"validation/maze/success": learned * (1 - broken), "validation/maze/episodes": 512}
    return metrics


def record(step: int, metrics: Mapping[str, Any]) -> str:
    return json.dumps({"step": step, **metrics}) + "\n"


def write_run(folder: Path, kind: str, steps: int = STEPS, **changes: Any) -> Path:
    """A run directory with nothing but metrics.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [record(step, signals_of(kind, step, **changes)) for step in range(steps + 1)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


CONSOLE_NAMES = {
    "train/success": "train/Maze/success",
    "validation/maze/success": "val-env/Maze/success",
    "policy/entropy": "actor/entropy",
    "collapse/first_turn/mi_sequence": "collapse_first_turn_all/mi_seq_estimate",
    "collapse/first_turn/mi_upper_bound": "collapse_first_turn_all/mi_upper_bound",
    "collapse/valid_think_rate": "collapse/valid_think_rate",
}
"""Our name -> one that stands in console logs of verl."""


def console_line(step: int, metrics: Mapping[str, float]) -> str:
    """A record as the console log of a verl process has it, colours and another process' text around it."""
    pairs = " - ".join(f"{CONSOLE_NAMES[name]}:np.float64({value})" for name, value in metrics.items() if name in CONSOLE_NAMES)
    return f"\x1b[36m(TaskRunner pid=7)\x1b[0m step:{step} - {pairs}\n"


@dataclass(frozen=True)
class Finished:
    """What a command left."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Runs the console script in this process."""

    def run(*arguments: str | Path) -> Finished:
        monkeypatch.setattr(sys, "argv", ["ragen2", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = 0 if end.code is None else int(end.code)
        shown = capsys.readouterr()
        assert "Traceback" not in shown.out + shown.err
        return Finished(code, shown.out, shown.err)

    return run
