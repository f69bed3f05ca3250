"""From rollout files to the series of a run, with mutual information where a model can score it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragen2.diagnostics.cross_score import Progress, Scorer
from ragen2.diagnostics.rollout_files.read import KINDS, read_rollouts, rollout_kind
from ragen2.diagnostics.rollout_files.reservoir import Reservoir
from ragen2.diagnostics.rollout_files.sample import ReadReport, Sample
from ragen2.diagnostics.rollout_files.scoring import first_turn_of, trajectory_of, view_figures
from ragen2.diagnostics.rollout_files.step_statistics import Mean, StepStatistics
from ragen2.diagnostics.rollout_files.token_ids import TokenIds
from ragen2.diagnostics.views import MIN_TRAJECTORY_PROMPTS, View
from ragen2.errors import ConfigError, NotMeasurable, StorageError

if TYPE_CHECKING:
    from ragen2.diagnostics.readers.run_series import RunSeries

OPEN_STEPS = 4
"""Steps whose turns may be mixed in a file and are still scored whole; asynchronous trainers mix a few."""


MOST_HELD = 300_000
"""Groups and wordings kept of all steps together; beyond it the figures of the lowest steps are settled."""


def measure_rollouts(
    path: str | Path,
    scorer: Scorer | None = None,
    tokenizer: Any = None,
    *,
    rng: np.random.Generator,
    per_prompt: int = 16,
    prompts: int = 64,
    progress: Progress | None = None,
) -> RunSeries:
    """Series in our metric names out of a rollout file or a folder of them, read once in bounded memory.

    Without `scorer`: the valid-think rate, lengths, success, returns, their spread within groups, and how many reasonings are
    alike word for word (`text/…`: a hint at template collapse, not mutual information). With it: `collapse/first_turn/…` and
    `collapse/trajectory/…` from at most `prompts` prompts a step and `per_prompt` reasonings each, drawn with `rng`. Token ids
    in the file are scored as they are; texts are tokenised with `tokenizer` (default: the scorer's own). `progress` is called
    for each view with (contexts done, contexts in all).

    `notes` say what was assumed and left out, and why a view is missing.

    Raises:
        StorageError: not a rollout file, several kinds in a folder, nothing that reads.
        MissingDependency: a parquet file without pyarrow.
        TokenMismatch: token ids that the scorer's vocabulary does not have or its tokenizer did not make.
        ConfigError: `prompts` below 2 or `per_prompt` below 1.
    """
    from ragen2.diagnostics.readers.run_series import RunSeries

    if prompts < 2 or per_prompt < 1:
        raise ConfigError(f"prompts is {prompts} and per_prompt {per_prompt}; they must be at least 2 and 1")
    report = ReadReport()
    scoring = None if scorer is None else _Scoring(scorer, tokenizer, report, rng, (prompts, per_prompt), progress)
    steps: dict[int, StepStatistics] = {}
    validation: dict[tuple[int, str], Mean] = {}
    read = 0
    reads_with = None if scoring is None else scoring.ids.tokenizer
    for sample in read_rollouts(path, tokenizer=reads_with, report=report):
        if sample.episode.split == "validation":
            if sample.turn == 0 and sample.success is not None:
                validation.setdefault((sample.step, sample.environment), Mean()).add(float(sample.success))
            continue
        steps.setdefault(sample.step, StepStatistics()).add(sample)
        read += 1
        if read % 4096 == 0:
            _bound(steps, sample.step)
        if scoring is not None:
            scoring.add(sample)
    if not steps and not validation:
        raise StorageError(f"{path} holds no turn of a policy. {' '.join(report.notes)}".strip())
    series = _series({step: statistics.metrics() for step, statistics in steps.items()})
    for (step, environment), mean in sorted(validation.items()):
        name = f"validation/{environment}"
        series.setdefault(f"{name}/success", []).append((step, mean.total / mean.count))
        series.setdefault(f"{name}/episodes", []).append((step, float(mean.count)))
    notes = _statistics_notes(list(steps.values()), series)
    if scoring is not None:
        series |= _series(scoring.finish())
        notes += scoring.notes(series)
    kind = rollout_kind(path)
    return RunSeries(
        series=series,
        steps=len(set(steps) | {step for step, _ in validation}),
        notes=(*report.notes, *notes),
        source=KINDS[kind] if kind else "rollouts",
    )


@dataclass
class _Scoring:
    """Holds the turns of the steps that are not finished and scores each step when it is."""

    scorer: Scorer
    tokenizer: Any
    report: ReadReport
    rng: np.random.Generator
    size: tuple[int, int]
    progress: Progress | None
    figures: dict[int, dict[str, float]] = field(default_factory=dict)
    reasons: dict[str, list[int]] = field(default_factory=dict)
    open: dict[int, Reservoir] = field(default_factory=dict)
    multi_turn: bool = False

    def __post_init__(self) -> None:
        self.ids = TokenIds(self.scorer, self.tokenizer, self.report)
        self.salt = self.rng.bytes(16)

    def add(self, sample: Sample) -> None:
        """Offer a turn; may score the lowest open step."""
        if sample.step in self.figures:
            self.report.skip("turns that came after their step had been scored")
            return
        if sample.step not in self.open:
            if len(self.open) >= OPEN_STEPS:
                self._score(min(self.open))
            self.open[sample.step] = Reservoir(*self.size, self.salt, self.rng)
        self.multi_turn |= sample.turn > 0
        self.ids.check(sample)
        self.open[sample.step].add(sample)

    def finish(self) -> dict[int, dict[str, float]]:
        """Figures of every step."""
        for step in sorted(self.open):
            self._score(step)
        return self.figures

    def notes(self, series: dict[str, list[tuple[int, float]]]) -> list[str]:
        """Why a view is missing, and how far the figures carry."""
        notes = [f"not measured at {_steps(steps)}: {reason}" for reason, steps in self.reasons.items()]
        counts = [int(value) for _, value in series.get("collapse/first_turn/num_prompts", [])]
        if counts:
            notes.append(
                "mutual information is that of the scorer, one fixed model: it shows what the reasoning carries of the prompt as "
                "that model reads it, best the policy itself or its base model"
            )
            if min(counts) < MIN_TRAJECTORY_PROMPTS:
                notes.append(
                    f"as few as {min(counts)} distinct prompts compete: the ceiling is log {min(counts)}, too low to read much"
                )
            if not self.multi_turn:
                notes.append(
                    "every trajectory has one turn: the trajectory view would repeat the first-turn view and is left out"
                )
        return notes

    def _score(self, step: int) -> None:
        reservoir = self.open.pop(step)
        self.figures[step] = {}
        several = any(turn > 0 for _, turn in reservoir.by_turn)
        views: list[tuple[str, Callable[[Reservoir, TokenIds], View]]] = [("first_turn", first_turn_of)]
        views += [("trajectory", trajectory_of)] if several else []
        for name, view_of in views:
            try:
                figures = view_figures(view_of(reservoir, self.ids), self.scorer, self.rng, self.progress)
            except NotMeasurable as error:
                missing = "turns without a context; " if reservoir.no_context else ""
                self.reasons.setdefault(f"{name} mutual information: {missing}{error.reason}", []).append(step)
                continue
            self.figures[step] |= {f"collapse/{name}/{key}": value for key, value in figures.items()}


def _bound(steps: dict[int, StepStatistics], current: int) -> None:
    """Settle the lowest steps until no more than `MOST_HELD` entries are held."""
    held = sum(item.held for item in steps.values())
    for step in sorted(steps):
        if held <= MOST_HELD:
            return
        if step != current and steps[step].settled is None:
            held -= steps[step].held
            steps[step].settle()


def _series(by_step: dict[int, dict[str, float]]) -> dict[str, list[tuple[int, float]]]:
    series: dict[str, list[tuple[int, float]]] = {}
    for step in sorted(by_step):
        for name, value in by_step[step].items():
            if math.isfinite(value):
                series.setdefault(name, []).append((step, value))
    return series


def _statistics_notes(steps: list[StepStatistics], series: dict[str, list[tuple[int, float]]]) -> list[str]:
    """Notes on the figures that need no scorer; series that would mislead are taken out of `series`."""
    notes = []
    if steps and not any(item.tagged or item.reasonings for item in steps):
        for name in [name for name in series if name == "collapse/valid_think_rate" or name.startswith("parse/")]:
            del series[name]
        notes.append("no reply holds a think tag: there is no reasoning to read and no valid-think rate")
    if "train/response_length" not in series and steps:
        notes.append("the file does not count tokens: text/response_characters stands in for train/response_length")
    if steps and max(item.largest_group for item in steps) == 1:
        notes.append("no prompt has two trajectories in a step: the reward variance within prompts cannot be computed")
    dropped = sum(item.dropped_groups for item in steps)
    if dropped:
        notes.append(f"returns of {dropped} trajectories were left out of the reward variance: too many prompts at once")
    if any(name.startswith("text/shared") for name in series):
        notes.append(
            "text/distinct_reasonings and text/shared_reasonings compare reasonings word for word: much sharing across prompts "
            "hints at templates, little does not rule them out; only mutual information (a scorer) can tell"
        )
    return notes


def _steps(steps: list[int]) -> str:
    shown = ", ".join(str(step) for step in steps[:5])
    return f"step {shown}" if len(steps) == 1 else f"{len(steps)} steps ({shown}{', …' if len(steps) > 5 else ''})"
