"""Measures, every few iterations, whether reasoning still depends on the prompt, and sounds alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from ragen2.diagnostics.cross_score import Progress, Scorer, cross_score
from ragen2.diagnostics.mutual_information import mi_resamples, mutual_information, weighted_mean
from ragen2.diagnostics.online_verdict import Alarm, OnlineVerdict
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.diagnostics.views import View, first_turn_view, probe_view, trajectory_view
from ragen2.diagnostics.zscores import RunningZScores
from ragen2.errors import ConfigError, NotMeasurable
from ragen2.trajectory import RolloutBatch

ViewName = Literal["first_turn", "trajectory", "probe"]


@dataclass(frozen=True)
class MonitorConfig:
    """What is measured, how often, and what an alarm does."""

    every: int = 5
    """Iterations between measurements; the first iteration is always measured. 0 switches mutual information off."""
    views: tuple[ViewName, ...] = ("first_turn", "trajectory", "probe")
    """Views of mutual information."""
    per_prompt: int = 16
    """Most reasonings a prompt in the first-turn view."""
    probe_prompts: int = 64
    """Distinct held-out prompts of the probe."""
    probe_samples: int = 1
    """Reasonings sampled for each of them."""
    ema_alpha: float = 0.9
    """Weight of the past in the running deviation of the z-scores."""
    zscore_floor: float = 0.05
    """A smaller deviation of the marginals counts as this one."""
    zscore_min_samples: int = 8
    """No running z-score from fewer reasonings."""
    interval_level: float = 0.95
    """Level of the bootstrap interval of mutual information."""
    resamples: int = 1000
    """Bootstrap draws; 0 leaves the interval out."""
    on_alarm: Literal["warn", "checkpoint", "stop"] = "warn"
    """What the trainer does when an alarm sounds: say so, save a checkpoint as well, or end the run as well."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.views) - set(get_args(ViewName)))
        if unknown:
            raise ConfigError(f"monitor.views has {unknown}; allowed are {', '.join(get_args(ViewName))}")
        if self.on_alarm not in ("warn", "checkpoint", "stop"):
            raise ConfigError(f"monitor.on_alarm is {self.on_alarm!r}; allowed are warn, checkpoint, stop")
        if min(self.every, self.resamples) < 0 or min(self.per_prompt, self.probe_samples) < 1 or self.probe_prompts < 2:
            raise ConfigError(
                "monitor: every and resamples must be 0 or more, per_prompt and probe_samples at least 1, probe_prompts 2"
            )
        if not (0 <= self.ema_alpha < 1 and 0 < self.interval_level < 1 and self.zscore_floor > 0):
            raise ConfigError("monitor: ema_alpha must be in [0, 1), interval_level in (0, 1), zscore_floor above 0")


@dataclass(frozen=True)
class _Measured:
    """Figures of a view: means over its slices weighted by reasonings, and bootstrap draws of `mi_sequence` combined alike."""

    figures: dict[str, float]
    draws_B: np.ndarray = field(default_factory=lambda: np.empty(0))


class Monitor:
    """Holds the running z-scores and the alarm counters of a run; everything else is computed from the batch given."""

    def __init__(self, config: MonitorConfig | None = None, verdict: VerdictConfig | None = None) -> None:
        self.config = config or MonitorConfig()
        self._zscores = RunningZScores(self.config.ema_alpha, self.config.zscore_floor, self.config.zscore_min_samples)
        self._online = OnlineVerdict(verdict)

    def due(self, iteration: int) -> bool:
        """Whether mutual information is measured at this iteration (counted from 1)."""
        return self.config.every > 0 and (iteration <= 1 or iteration % self.config.every == 0)

    def measure(
        self,
        batch: RolloutBatch,
        engine: Scorer,
        rng: np.random.Generator,
        probes: Sequence[RolloutBatch] = (),
        progress: Progress | None = None,
    ) -> dict[str, float | str]:
        """`collapse/<view>/<figure>` for every configured view.

        Beside the keys of `mutual_information` there are `mi_ratio` (MI / ceiling), `mi_low` and `mi_high` (bootstrap interval),
        `mi_zscore_ema_*`, `turns`, `dropped_turns`, `dropped/<parse status>` and `empty_reasonings`. A view that could not be
        computed has `skipped`, the reason in words. Reads are from `batch`, for the probe from `probes` (rollouts of the fixed
        held-out prompts, one batch an environment). `rng` gives one seed a view, whichever views are on, so that switching one
        off changes no other.
        """
        metrics: dict[str, float | str] = {}
        streams = _streams(rng)
        for name in self.config.views:
            where = f"collapse/{name}"
            try:
                view = self._view(name, batch, probes, streams[name])
                metrics |= {f"{where}/{key}": value for key, value in _counts(view).items()}
                measured = self._score(view, engine, streams[name], progress)
            except NotMeasurable as error:
                metrics[f"{where}/skipped"] = error.reason
                continue
            figures = measured.figures | self._derived(name, measured)
            metrics |= {f"{where}/{key}": float(value) for key, value in figures.items() if not math.isnan(value)}
            if math.isnan(measured.figures["mi_token"]):
                metrics[f"{where}/token_skipped"] = "every reasoning is empty"
        return metrics

    def observe(self, iteration: int, metrics: Mapping[str, Any]) -> list[Alarm]:
        """Feed all metrics of an iteration to the alarms; those that went off. What to do then is `config.on_alarm`."""
        return self._online.update(iteration, metrics)

    def state_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"zscores": self._zscores.state_dict(), "online": self._online.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._zscores.load_state_dict(state["zscores"])
        self._online.load_state_dict(state["online"])

    def _view(self, name: ViewName, batch: RolloutBatch, probes: Sequence[RolloutBatch], rng: np.random.Generator) -> View:
        if name == "first_turn":
            return first_turn_view(batch, rng, self.config.per_prompt)
        if name == "trajectory":
            return trajectory_view(batch, rng)
        if not probes:
            raise NotMeasurable("no probe rollouts were given")
        return probe_view(_together(probes), rng)

    def _score(self, view: View, engine: Scorer, rng: np.random.Generator, progress: Progress | None) -> _Measured:
        figures: list[dict[str, float]] = []
        draws: list[np.ndarray] = []
        reasons = list(view.skipped)
        for part in view.slices:
            where = f"{part.environment} turn {part.turn}"
            if len(part.contexts) < 2 or not part.reasonings:
                reasons.append(f"{where}: {len(part.contexts)} distinct contexts and {len(part.reasonings)} reasonings")
                continue
            sums_SN = cross_score(engine, part.contexts, part.reasonings, progress)
            try:
                figures.append(mutual_information(sums_SN, part.lengths_S, part.source_S))
            except NotMeasurable as error:
                raise NotMeasurable(f"{where}: {error.reason}") from error
            if self.config.resamples:
                draws.append(mi_resamples(sums_SN, part.source_S, rng=rng, resamples=self.config.resamples))
        if not figures:
            raise NotMeasurable("; ".join(reasons) or "no turn has a reasoning")
        if not draws:
            return _Measured(weighted_mean(figures))
        weights = np.array([item["num_samples"] for item in figures], dtype=np.float64)
        return _Measured(weighted_mean(figures), np.average(np.stack(draws), axis=0, weights=weights))

    def _derived(self, name: str, measured: _Measured) -> dict[str, float]:
        figures = measured.figures
        derived = {"mi_ratio": figures["mi_sequence"] / figures["mi_upper_bound"], **self._zscores.update(name, figures)}
        if len(measured.draws_B):
            tail = (1 - self.config.interval_level) / 2
            low, high = np.quantile(measured.draws_B, [tail, 1 - tail])
            derived |= {"mi_low": float(low), "mi_high": float(high)}
        return derived


def _together(batches: Sequence[RolloutBatch]) -> RolloutBatch:
    trajectories = tuple(trajectory for batch in batches for trajectory in batch.trajectories)
    return RolloutBatch(trajectories, tuple(range(len(trajectories))), batches[0].policy_version)


def _streams(rng: np.random.Generator) -> dict[str, np.random.Generator]:
    # Seeds drawn from the stream, not `rng.spawn`: how often a generator spawned is not part of its saved state.
    names = get_args(ViewName)
    return {
        name: np.random.default_rng(int(seed)) for name, seed in zip(names, rng.integers(2**62, size=len(names)), strict=True)
    }


def _counts(view: View) -> dict[str, float]:
    counts = {
        "turns": float(view.turns),
        "dropped_turns": float(sum(view.dropped.values())),
        "empty_reasonings": float(view.empty),
        "skipped_slices": float(len(view.skipped)),
    }
    return counts | {f"dropped/{status}": float(count) for status, count in sorted(view.dropped.items())}
