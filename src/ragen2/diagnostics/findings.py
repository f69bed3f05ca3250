"""What can be wrong with a run: each detector looks at its signals and returns a finding with onset and evidence, or None."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low

import numpy as np

from ragen2.diagnostics.outcome import Outcome, success_left, success_tail
from ragen2.diagnostics.series import Series, Signals
from ragen2.diagnostics.tails import Tail, beyond_to_the_end, of_best, stretches_below
from ragen2.diagnostics.verdict_config import VerdictConfig

MI_NAMES = {"probe": "probe MI", "first_turn": "first-turn MI", "trajectory": "trajectory MI"}


TINY = 1e-9
"""Keeps a reference above 0 that was not there yet."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: from which step, how many readings say so (`tail`), how many signals agree."""

    name: str
    onset_step: int | None
    tail: int
    agreeing: int
    evidence: tuple[str, ...]


def never_learned(outcome: Outcome, config: VerdictConfig) -> Finding | None:
    """Success never above its start by the standard errors asked for."""
    if outcome.learned or outcome.success.start >= config.solved_success:
        return None
    limit = outcome.success.start + config.errors * outcome.standard_error
    text = f"success never above {limit:.3g}, its start + {config.errors:g} standard errors"
    return Finding("never learned", None, len(outcome.success), 1, (text,))


def no_lasting_rise(outcome: Outcome) -> Finding | None:
    """Single readings above the start, but no stretch of the run: what a flat run shows by chance among many readings."""
    if outcome.rose or not outcome.learned or outcome.solved:
        return None
    text = "no third of the run lies above its start by more than the noise of its readings; single high ones are chance"
    return Finding("never learned", None, len(outcome.success), 1, (text,))


def format_collapse(signals: Signals, outcome: Outcome | None, config: VerdictConfig) -> Finding | None:
    """Valid thinking or valid actions below half their reference for good, with less than a quarter of the run's working replies
    left: share of valid replies times share of success. Without a series of success the rates decide alone.

    The onset is the middle one of the steps from which valid thinking, valid actions and success are beyond their thresholds, so
    that no single signal sets it.
    """
    rates = _rates(signals)
    shares = {name: of_best(rate) for name, rate in rates.items()}
    lost = success_tail(outcome, config.success_share, config) if outcome else None
    turns = {name: _broken(share, lost, config) for name, share in shares.items()}
    found = {name: turn for name, turn in turns.items() if turn is not None}
    limit = config.format_share * (config.success_share if outcome else 1.0)
    if not found or what_is_left(signals, outcome, config) >= limit:
        return None
    evidence = [
        f"{name} below {config.format_share:.0%} of its best from step {turn.onset_step} "
        f"{'to the end' if shares[name].last < config.format_share else 'without recovering'} ({_path(rates[name])})"
        for name, turn in found.items()
    ]
    if lost:
        evidence.append(f"success below {config.success_share:.0%} of its best from step {lost.onset_step} to the end")
    agreeing = [*found.values(), *([lost] if lost else [])]
    onset = median_low([turn.onset_step for turn in agreeing])
    evidence += _company(signals, onset)
    return Finding("format collapse", onset, max(turn.readings for turn in agreeing), len(agreeing), tuple(evidence))


def what_is_left(signals: Signals, outcome: Outcome | None, config: VerdictConfig) -> float:
    """Share of valid replies (the lower of the two rates) times share of success at the end, both of their best. A fall of
    success within its errors counts as none."""
    shares = [max(of_best(rate).last, 0.0) for rate in _rates(signals).values()]
    return min([1.0, *shares]) * (success_left(outcome, config) if outcome else 1.0)


def _rates(signals: Signals) -> dict[str, Series]:
    rates = {"valid thinking": signals.valid_think, "valid actions": signals.valid_action}
    return {name: rate for name, rate in rates.items() if len(rate)}


def _broken(share: Series, lost: Tail | None, config: VerdictConfig) -> Tail | None:
    """From where a rate is broken: below its threshold to the end, or, where success was lost with it and did not come back, for
    `in_a_row` readings with no full recovery since. Two readings to the end are enough when success is lost too."""
    least = config.in_a_row if lost is None else min(2, config.in_a_row)
    tail = beyond_to_the_end(share, config.format_share, least)
    if lost is None or (tail is None and share.last >= config.degraded_share):
        return tail
    end = tail.onset_step if tail else int(share.steps_K[-1]) + 1
    for first, last, readings in stretches_below(share, config.format_share):
        if readings >= config.in_a_row and lost.onset_step <= last < end:
            return Tail(max(first, lost.onset_step), readings)
    return tail


def template_collapse(signals: Signals, config: VerdictConfig) -> Finding | None:
    """MI / ceiling far below its reference to the end, or never there. Where no ceiling was logged it is compared with its own
    best only, and whether it ever depended on the prompt cannot be told."""
    share = signals.mi_share
    if len(share) < config.in_a_row or signals.mi_view is None:
        return None
    name, best = MI_NAMES[signals.mi_view] + (" / ceiling" if signals.mi_scaled else ""), float(share.best_K[-1])
    floor = config.information_floor if signals.mi_scaled else 0.0
    if signals.mi_scaled and best <= floor:
        text = f"{name} at most {best:.2f} from the start: reasoning never depended on the prompt"
        return Finding("template collapse", int(share.steps_K[0]), len(share), 1, (text,))
    if best <= 0:
        return None
    relative = share.share(np.maximum(share.best_K, floor or best * TINY))
    tail = beyond_to_the_end(relative, config.information_share, config.in_a_row)
    if tail is None:
        return None
    text = (
        f"{name} {share.start:.2g} at the start, best {best:.2g}, {share.last:.2g} at the end: "
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
    if outcome and success_left(outcome, config) < config.degraded_share:
        effects.append("success has fallen from its best")
    if not effects:
        return None
    return Finding("entropy collapse", tail.onset_step, tail.readings, 1 + len(effects), (*evidence, *effects))


def degrading(signals: Signals, outcome: Outcome | None, config: VerdictConfig) -> Finding | None:
    """What is left (share of valid replies times share of success) well below its best: going wrong, not collapsed."""
    left = what_is_left(signals, outcome, config)
    if left >= config.degraded_share:
        return None
    evidence: list[str] = []
    tails: list[Tail] = []
    kept = success_left(outcome, config) if outcome else 1.0
    if outcome and kept < 1:
        best = float(outcome.success.best_K[-1])
        evidence.append(f"success {outcome.success.last:.3g} at the end, {1 - kept:.0%} below its best {best:.3g}")
        tail = success_tail(outcome, config.degraded_share, config)
        tails += [tail] if tail else []
    for name, rate in _rates(signals).items():
        share = of_best(rate)
        tail = beyond_to_the_end(share, config.degraded_share, config.in_a_row)
        if tail:
            tails.append(tail)
            evidence.append(f"{name} below {config.degraded_share:.0%} of its best from step {tail.onset_step} ({_path(rate)})")
        elif share.last < 1 and kept < 1:
            evidence.append(f"{name} {1 - share.last:.0%} below its best at the end ({_path(rate)})")
    if not tails and not (outcome and kept < 1):
        # One or two low readings at the end: too few to call.
        return None
    first = min(tails, key=lambda tail: tail.onset_step) if tails else None
    onset, readings = (first.onset_step, first.readings) if first else (None, 1)
    return Finding("degrading", onset, readings, len(evidence), tuple(evidence))


def valid_think_falls(signals: Signals, config: VerdictConfig) -> bool:
    """Whether valid thinking is falling as well: more than half of the way to degraded."""
    return len(signals.valid_think) > 0 and of_best(signals.valid_think).last < (1 + config.degraded_share) / 2


def is_low(series: Series, config: VerdictConfig) -> bool:
    """Whether a signal ended below half of its start."""
    return len(series) > 0 and series.last < config.low_share * series.start


def spread_is_gone(signals: Signals, config: VerdictConfig) -> bool:
    """Whether the reward spread ended under its share of the mean of the first ten readings."""
    spread = signals.reward_spread
    if len(spread) < 10 + config.in_a_row:
        return False
    return spread.last <= config.spread_share * float(spread.values_K[:10].mean())


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
