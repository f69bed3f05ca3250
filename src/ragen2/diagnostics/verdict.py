"""The verdict on a run: one word, the step it began, what else is wrong, how sure, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ragen2.diagnostics.findings import (
    Finding,
    Outcome,
    degrading,
    entropy_collapse,
    format_collapse,
    is_low,
    judge_outcome,
    never_learned,
    template_collapse,
    valid_think_falls,
)
from ragen2.diagnostics.series import Points, Signals, pick_signals
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.diagnostics.verdict_words import MEANING, WHAT_TO_TRY

VerdictName = Literal[
    "healthy", "template collapse", "format collapse", "entropy collapse", "never learned", "degrading", "undecided"
]
Regime = Literal["diverse", "compressed", "template", "low entropy", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """What became of a run.

    `onset_step` is the first step after which the deciding signal stays beyond its threshold to the end, None where nothing
    began. `also` lists what else is wrong. `confidence` (0 to 1) is a plain count of how many readings and signals agree, not a
    probability. `regime` places the end of the run by MI and H(Z|X) relative to its start: diverse (both high), compressed (low
    H, high MI: healthy), template (high H, low MI), low entropy (both low). `missing` names series that would have helped.
    """

    verdict: str
    onset_step: int | None
    also: tuple[str, ...]
    confidence: float
    evidence: tuple[str, ...]
    explanation: str
    what_to_try: tuple[str, ...]
    regime: str
    missing: tuple[str, ...]


def judge(series: Mapping[str, Points], config: VerdictConfig | None = None, *, stop: str | None = None) -> Verdict:
    """Judge a run by named series of (step, value).

    Args:
        series: by our metric names: validation/<env>/success (with …/episodes), train/success, collapse/valid_think_rate,
            collapse/valid_action_rate, collapse/<view>/mi_sequence with …/mi_upper_bound and …/conditional_entropy_token,
            policy/entropy, train/response_length, collapse/reward_spread or collapse/reward_variance. Any may be missing; NaN
            and infinite readings are left out. Entropies may be summed or averaged: only their own run is compared with.
        config: thresholds.
        stop: why the run ended early, when it did. It is reported; it decides nothing, since a run without one can be sick too.

    Precedence: never learned > format > entropy > template > degrading > healthy. Template collapse yields to degrading while
    valid thinking falls too. A solved run is healthy.
    """
    config = config or VerdictConfig()
    signals = pick_signals(series, config.min_prompts)
    outcome = judge_outcome(signals, config)
    findings = _findings(signals, outcome, config)
    chosen, name = _choose(findings, signals, outcome, config)
    also = tuple(finding.name for finding in findings if finding is not chosen)
    if name in ("format collapse", "entropy collapse", "never learned"):
        also = tuple(item for item in also if item != "degrading")
    evidence = list(chosen.evidence if chosen else ())
    evidence += [text for finding in findings if finding.name in also for text in finding.evidence]
    evidence += _context(signals, outcome, stop)
    onset = chosen.onset_step if chosen else None
    return Verdict(
        verdict=name,
        onset_step=onset,
        also=also,
        confidence=_confidence(name, chosen, signals, outcome),
        evidence=tuple(evidence),
        explanation=_explain(name, onset, also, evidence, signals.missing),
        what_to_try=WHAT_TO_TRY[name],
        regime=_regime(signals, config),
        missing=signals.missing,
    )


def _findings(signals: Signals, outcome: Outcome | None, config: VerdictConfig) -> list[Finding]:
    """Everything that is wrong, in order of precedence."""
    template = template_collapse(signals, config)
    entropy = entropy_collapse(signals, outcome, template, config)
    candidates = [
        never_learned(outcome, config) if outcome else None,
        format_collapse(signals, outcome, config),
        entropy,
        template if entropy is None else None,
        degrading(signals, outcome, config),
    ]
    found = [finding for finding in candidates if finding is not None]
    if outcome is not None and outcome.solved:
        # Once all is solved, groups return the same and the policy is sure of itself: that is the aim, not a fault.
        return [finding for finding in found if finding.name in ("format collapse", "template collapse")]
    if _steps(signals) < config.min_steps:
        return [finding for finding in found if finding.name != "never learned"]
    return found


def _choose(
    findings: list[Finding], signals: Signals, outcome: Outcome | None, config: VerdictConfig
) -> tuple[Finding | None, VerdictName]:
    by_name = {finding.name: finding for finding in findings}
    if outcome is not None and outcome.solved:
        return None, "healthy"
    if "template collapse" in by_name and "degrading" in by_name and valid_think_falls(signals, config):
        del by_name["template collapse"]
    order: tuple[VerdictName, ...] = ("never learned", "format collapse", "entropy collapse", "template collapse", "degrading")
    for name in order:
        if name in by_name:
            return by_name[name], name
    if outcome is None or (_steps(signals) < config.min_steps and not outcome.learned):
        return None, "undecided"
    return None, "healthy"


def _steps(signals: Signals) -> int:
    """Steps between the first and the last reading of any signal."""
    readings = [s for s in (signals.success, signals.train_success, signals.valid_think, signals.policy_entropy) if len(s)]
    return max((int(s.steps_K[-1]) for s in readings), default=0) - min((int(s.steps_K[0]) for s in readings), default=0)


def _context(signals: Signals, outcome: Outcome | None, stop: str | None) -> list[str]:
    found = list(outcome.evidence) if outcome else ["no series of success or return with two readings"]
    if outcome and outcome.solved:
        found.insert(0, "solved: success held its ceiling to the end")
    if signals.mi_left_out:
        found.append(f"{signals.mi_left_out} readings of mutual information left out: too few prompts competed")
    if not len(signals.mi_share):
        found.append("no mutual information was logged, so template collapse cannot be ruled out")
    if stop:
        found.append(f"the run ended early: {stop}")
    return found


def _confidence(name: str, chosen: Finding | None, signals: Signals, outcome: Outcome | None) -> float:
    """Half to start with, more for every agreeing signal and for long stretches, less for what was not logged."""
    if name == "undecided":
        return 0.0
    score = 0.5
    if chosen is not None:
        score += 0.1 * min(chosen.agreeing, 3) + (0.15 if chosen.tail >= 6 else 0.05 if chosen.tail >= 4 else 0.0)
    elif outcome is not None:
        score += 0.15 if len(outcome.success) >= 5 else 0.0
        score += 0.2 if outcome.learned or outcome.solved else 0.0
        score += 0.1 if len(signals.mi_share) else -0.15
    score -= 0.1 if not len(signals.valid_think) else 0.0
    score -= 0.1 if signals.success_kind != "validation" else 0.0
    return round(min(max(score, 0.1), 0.95), 2)


def _regime(signals: Signals, config: VerdictConfig) -> Regime:
    if len(signals.mi_share) < 2 or len(signals.reasoning_entropy) < 2:
        return "unknown"
    low_information = is_low(signals.mi_share, config) or signals.mi_share.last <= config.information_floor
    low_entropy = is_low(signals.reasoning_entropy, config)
    if low_information:
        return "low entropy" if low_entropy else "template"
    return "compressed" if low_entropy else "diverse"


def _explain(name: str, onset: int | None, also: tuple[str, ...], evidence: list[str], missing: tuple[str, ...]) -> str:
    parts = [f"{name}: {MEANING[name]}"]
    if onset is not None:
        parts[0] += f", from step {onset} on"
    if evidence:
        parts.append(evidence[0])
    if also:
        parts.append("also " + ", ".join(also))
    if name == "undecided" and missing:
        parts.append("these columns would help: " + ", ".join(missing))
    return "; ".join(parts) + "."
