"""The report on levels: distinct, repeated, shared, and how long the demonstrator's solutions are."""

from __future__ import annotations

import pytest
from fakes import CountingEnv
from typer.testing import CliRunner

import ragen2
from ragen2.cli import app
from ragen2.envs.base import Observation
from ragen2.envs.level_report import level_report
from ragen2.errors import ConfigError


class Repeating(CountingEnv):
    """Levels 0, 1, 2, 0, 1, 2 … in the same order in every split."""

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        self.goal = level_seed % 3
        return super().reset(level_seed, noise_seed)


def test_repeats_and_shared_levels_are_counted() -> None:
    report = level_report(Repeating, {"train": 10, "test": 2})
    assert [(item.split, item.seeds, item.distinct, item.repeats) for item in report.splits] == [
        ("train", 10, 3, 7),
        ("test", 2, 2, 0),
    ]
    assert report.shared == {("train", "test"): 2}
    assert [item.unsolved for item in report.splits] == [None, None]
    assert report.splits[0].actions == {}


@pytest.mark.parametrize("name", ["frozen-lake", "sokoban", "countdown"])
def test_splits_share_nothing_and_solutions_are_found(name: str) -> None:
    options = {"slip": 0.0} if name == "frozen-lake" else {}
    told: list[tuple[int, int]] = []
    report = level_report(
        lambda split: ragen2.make(name, split, **options),
        {"train": 60, "validation": 20, "test": 20},
        lambda done, total: told.append((done, total)),
    )
    assert set(report.shared.values()) == {0}
    assert told[-1] == (100, 100)
    for split in report.splits:
        assert split.unsolved == 0
        assert sum(split.actions.values()) == split.distinct
        assert min(split.actions) >= 1


@pytest.mark.parametrize("ranges", [{"train": 0}, {"trian": 4}, {}])
def test_bad_ranges_are_refused(ranges: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="ranges"):
        level_report(CountingEnv, ranges)


def test_the_command() -> None:
    result = CliRunner().invoke(app, ["levels", "frozen-lake", "slip=0", "--train", "30", "--held-out", "10"])
    assert result.exit_code == 0, result.output
    assert "train and validation share 0 levels" in result.output
