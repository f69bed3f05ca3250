"""The verdicts on the labelled runs do not hang on fine thresholds: each is moved by a quarter, and all at once."""

from dataclasses import fields

import numpy as np
import pytest
from published import LABELS, alarms, needs_data, run

from ragen2.diagnostics import VerdictConfig, judge
from ragen2.diagnostics.series import pick_signals
from ragen2.diagnostics.verdict import _decide

pytestmark = needs_data
MOVED = [(f"{name}={getattr(config, name):.4g}", config) for name, config in VerdictConfig().moved()]


def differences(name: str, config: VerdictConfig) -> list[str]:
    """In what a run judged with other thresholds differs from its label."""
    label = LABELS[name]
    decision = _decide(pick_signals(run(name).series, config.min_prompts), config)
    found = [] if decision.name == label["verdict"] else [f"verdict {decision.name}"]
    found += [f"not also {item}" for item in label.get("also", []) if item not in decision.also]
    if "onset_step" in label:
        low, high = label["onset_step"]
        onset = decision.chosen.onset_step if decision.chosen else None
        found += [] if onset is not None and low <= onset <= high else [f"onset {onset}"]
    return found


def test_every_threshold_is_moved_both_ways() -> None:
    assert {text.partition("=")[0] for text, _ in MOVED} == {item.name for item in fields(VerdictConfig)}
    assert len(MOVED) == 2 * len(fields(VerdictConfig))


@pytest.mark.parametrize(("text", "config"), MOVED, ids=[text for text, _ in MOVED])
def test_verdicts_survive_one_threshold_moved_by_a_quarter(text, config) -> None:
    wrong = {name: found for name in LABELS if (found := differences(name, config))}
    print(f"{text}: {wrong or 'all eight as labelled'}")
    assert not wrong


@pytest.mark.parametrize(("text", "config"), MOVED, ids=[text for text, _ in MOVED])
def test_alarms_survive_one_threshold_moved_by_a_quarter(text, config) -> None:
    for name, label in LABELS.items():
        assert bool(alarms(run(name).series, config)) == (label["verdict"] != "healthy"), name


def test_verdicts_survive_all_thresholds_moved_at_once() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        values = {}
        for item in fields(VerdictConfig):
            value = getattr(VerdictConfig(), item.name)
            moved = value * rng.uniform(0.75, 1.25)
            values[item.name] = (
                max(2, round(moved)) if isinstance(value, int) else min(moved, (1 + value) / 2) if value < 1 else moved
            )
        config = VerdictConfig(**values)
        for name, label in LABELS.items():
            assert _decide(pick_signals(run(name).series, config.min_prompts), config).name == label["verdict"], (name, values)


@pytest.mark.parametrize("every", [2, 3])
def test_verdicts_survive_a_log_of_every_second_or_third_reading(every) -> None:
    for name, label in LABELS.items():
        thin = {key: points[::every] if len(points) > 60 else points for key, points in run(name).series.items()}
        assert judge(thin).verdict == label["verdict"], name
