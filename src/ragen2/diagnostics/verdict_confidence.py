"""How sure a verdict is: how many signals agree, for how long, what was not logged, and whether a threshold decided it."""

from __future__ import annotations

from collections.abc import Iterable

from ragen2.diagnostics.findings import Finding
from ragen2.diagnostics.outcome import Outcome
from ragen2.diagnostics.series import Signals

HIGHEST, LOWEST = 0.95, 0.1


def confidence(
    name: str,
    chosen: Finding | None,
    signals: Signals,
    outcome: Outcome | None,
    close_calls: Iterable[str] = (),
    doubts: int = 0,
) -> float:
    """Between .1 and .95, 0 for undecided. A count, not a probability.

    Half to start with. A tenth for each of up to three agreeing signals and up to .15 for a long stretch; for healthy .35 at
    most, for success that was seen to rise over five readings or more with mutual information logged. A tenth off where valid
    thinking or validation success was not logged, or where mutual information was logged without its ceiling; and a tenth off
    for each threshold (up to three) by a quarter of which the verdict turns. For healthy two tenths off for each of `doubts`:
    findings that success outweighs, and signals that fell in the last reading.
    """
    if name == "undecided":
        return 0.0
    score = 0.5
    if chosen is not None:
        score += 0.1 * min(chosen.agreeing, 3) + (0.15 if chosen.tail >= 6 else 0.05 if chosen.tail >= 4 else 0.0)
        score -= 0.1 if name == "template collapse" and not signals.mi_scaled else 0.0
    elif outcome is not None:
        score += 0.15 if len(outcome.success) >= 5 else 0.0
        score += 0.2 if outcome.rose or outcome.solved else 0.0
        score += 0.1 if len(signals.mi_share) and signals.mi_scaled else -0.15
    score -= 0.1 if not len(signals.valid_think) else 0.0
    score -= 0.1 if signals.success_kind != "validation" else 0.0
    score -= 0.1 * min(len(set(close_calls)), 3)
    score -= 0.2 * doubts if name == "healthy" else 0.0
    return round(min(max(score, LOWEST), HIGHEST), 2)
