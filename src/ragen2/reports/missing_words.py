"""What each series that a log lacks would tell, in plain words."""

from __future__ import annotations

from fnmatch import fnmatchcase

from ragen2.diagnostics.readers.aliases import their_names
from ragen2.diagnostics.rollout_files.read import KINDS as ROLLOUTS

MOST_NAMES = 3

WHY = {
    "validation/*success": "success on held-out levels, to tell learning from luck",
    "collapse/valid_think_rate": "the share of replies that parse, to tell format collapse (the commonest)",
    "collapse/valid_action_rate": "the share of turns with a legal action",
    "collapse/*mi_*": "mutual information and its ceiling, to tell template collapse",
    "policy/entropy": "the policy's entropy, to tell entropy collapse",
    "collapse/*entropy*": "H(Z|X), to tell compressed reasoning from collapse",
    "collapse/reward_*": "the spread of returns within groups, to see whether there is anything to learn from",
    "train/response_length": "tokens a trajectory, to see truncation",
}


def missing_line(name: str, source: str) -> str:
    """A series that a log of this kind lacks: its name, what its trainer calls it, and what it would tell."""
    why = next((text for pattern, text in WHY.items() if fnmatchcase(name, pattern)), "")
    if source in ROLLOUTS.values():
        # Names of columns are of no use where there are no columns.
        measure = "; --scorer MODEL measures it from these rollouts" if "/mi_" in name else ""
        return f"{name}: {why}{measure}" if why else name
    theirs = [other for other in their_names(name.split(" ")[0], source) if other != name]
    called = f" ({' or '.join(theirs[:MOST_NAMES])})" if theirs and source != "ragen2" else ""
    return f"{name}{called}: {why}" if why else f"{name}{called}"
