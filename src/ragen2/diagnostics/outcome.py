"""Whether a run learned, solved its task, or lost success again, each against the noise of its readings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.series import Series, Signals
from ragen2.diagnostics.tails import Tail, beyond_to_the_end, of_best
from ragen2.diagnostics.verdict_config import VerdictConfig


@dataclass(frozen=True)
class Outcome:
    """Whether the run learned. `standard_error` is of one reading of `success` (validation) or of one block (training).

    `learned`: some reading was above the start by the standard errors asked for. Among many readings of a flat run one often is,
    so `rose` asks for more: a third of the run whose mean is above the start, with the errors of both.
    """

    success: Series
    standard_error: float
    learned: bool
    rose: bool
    solved: bool
    evidence: tuple[str, ...]


def judge_outcome(signals: Signals, config: VerdictConfig) -> Outcome | None:
    """Learned, solved, and with what evidence; None without a series of at least two readings."""
    success, error, note = _comparable(signals, config)
    if len(success) < 2:
        return None
    highest, where = float(success.values_K.max()), int(success.steps_K[success.values_K.argmax()])
    learned = _rises(success, error, config)
    train_K = signals.train_success.values_K[-config.solved_readings :]
    solved_train = len(train_K) >= config.solved_readings and float(train_K.min()) >= config.solved_success
    solved_validation = signals.success_kind == "validation" and success.last >= config.solved_success
    shown = {"validation": "validation success", "train": "success in training"}.get(signals.success_kind, "return in training")
    course = f"{success.start:.3g} at the start, best {highest:.3g} at step {where}, {success.values_K[-1]:.3g} at the end"
    text = f"{shown} {course} ({note})"
    return Outcome(success, error, learned, _rose(success, error, config), solved_train or solved_validation, (text,))


def _rises(success: Series, error: float, config: VerdictConfig) -> bool:
    """Whether success rose above its start: one reading by the standard errors asked for, or the mean of `in_a_row` readings by
    as many of its own, smaller ones. A small rise that lasts is a rise too."""
    later_K = success.values_K[1:]
    if float(later_K.max()) > success.start + config.errors * error:
        return True
    count = config.in_a_row
    if len(later_K) < count:
        return False
    means_K = np.lib.stride_tricks.sliding_window_view(later_K, count).mean(axis=1)
    return float(means_K.max()) > success.start + config.errors * error / math.sqrt(count)


def _rose(success: Series, error: float, config: VerdictConfig) -> bool:
    """Whether the mean of some third of the readings lies above the start by `rise_errors` standard errors of the difference."""
    later_K = success.values_K[1:]
    width = max(1, len(later_K) // 3)
    highest = float(np.lib.stride_tricks.sliding_window_view(later_K, width).mean(axis=1).max())
    return highest - success.start > config.rise_errors * error * math.sqrt(1 + 1 / width)


def success_left(outcome: Outcome, config: VerdictConfig) -> float:
    """Success at the end as a share of its best smoothed value; 1 where it fell by no more than its errors."""
    best, last = float(outcome.success.best_K[-1]), outcome.success.last
    if best <= 0 or best - last <= config.errors * math.sqrt(2) * outcome.standard_error:
        return 1.0
    return max(last, 0.0) / best


def success_tail(outcome: Outcome, share: float, config: VerdictConfig) -> Tail | None:
    """The stretch to the end in which success is below a share of its best; two readings are enough, since validation is sparse:
    they are as much time as many readings of other signals."""
    return beyond_to_the_end(of_best(outcome.success), share, min(2, config.in_a_row))


def _comparable(signals: Signals, config: VerdictConfig) -> tuple[Series, float, str]:
    """Outcome series, standard error of one of its readings, and a note on what a reading is."""
    success = signals.success
    if not len(success):
        return success, 0.0, ""
    if signals.success_kind == "validation":
        episodes = signals.episodes or config.episodes
        share = (success.start * episodes + 1) / (episodes + 2)
        note = f"{episodes:.0f} episodes a reading" + ("" if signals.episodes else " assumed")
        return success, math.sqrt(max(share * (1 - share), 0.0) / episodes), note
    scatter = float(np.sqrt(np.mean(np.diff(success.values_K) ** 2) / 2)) if len(success) > 1 else 0.0
    whole = len(success) // config.block * config.block
    if whole < 2 * config.block:
        return success, scatter, "single iterations"
    blocks_BK = success.values_K[:whole].reshape(-1, config.block)
    steps = success.steps_K[config.block - 1 : whole : config.block]
    return Series(steps, blocks_BK.mean(axis=1)), scatter / math.sqrt(config.block), f"means of {config.block} iterations"
