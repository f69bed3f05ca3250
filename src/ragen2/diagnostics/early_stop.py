"""When to end a run before its time: the reward spread is gone, validation fails, nothing is left to train on, or all is solved.

Source: the RAGEN-2 paper (arXiv 2604.06268) and its public code, which disagree on the patience (5 and 10); ours is the code's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ragen2.diagnostics.series import VALIDATION_SUCCESS, number
from ragen2.errors import ConfigError


@dataclass(frozen=True)
class EarlyStopConfig:
    """When a run ends early. A patience of 0 switches its rule off."""

    spread_share: float = 0.1
    """The reward spread is gone at or below this share of its early mean."""
    spread_patience: int = 10
    """Iterations in a row with the spread gone."""
    baseline_iterations: int = 10
    """How many of the first iterations make the early mean; no verdict on the spread before."""
    success_floor: float = 0.01
    """Validation has failed when success is below this."""
    success_patience: int = 5
    """Failed validations in a row."""
    empty_patience: int = 5
    """Iterations in a row in which the filter kept nothing."""
    solved_success: float = 0.95
    """Success in training from which a task counts as solved once the spread is gone too."""
    solved_iterations: int = 5
    """Iterations in a row at that success."""

    def __post_init__(self) -> None:
        if not (0 < self.spread_share < 1 and 0 <= self.success_floor < 1 and 0 < self.solved_success <= 1):
            raise ConfigError(
                f"early_stop: spread_share {self.spread_share}, success_floor {self.success_floor} and solved_success "
                f"{self.solved_success} are shares: give numbers between 0 and 1"
            )
        counts = (self.spread_patience, self.success_patience, self.empty_patience, self.solved_iterations)
        if min(counts) < 0 or self.baseline_iterations < 1:
            raise ConfigError("early_stop: patience must be 0 (off) or more, baseline_iterations at least 1")


@dataclass(frozen=True)
class StopDecision:
    """Why the run ends: `reason` is one of solved, empty_batches, reward_variance_collapse, low_validation_success."""

    reason: str
    explanation: str


class EarlyStop:
    """Counts readings in a row. The first StopDecision ends the run.

    Feed it all metrics of a step with `update`, or each iteration and each validation on their own.
    """

    def __init__(self, config: EarlyStopConfig | None = None) -> None:
        self.config = config or EarlyStopConfig()
        self._early: list[float] = []
        self._flat = self._failed = self._empty = self._solved = 0

    def update(self, metrics: Mapping[str, Any]) -> StopDecision | None:
        """Judge all metrics of a step: `collapse/reward_spread`, `train/success`, `filter/empty` (or `filter/kept_groups` 0), and
        the mean of `validation/<env>/success` where this step validated."""
        validated = [
            value for name in metrics if VALIDATION_SUCCESS.fullmatch(name) and (value := number(metrics, name)) is not None
        ]
        empty = bool(metrics.get("filter/empty", number(metrics, "filter/kept_groups") == 0))
        after = self.after_iteration(number(metrics, "collapse/reward_spread"), number(metrics, "train/success"), empty)
        failed = self.after_validation(fmean(validated)) if validated else None
        return after or failed

    def after_iteration(self, reward_spread: float | None, success: float | None, empty_batch: bool) -> StopDecision | None:
        """Judge one iteration.

        Args:
            reward_spread: mean over groups of the sample deviation of task returns (`collapse/reward_spread`); None when no
                group could be measured, which counts for and against nothing.
            success: success of the iteration's valid trajectories; None when there are none.
            empty_batch: the filter kept no group, so there was no update.
        """
        settled = len(self._early) >= self.config.baseline_iterations
        gone = reward_spread is not None and self._is_gone(reward_spread)
        if reward_spread is not None and math.isfinite(reward_spread):
            if settled:
                self._flat = self._flat + 1 if gone else 0
            else:
                self._early.append(float(reward_spread))
        if success is not None:
            self._solved = self._solved + 1 if success >= self.config.solved_success else 0
        self._empty = self._empty + 1 if empty_batch else 0
        return self._solved_now(gone) or self._empty_now() or self._flat_now()

    def after_validation(self, success: float) -> StopDecision | None:
        """Judge one validation by its success over all environments."""
        config = self.config
        self._failed = self._failed + 1 if success < config.success_floor else 0
        if not config.success_patience or self._failed < config.success_patience:
            return None
        text = f"validation success was below {config.success_floor:.0%} {self._failed} times in a row"
        return StopDecision("low_validation_success", text)

    def state_dict(self) -> dict[str, Any]:
        """As plain data."""
        counts = {"flat": self._flat, "failed": self._failed, "empty": self._empty, "solved": self._solved}
        return {"early": list(self._early), **counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._early = [float(value) for value in state["early"]]
        self._flat, self._failed = int(state["flat"]), int(state["failed"])
        self._empty, self._solved = int(state["empty"]), int(state["solved"])

    def _is_gone(self, spread: float) -> bool:
        early = fmean(self._early) if self._early else 0.0
        return spread <= self.config.spread_share * early

    def _solved_now(self, gone: bool) -> StopDecision | None:
        config = self.config
        if not config.solved_iterations or self._solved < config.solved_iterations or not gone:
            return None
        text = f"success was at least {config.solved_success:.0%} for {self._solved} iterations and the reward spread is gone"
        return StopDecision("solved", text)

    def _empty_now(self) -> StopDecision | None:
        if not self.config.empty_patience or self._empty < self.config.empty_patience:
            return None
        text = f"the filter kept no group {self._empty} iterations in a row: no prompt has returns that differ"
        return StopDecision("empty_batches", text)

    def _flat_now(self) -> StopDecision | None:
        config = self.config
        if not config.spread_patience or self._flat < config.spread_patience:
            return None
        text = (
            f"the reward spread was at most {config.spread_share:.0%} of its early mean ({fmean(self._early):.3g}) "
            f"for {self._flat} iterations"
        )
        return StopDecision("reward_variance_collapse", text)
