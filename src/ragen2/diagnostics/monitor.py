"""Measures, every few iterations, whether reasoning still depends on the prompt, and sounds alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from ragen2.diagnostics.cross_score import Progress, Scorer
from ragen2.diagnostics.online_verdict import Alarm, OnlineVerdict
from ragen2.diagnostics.slice_measures import Resampling, SliceMeasure, measure_view, together
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.diagnostics.views import View, first_turn_view, mixed_view, probe_view, trajectory_view
from ragen2.diagnostics.zscores import RunningZScores
from ragen2.errors import ConfigError, NotMeasurable
from ragen2.trajectory import RolloutBatch

ViewName = Literal["first_turn", "trajectory", "probe", "mixed"]

TURN_FIGURES = ("mi_sequence", "mi_upper_bound", "mi_low", "mi_high", "conditional_entropy_sequence")
"""Figures given for each turn index of the trajectory view."""


@dataclass(frozen=True)
class MonitorConfig:
    """What is measured, how often, and what an alarm does."""

    every: int = 5
    """Iterations between measurements; the first iteration is always measured. 0 switches mutual information off."""
    views: tuple[ViewName, ...] = ("first_turn", "trajectory", "probe")
    """Views of mutual information. `mixed` lets contexts of all depths compete, as the public code does: for comparison only."""
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
    permutations: int = 999
    """Permutations for the p-value of "the reasoning does not depend on the prompt"; 0 leaves it out."""
    swap: bool = False
    """Also put other reasonings before the actions, and see how far these move (`collapse/swap/…`)."""
    on_alarm: Literal["warn", "checkpoint", "stop"] = "warn"
    """What the trainer does when an alarm sounds: say so, save a checkpoint as well, or end the run as well."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.views) - set(get_args(ViewName)))
        if unknown:
            raise ConfigError(f"monitor.views has {unknown}; allowed are {', '.join(get_args(ViewName))}")
        if self.on_alarm not in ("warn", "checkpoint", "stop"):
            raise ConfigError(f"monitor.on_alarm is {self.on_alarm!r}; allowed are warn, checkpoint, stop")
        if (
            min(self.every, self.resamples, self.permutations) < 0
            or min(self.per_prompt, self.probe_samples) < 1
            or self.probe_prompts < 2
        ):
            raise ConfigError(
                "monitor: every, resamples and permutations must be 0 or more, per_prompt and probe_samples at least 1, "
                "probe_prompts 2"
            )
        if not (0 <= self.ema_alpha < 1 and 0 < self.interval_level < 1 and self.zscore_floor > 0):
            raise ConfigError("monitor: ema_alpha must be in [0, 1), interval_level in (0, 1), zscore_floor above 0")


class Monitor:
    """Holds the running z-scores and the alarm counters of a run; everything else is computed from the batch given."""

    def __init__(self, config: MonitorConfig | None = None, verdict: VerdictConfig | None = None) -> None:
        self.config = config or MonitorConfig()
        self._zscores = RunningZScores(self.config.ema_alpha, self.config.zscore_floor, self.config.zscore_min_samples)
        self._online = OnlineVerdict(verdict)
        self._resampling = Resampling(self.config.interval_level, self.config.resamples, self.config.permutations)

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
        `mi_p_value` (permutation test of no dependence), `mi_zscore_ema_*`, `turns`, `dropped_turns`, `dropped/<parse status>`
        and `empty_reasonings`; in the trajectory view the curve along turn indices as `<environment>/turn_<t>/…`, in the mixed
        view `leaking_pairs`. `interval_skipped` and `p_value_skipped` say in words why these are missing from a view, `skipped`
        why the whole view is. Reads are from `batch`, for the probe from `probes` (rollouts of the fixed
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
                measures, left_out = measure_view(view, engine, streams[name], self._resampling, progress)
            except NotMeasurable as error:
                metrics[f"{where}/skipped"] = error.reason
                continue
            figures, reasons = together(measures, streams[name], self._resampling)
            metrics[f"{where}/skipped_slices"] = float(len(left_out))
            figures |= self._zscores.update(name, figures)
            if name == "trajectory":
                figures |= self._curve(measures, streams[name])
            metrics |= {f"{where}/{key}": float(value) for key, value in figures.items() if not math.isnan(value)}
            metrics |= {f"{where}/{key}": reason for key, reason in reasons.items()}
            if math.isnan(figures["mi_token"]):
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
        if name == "mixed":
            return mixed_view(batch, rng)
        if not probes:
            raise NotMeasurable("no probe rollouts were given")
        return probe_view(_together(probes), rng)

    def _curve(self, measures: Sequence[SliceMeasure], rng: np.random.Generator) -> dict[str, float]:
        curve: dict[str, float] = {}
        for measure in measures:
            figures, _ = together([measure], rng, replace(self._resampling, permutations=0))
            where = f"{measure.part.environment}/turn_{measure.part.turn}"
            curve |= {f"{where}/{key}": figures[key] for key in TURN_FIGURES if key in figures}
        return curve


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
    if view.leaking is not None:
        counts["leaking_pairs"] = float(view.leaking)
    return counts | {f"dropped/{status}": float(count) for status, count in sorted(view.dropped.items())}
