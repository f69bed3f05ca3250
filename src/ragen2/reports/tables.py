"""What happened to the trajectories, by environment: ends, faults and replies that did not parse."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ragen2.reports.run_data import RunData
from ragen2.reports.text import escape, number, percent

MOST_CAUSES = 12


@dataclass
class Counts:
    """Counts of one environment over the rollout files that were read."""

    trajectories: int = 0
    valid: int = 0
    successes: int = 0
    turns: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    parses: Counter[str] = field(default_factory=Counter)


def count_by_environment(run: RunData) -> dict[tuple[str, str], Counts]:
    """Counts by environment and kind of levels (training, held out), in order of first appearance."""
    found: dict[tuple[str, str], Counts] = {}
    for rollouts in run.rollouts:
        for item in rollouts.batch.trajectories:
            kind = "held out" if rollouts.validation else "training"
            counts = found.setdefault((item.environment, kind), Counts())
            counts.trajectories += 1
            counts.valid += item.valid
            counts.successes += item.success and item.valid
            counts.stops[item.stop_reason] += 1
            if item.fault:
                counts.faults[item.fault.splitlines()[0][:120] if item.fault.strip() else "unnamed"] += 1
            for turn in item.turns:
                counts.turns += 1
                counts.parses[turn.parse_status] += 1
    return found


def counts_html(run: RunData) -> str:
    """A table, one row an environment; empty without rollouts."""
    found = count_by_environment(run)
    if not found:
        return ""
    rows = "".join(
        f"<tr><td>{escape(name, 80)}</td><td>{kind}</td><td>{number(c.trajectories)}</td>"
        f"<td>{percent(c.successes / c.valid) if c.valid else percent(None)}</td><td>{_causes(c.stops)}</td>"
        f"<td>{_causes(c.parses, c.turns)}</td><td>{_causes(c.faults) or 'none'}</td></tr>"
        for (name, kind), c in found.items()
    )
    read = len(run.rollouts)
    which = "all" if read == run.rollout_files else f"{read} of {run.rollout_files}, spread over the run"
    heads = ("environment", "levels", "trajectories", "success", "how they stopped", "replies", "faults")
    header = "".join(f"<th>{head}</th>" for head in heads)
    table = f"<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<p>Counted over {which} rollout files kept.</p><div class="scroll">{table}</div>'


def _causes(counter: Counter[str], total: int | None = None) -> str:
    common = counter.most_common(MOST_CAUSES)
    parts = [f"{escape(cause, 120)} <b>{percent(count / total) if total else number(count)}</b>" for cause, count in common]
    if len(counter) > MOST_CAUSES:
        parts.append(f"{len(counter) - MOST_CAUSES} more")
    return "<br>".join(parts)
