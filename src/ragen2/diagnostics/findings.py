"""What can be wrong with a run: each detector looks at its signals and returns a finding with onset and evidence, or None."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ragen2.diagnostics.series import Series, Signals
from ragen2.diagnostics.verdict_config import VerdictConfig

MI_NAMES = {"probe": "probe MI", "first_turn": "first-turn MI", "trajectory": "trajectory MI"}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: from which step, how many readings say so (`tail`), how many signals agree."""

    name: str
    onset_step: int | None
    tail: int
    agreeing: int
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """Whether the run learned. `standard_error` is of one reading of `success` (validation) or of one block (training)."""

    success: Series
    standard_error: float
    learned: bool
    solved: bool
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Tail:
    """The stretch to the end of the run in which a signal stays beyond its threshold."""

    onset_step: int
    readings: int


def beyond_to_the_end(shares: Series, threshold: float, in_a_row: int) -> Tail | None:
    """From where the smoothed `shares` stay below `threshold` to the end, at least `in_a_row` readings; None when they do not.

    The onset is the first reading below the threshold that the smoothed stretch rests on.
    """
    below_K = shares.smoothed_K < threshold
    first = len(below_K)
    while first > 0 and below_K[first - 1]:
        first -= 1
    if first == len(below_K):
        return None
    # The median of three turns one reading late.
    if first > 0 and shares.values_K[first - 1] < threshold:
        first -= 1
    readings = len(below_K) - first
    return Tail(int(shares.steps_K[first]), readings) if readings >= in_a_row else None


def ever_in_a_row(shares: Series, threshold: float, in_a_row: int) -> bool:
    """Whether some `in_a_row` readings in a row were below the threshold."""
    count = 0
    for value in shares.values_K:
        count = count + 1 if value < threshold else 0
        if count >= in_a_row:
            return True
    return False


def of_best(series: Series) -> Series:
    """Readings as shares of the reference: start or best smoothed value so far. 1 while that is 0: nothing to fall from."""
    best_K = series.best_K
    return Series(series.steps_K, np.where(best_K > 0, series.values_K / np.where(best_K > 0, best_K, 1.0), 1.0))


def judge_outcome(signals: Signals, config: VerdictConfig) -> Outcome | None:
    """Learned, solved, and with what evidence; None without a series of at least two readings."""
    success, error, note = _comparable(signals, config)
    if len(success) < 2:
        return None
    highest, where = float(success.values_K.max()), int(success.steps_K[success.values_K.argmax()])
    threshold = success.start + config.errors * error
    train_K = signals.train_success.values_K[-config.solved_readings :]
    solved_train = len(train_K) >= config.solved_readings and float(train_K.min()) >= config.solved_success
    solved_validation = signals.success_kind == "validation" and success.last >= config.solved_success
    shown = f"{signals.success_kind} {'return' if signals.success_kind == 'return' else 'success'}"
    course = f"{success.start:.3g} at the start, best {highest:.3g} at step {where}, {success.values_K[-1]:.3g} at the end"
    text = f"{shown} {course} ({note})"
    return Outcome(success, error, highest > threshold, solved_train or solved_validation, (text,))


def never_learned(outcome: Outcome, config: VerdictConfig) -> Finding | None:
    """Success never above its start by the standard errors asked for."""
    if outcome.learned or outcome.success.start >= config.solved_success:
        return None
    limit = outcome.success.start + config.errors * outcome.standard_error
    text = f"success never above {limit:.3g}, its start + {config.errors:g} standard errors"
    return Finding("never learned", None, len(outcome.success), 1, (text,))


def format_collapse(signals: Signals, outcome: Outcome | None, config: VerdictConfig) -> Finding | None:
    """Valid thinking or valid actions below half their reference to the end; or below it for a while without recovering, with
    success halved for good."""
    rates = {"valid thinking": signals.valid_think, "valid actions": signals.valid_action}
    shares = {name: of_best(rate) for name, rate in rates.items() if len(rate)}
    tails = {name: beyond_to_the_end(share, config.format_share, config.in_a_row) for name, share in shares.items()}
    found = {name: tail for name, tail in tails.items() if tail is not None}
    lost = _success_tail(outcome, config.success_share, config) if outcome else None
    broken = any(
        ever_in_a_row(share, config.format_share, config.in_a_row) and share.last < config.degraded_share
        for share in shares.values()
    )
    if not found and not (lost and broken):
        return None
    evidence = [
        f"{name} below {config.format_share:.0%} of its best from step {tail.onset_step} to the end ({_path(rates[name])})"
        for name, tail in found.items()
    ]
    evidence += [f"{name} broke without recovering ({_path(rates[name])})" for name in shares if name not in found and broken]
    if lost:
        evidence.append(f"success below {config.success_share:.0%} of its best from step {lost.onset_step} to the end")
    first = min(found.values() if found else [lost] if lost else [], key=lambda tail: tail.onset_step)
    evidence += _company(signals, first.onset_step)
    return Finding("format collapse", first.onset_step, first.readings, len(found) + (lost is not None), tuple(evidence))


def template_collapse(signals: Signals, config: VerdictConfig) -> Finding | None:
    """MI / ceiling far below its reference to the end, or never there."""
    share = signals.mi_share
    if len(share) < config.in_a_row or signals.mi_view is None:
        return None
    name, best = MI_NAMES[signals.mi_view], float(share.best_K[-1])
    if best <= config.information_floor:
        text = f"{name} at most {best:.0%} of its ceiling from the start: reasoning never depended on the prompt"
        return Finding("template collapse", int(share.steps_K[0]), len(share), 1, (text,))
    relative = share.share(np.maximum(share.best_K, config.information_floor))
    tail = beyond_to_the_end(relative, config.information_share, config.in_a_row)
    if tail is None:
        return None
    text = (
        f"{name} / ceiling {share.start:.2f} at the start, best {best:.2f}, {share.last:.2f} at the end: "
        f"below {config.information_share:.0%} of its best from step {tail.onset_step}"
    )
    return Finding("template collapse", tail.onset_step, tail.readings, 1, (text,))


def entropy_collapse(
    signals: Signals, outcome: Outcome | None, template: Finding | None, config: VerdictConfig
) -> Finding | None:
    """Entropy gone for good, not contradicted by H(Z|X), and with an effect: reasoning no longer depends on the prompt, the
    reward spread is gone, or success has fallen. Low entropy alone is compressed reasoning, which is healthy."""
    entropy, words = signals.policy_entropy, "policy entropy"
    if not len(entropy):
        entropy, words = signals.reasoning_entropy, "H(Z|X) a token"
    if not len(entropy) or entropy.start <= 0:
        return None
    tail = beyond_to_the_end(entropy.share(entropy.start), config.entropy_share, config.in_a_row)
    contradicted = len(signals.reasoning_entropy) > 0 and not is_low(signals.reasoning_entropy, config)
    if tail is None or contradicted:
        return None
    evidence = [f"{words} below {config.entropy_share:.0%} of its start from step {tail.onset_step} ({_path(entropy)})"]
    effects = []
    if template is not None:
        effects.append("reasoning no longer depends on the prompt")
    if spread_is_gone(signals, config):
        effects.append("the reward spread is gone: groups return all the same")
    if outcome and _fallen(outcome, config):
        effects.append("success has fallen from its best")
    if not effects:
        return None
    return Finding("entropy collapse", tail.onset_step, tail.readings, 1 + len(effects), (*evidence, *effects))


def degrading(signals: Signals, outcome: Outcome | None, config: VerdictConfig) -> Finding | None:
    """Success or format well below its best: going wrong, not collapsed."""
    evidence: list[str] = []
    tails: list[Tail] = []
    if outcome and _fallen(outcome, config):
        best = float(outcome.success.best_K[-1])
        evidence.append(
            f"success {outcome.success.last:.3g} at the end, {1 - outcome.success.last / best:.0%} below its best {best:.3g}"
        )
        tail = _success_tail(outcome, config.degraded_share, config)
        tails += [tail] if tail else []
    for name, rate in (("valid thinking", signals.valid_think), ("valid actions", signals.valid_action)):
        tail = beyond_to_the_end(of_best(rate), config.degraded_share, config.in_a_row) if len(rate) else None
        if tail:
            tails.append(tail)
            evidence.append(f"{name} below {config.degraded_share:.0%} of its best from step {tail.onset_step} ({_path(rate)})")
    if not evidence:
        return None
    first = min(tails, key=lambda tail: tail.onset_step) if tails else None
    return Finding(
        "degrading", first.onset_step if first else None, first.readings if first else 1, len(evidence), tuple(evidence)
    )


def valid_think_falls(signals: Signals, config: VerdictConfig) -> bool:
    """Whether valid thinking is well below its best at the end."""
    return len(signals.valid_think) > 0 and of_best(signals.valid_think).last < config.degraded_share


def is_low(series: Series, config: VerdictConfig) -> bool:
    """Whether a signal ended below half of its start."""
    return len(series) > 0 and series.last < config.low_share * series.start


def spread_is_gone(signals: Signals, config: VerdictConfig) -> bool:
    """Whether the reward spread ended under its share of the mean of the first ten readings."""
    spread = signals.reward_spread
    if len(spread) < 10 + config.in_a_row:
        return False
    return spread.last <= config.spread_share * float(spread.values_K[:10].mean())


def _fallen(outcome: Outcome, config: VerdictConfig) -> bool:
    best, last = float(outcome.success.best_K[-1]), outcome.success.last
    return last < config.degraded_share * best and best - last > config.errors * math.sqrt(2) * outcome.standard_error


def _success_tail(outcome: Outcome, share: float, config: VerdictConfig) -> Tail | None:
    # Validation is sparse: two readings in a row to the end are as much time as many of the other signals.
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


def _company(signals: Signals, onset: int) -> list[str]:
    """Signals that usually go with broken format, from before the onset to the end."""
    found = []
    for name, series in (("policy entropy", signals.policy_entropy), ("tokens a trajectory", signals.length)):
        before = series.at_most(onset - 1)
        if len(before) and before.last > 0 and series.last >= 2 * before.last:
            found.append(f"{name} {before.last:.3g} before, {series.last:.3g} at the end")
    return found


def _path(series: Series) -> str:
    return f"{series.start:.2f} at the start, best {series.values_K.max():.2f}, {series.last:.2f} at the end"
