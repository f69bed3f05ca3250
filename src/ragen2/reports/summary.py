"""The head of the report: verdict and summary tiles."""

from __future__ import annotations

from typing import Any

from ragen2.reports.curves import VIEWS, relative_mutual_information
from ragen2.reports.run_data import RunData
from ragen2.reports.text import as_number, duration, escape, number, percent

GOOD = ("healthy", "solved")
UNCLEAR = ("undecided", "degrading")
SHOWN_APART = ("verdict", "onset_step", "explanation", "regime", "confidence", "also", "evidence", "what_to_try")


def onset_step(run: RunData) -> float | None:
    """The step the verdict names as onset, if any."""
    return as_number((run.verdict or {}).get("onset_step"))


def header_html(run: RunData) -> str:
    """Run name, verdict badge, explanation and evidence."""
    name = escape(run.path.resolve().name, 200)
    if run.verdict is None:
        return f'<header><h1>{name}</h1><p><span class="badge big">no verdict yet</span></p></header>'
    verdict = str(run.verdict.get("verdict", "undecided"))
    word = verdict.replace("_", " ")
    kind = "good" if word in GOOD else ("warn" if word in UNCLEAR else "bad")
    facts = [f'<span class="badge big {kind}">{escape(word, 80)}</span>']
    if onset_step(run) is not None:
        facts.append(f"since step <b>{number(onset_step(run))}</b>")
    for key in ("regime", "confidence"):
        if run.verdict.get(key) not in (None, ""):
            facts.append(f"{key} <b>{number(run.verdict[key])}</b>")
    if run.verdict.get("also"):
        facts.append(f"also {inline(run.verdict['also'])}")
    explanation = run.verdict.get("explanation")
    text = f'<p class="lead">{escape(explanation)}</p>' if explanation else ""
    advice = run.verdict.get("what_to_try")
    if advice:
        items = advice if isinstance(advice, list) else [advice]
        text += f"<p>What to try:</p><ul>{''.join(f'<li>{inline(item)}</li>' for item in items[:20])}</ul>"
    stopped = (run.summary or {}).get("stopped_early")
    text += f"<p>Stopped early: {inline(stopped)}</p>" if stopped else ""
    others = {key: value for key, value in run.verdict.items() if key not in SHOWN_APART and value not in (None, "", [], {})}
    return f"<header><h1>{name}</h1><p>{' · '.join(facts)}</p>{text}{_evidence(run.verdict.get('evidence'), others)}</header>"


def tiles_html(run: RunData) -> str:
    """The figures a reader looks for first."""
    tiles = [*_success_tiles(run), _steps_tile(run), _time_tile(run)]
    kept, groups = run.last("filter/kept_groups"), run.last("filter/groups")
    if kept is not None:
        of = f" of {number(groups)}" if groups is not None else ""
        tiles.append(_tile("Kept groups", f"{number(kept)}{of}", "last iteration"))
    valid = run.series("collapse/valid_think_rate")
    if valid:
        tiles.append(_tile("Valid-think rate", percent(valid[-1][1]), f"{percent(valid[0][1])} at the start"))
    for view in VIEWS:
        relative = relative_mutual_information(run, view)
        if relative:
            value = run.last(f"collapse/{view}/mi_sequence")
            ceiling = run.last(f"collapse/{view}/mi_upper_bound")
            detail = f"{number(value)} of {number(ceiling)} nats; {percent(relative[0][1])} at the start"
            tiles.append(_tile(f"Mutual information, {view.replace('_', ' ')}", percent(relative[-1][1]), detail))
            break
    return f'<div class="tiles">{"".join(tiles)}</div>'


def rate_with_interval(run: RunData, name: str, step: float, rate: float) -> str:
    """`62.5 % (58.2 to 66.6)`: the rate with its logged 95 % interval, or alone where none was logged."""
    low, high = (dict(run.series(f"{name}_{side}")).get(step) for side in ("low", "high"))
    return percent(rate) if low is None or high is None else f"{percent(rate)} ({100 * low:.1f} to {100 * high:.1f})"


def _success_tiles(run: RunData) -> list[str]:
    names = run.names("validation/*/success") or run.names("train/success")
    tiles = []
    for name in names:
        points = run.series(name)
        if not points:
            continue
        (first_step, start), (last_step, end) = points[0], points[-1]
        first = rate_with_interval(run, name, first_step, start)
        last = rate_with_interval(run, name, last_step, end)
        where = f"Success, {name.split('/')[1]}" if name.startswith("validation/") else "Success in training"
        if len(points) == 1:
            tiles.append(_tile(where, percent(end), f"step {number(last_step)}<br>{last}"))
        else:
            change = f"{100 * (end - start):+.1f} points"
            tiles.append(
                _tile(where, f"{percent(start)} → {percent(end)}", f"{change}, 95 % intervals:<br>start {first}<br>end {last}")
            )
    return tiles


def _steps_tile(run: RunData) -> str:
    if not run.metrics:
        return _tile("Iterations", "0", "no metrics yet")
    return _tile("Iterations", number(run.metrics[-1]["step"]), f"{len(run.metrics):,} steps logged")


def _time_tile(run: RunData) -> str:
    times = [value for _, value in run.series("time/iteration")]
    mean = f"{duration(sum(times) / len(times))} an iteration" if times else "not logged"
    return _tile("Time in iterations", duration(sum(times) if times else None), mean)


def _tile(label: str, value: str, detail: str) -> str:
    return f'<div class="tile"><span>{escape(label, 120)}</span><b>{value}</b><small>{detail}</small></div>'


def _evidence(evidence: Any, others: dict[str, Any]) -> str:
    items = evidence if isinstance(evidence, list) else ([evidence] if evidence else [])
    lines = [f"<li>{inline(item)}</li>" for item in items[:40]]
    lines += [f"<li>{escape(key.replace('_', ' '), 80)}: {inline(value)}</li>" for key, value in list(others.items())[:40]]
    return f"<details><summary>Evidence</summary><ul>{''.join(lines)}</ul></details>" if lines else ""


def inline(value: Any) -> str:
    """Any JSON value in a line of HTML."""
    if isinstance(value, dict):
        return "; ".join(f"{escape(key, 80)} {inline(item)}" for key, item in list(value.items())[:20])
    if isinstance(value, list):
        return ", ".join(inline(item) for item in value[:20])
    return escape(value, 600) if isinstance(value, str) else number(value)
