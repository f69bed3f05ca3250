"""The verdict on a run: one word, the step it began, what else is wrong, how sure, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ragen2.diagnostics.findings import (
    Finding,
    degrading,
    entropy_collapse,
    format_collapse,
    is_low,
    never_learned,
    no_lasting_rise,
    template_collapse,
    valid_think_falls,
)
from ragen2.diagnostics.late_fall import late_falls
from ragen2.diagnostics.lead_lag import SignalCrossing, crossings, in_words
from ragen2.diagnostics.outcome import Outcome, judge_outcome, success_left
from ragen2.diagnostics.readers.aliases import their_names
from ragen2.diagnostics.series import Points, Signals, pick_signals
from ragen2.diagnostics.verdict_confidence import confidence
from ragen2.diagnostics.verdict_config import VerdictConfig
from ragen2.diagnostics.verdict_words import TRUNCATED, meaning, what_to_try

VerdictName = Literal[
    "healthy", "template collapse", "format collapse", "entropy collapse", "never learned", "degrading", "undecided"
]
Regime = Literal["diverse", "compressed", "template", "low entropy", "unknown"]
ORDER: tuple[VerdictName, ...] = ("never learned", "format collapse", "entropy collapse", "template collapse", "degrading")
LONG = 2_000
"""Readings of a series that are looked at again and again when thresholds are tried."""
MUCH_TRUNCATED = 0.1
"""Share of replies cut at the token limit that is worth saying. It decides nothing."""


@dataclass(frozen=True)
class Verdict:
    """What became of a run.

    `onset_step` is the first step after which the deciding signal stays beyond its threshold to the end, None where nothing
    began. `also` lists what else is wrong. `confidence` (0 to 1) is a plain count of how many readings and signals agree, not a
    probability. `regime` places the end of the run by MI and H(Z|X) relative to its start: diverse (both high), compressed (low
    H, high MI: healthy), template (high H, low MI), low entropy (both low). `missing` names series that would have helped.
    `signals` says, for a run with an onset, which signals crossed their thresholds when, in order.
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
    signals: tuple[SignalCrossing, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class _Decision:
    name: VerdictName
    chosen: Finding | None
    findings: tuple[Finding, ...]
    signals: Signals
    outcome: Outcome | None

    @property
    def also(self) -> tuple[str, ...]:
        also = tuple(finding.name for finding in self.findings if finding is not self.chosen)
        if self.name in ("format collapse", "entropy collapse", "never learned"):
            return tuple(item for item in also if item != "degrading")
        return also


def judge(
    series: Mapping[str, Points],
    config: VerdictConfig | None = None,
    *,
    stop: str | None = None,
    source: str | None = None,
) -> Verdict:
    """Judge a run by named series of (step, value).

    Args:
        series: by our metric names: validation/<env>/success (with …/episodes), train/success, collapse/valid_think_rate,
            collapse/valid_action_rate, collapse/<view>/mi_sequence with …/mi_upper_bound and …/conditional_entropy_token,
            policy/entropy, train/response_length, train/truncated_rate, collapse/reward_spread or collapse/reward_variance. Any
            may be missing; NaN and infinite readings are left out. Entropies may be summed or averaged: only their own run is
            compared with.
        config: thresholds.
        stop: why the run ended early, when it did. It is reported; it decides nothing, since a run without one can be sick too.
        source: the kind of log the series come from, so that what is missing is called by its trainer's name.

    Precedence: never learned > format > entropy > template > degrading > healthy. Template collapse yields to degrading while
    valid thinking falls too. A solved run is healthy. Where nothing was logged that shows a collapse before success does, a run
    that seems well is undecided.
    """
    config = config or VerdictConfig()
    decision = _decide(pick_signals(series, config.min_prompts), config)
    chosen, outcome, signals = decision.chosen, decision.outcome, decision.signals
    close = [] if decision.name == "undecided" else _close_calls(series, config)
    falls = late_falls(signals, outcome, config) if decision.name == "healthy" else ()
    onset = chosen.onset_step if chosen else None
    crossed = crossings(signals, outcome, onset, config)
    evidence = list(chosen.evidence if chosen else ())
    evidence += [text for finding in decision.findings if finding.name in decision.also for text in finding.evidence]
    evidence += falls
    evidence += [in_words(crossed)] if crossed else []
    evidence += _context(signals, outcome, stop)
    if close:
        evidence.append(f"a close call: moving {', '.join(close)} by a quarter changes the verdict")
    return Verdict(
        verdict=decision.name,
        onset_step=onset,
        also=decision.also,
        confidence=confidence(decision.name, chosen, signals, outcome, close, len(decision.also) + len(falls)),
        evidence=tuple(dict.fromkeys(evidence)),
        explanation=_explain(decision, evidence, source, config),
        what_to_try=what_to_try(decision.name, decision.also) + ((TRUNCATED,) if _is_truncated(signals) else ()),
        regime=_regime(signals, config),
        missing=signals.missing,
        signals=crossed,
    )


def no_verdict(reason: str, advice: str) -> Verdict:
    """Undecided for a reason that lies in how the run was logged."""
    explanation = f"undecided: {reason}."
    return Verdict("undecided", None, (), 0.0, (reason,), explanation, (advice,), "unknown", ())


def _decide(signals: Signals, config: VerdictConfig) -> _Decision:
    outcome = judge_outcome(signals, config)
    findings = _findings(signals, outcome, config)
    chosen, name = _choose(findings, signals, outcome, config)
    return _Decision(name, chosen, tuple(findings), signals, outcome)


def _close_calls(series: Mapping[str, Points], config: VerdictConfig) -> list[str]:
    """Thresholds by a quarter of which the verdict turns. Very long series are looked at in part."""
    part = {name: points[:: -(-len(points) // LONG) or 1] for name, points in series.items()}
    signals = {config.min_prompts: pick_signals(part, config.min_prompts)}
    name = _decide(signals[config.min_prompts], config).name
    found: set[str] = set()
    for threshold, moved in config.moved():
        if threshold not in found and moved.min_prompts not in signals:
            signals[moved.min_prompts] = pick_signals(part, moved.min_prompts)
        if threshold not in found and _decide(signals[moved.min_prompts], moved).name != name:
            found.add(threshold)
    return sorted(found)


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
    flat = no_lasting_rise(outcome) if outcome and not found and signals.tell_of_collapse else None
    return [flat] if flat else found


def _choose(
    findings: list[Finding], signals: Signals, outcome: Outcome | None, config: VerdictConfig
) -> tuple[Finding | None, VerdictName]:
    by_name = {finding.name: finding for finding in findings}
    if outcome is not None and outcome.solved:
        return None, "healthy"
    if "template collapse" in by_name and "degrading" in by_name and valid_think_falls(signals, config):
        del by_name["template collapse"]
    for name in ORDER:
        if name in by_name:
            return by_name[name], name
    if outcome is None or not signals.tell_of_collapse or (_steps(signals) < config.min_steps and not outcome.rose):
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
    if _is_truncated(signals):
        cut = signals.truncated
        found.append(f"{cut.last:.0%} of the replies are cut at the token limit at the end, {cut.start:.0%} at the start")
    if signals.mi_left_out:
        count = f"{signals.mi_left_out} reading{'s' if signals.mi_left_out > 1 else ''} of mutual information left out"
        found.append(f"{count}: too few prompts competed")
    if not len(signals.mi_share):
        found.append("no mutual information was logged, so template collapse cannot be ruled out")
    elif not signals.mi_scaled:
        found.append("mutual information was logged without its ceiling: it is compared with its own best only")
    if stop:
        found.append(f"the run ended early: {stop}")
    return found


def _is_truncated(signals: Signals) -> bool:
    return len(signals.truncated) > 0 and signals.truncated.last >= MUCH_TRUNCATED


def _regime(signals: Signals, config: VerdictConfig) -> Regime:
    if len(signals.mi_share) < 2 or len(signals.reasoning_entropy) < 2:
        return "unknown"
    gone = signals.mi_scaled and signals.mi_share.last <= config.information_floor
    low_information = is_low(signals.mi_share, config) or gone
    low_entropy = is_low(signals.reasoning_entropy, config)
    if low_information:
        return "low entropy" if low_entropy else "template"
    return "compressed" if low_entropy else "diverse"


def _explain(decision: _Decision, evidence: list[str], source: str | None, config: VerdictConfig) -> str:
    gone = decision.outcome is not None and success_left(decision.outcome, config) < config.spread_share
    parts = [f"{decision.name}: {meaning(decision.name, decision.also, gone)}"]
    if decision.chosen is not None and decision.chosen.onset_step is not None:
        parts[0] += f", from step {decision.chosen.onset_step} on"
    parts += evidence[:1]
    if decision.also and decision.name != "healthy":
        parts.append("also " + ", ".join(decision.also))
    if decision.name == "undecided" and decision.signals.missing:
        parts.append("these columns would help: " + ", ".join(_called(name, source) for name in decision.signals.missing))
    return "; ".join(parts) + "."


def _called(name: str, source: str | None) -> str:
    """A series by our name and by what the trainer that wrote the log calls it."""
    theirs = [item for item in their_names(name.partition(" ")[0], source) if item != name]
    return f"{name} (elsewhere called {' or '.join(theirs[:3])})" if theirs else name
