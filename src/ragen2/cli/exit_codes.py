"""Exit codes of `ragen2 diagnose`, for CI: one for each kind of verdict, and which verdicts count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ragen2.diagnostics.examine import Examination, Unreadable
from ragen2.errors import UnknownName

CODES: dict[str, int] = {
    "healthy": 0,
    "template collapse": 6,
    "format collapse": 6,
    "entropy collapse": 6,
    "never learned": 7,
    "degrading": 7,
    "undecided": 8,
}
COLLAPSES = tuple(name for name, code in CODES.items() if code == 6)
GROUPS: dict[str, tuple[str, ...]] = {
    "collapse": COLLAPSES,
    "all": tuple(name for name, code in CODES.items() if code),
    "none": (),
}


def failing_verdicts(asked: Iterable[str]) -> frozenset[str]:
    """The verdicts that end with a code above 0, out of `--fail-on` texts: names or groups (collapse, all, none), separated by
    commas, words of a name joined by spaces, hyphens or underscores. Raises UnknownName."""
    found: set[str] = set()
    names = [part.strip() for text in asked for part in text.split(",") if part.strip()]
    for name in names:
        plain = name.lower().replace("-", " ").replace("_", " ")
        if plain not in GROUPS and not CODES.get(plain):
            raise UnknownName(
                "verdict of --fail-on", name, [*GROUPS, *(known.replace(" ", "-") for known in CODES if CODES[known])]
            )
        found |= set(GROUPS.get(plain, (plain,)))
    return frozenset(found)


def exit_code(runs: Sequence[Examination], failing: frozenset[str]) -> int:
    """The code for all runs together: that of the first unreadable one when there is any, else of the worst verdict that
    counts (collapse before went wrong before undecided), else 0."""
    unreadable = next((run for run in runs if isinstance(run, Unreadable)), None)
    if unreadable is not None:
        return unreadable.exit_code
    verdicts = {run.diagnosis.verdict for run in runs if not isinstance(run, Unreadable)}
    return min((CODES[name] for name in verdicts & failing if CODES[name]), default=0)
