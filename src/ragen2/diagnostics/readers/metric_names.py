"""Our metric names as a reader may be told them: in full, or by a short name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ragen2.errors import UnknownName

SHORT_NAMES = {
    "success": "validation/log/success",
    "validation_return": "validation/log/return",
    "episodes": "validation/log/episodes",
    "train_success": "train/success",
    "return": "train/return",
    "reward": "train/return",
    "reward_spread": "collapse/reward_spread",
    "reward_variance": "collapse/reward_variance",
    "zero_variance_groups": "collapse/zero_variance_groups",
    "valid_think": "collapse/valid_think_rate",
    "valid_action": "collapse/valid_action_rate",
    "mi": "collapse/first_turn/mi_sequence",
    "mi_ceiling": "collapse/first_turn/mi_upper_bound",
    "mi_token": "collapse/first_turn/mi_token",
    "retrieval": "collapse/first_turn/retrieval_accuracy",
    "retrieval_chance": "collapse/first_turn/retrieval_chance",
    "reasoning_entropy": "collapse/first_turn/conditional_entropy_token",
    "entropy": "policy/entropy",
    "length": "train/response_length",
    "truncated": "train/truncated_rate",
}
"""Short name -> metric. `step` names the column of the steps."""

OTHER_NAMES = ("train/task_return", "policy/kl", "policy/kl_from_start", "policy/loss", "policy/gradient_norm")
PATTERNS = (
    re.compile(r"validation/(?:[^/]+/)?(?:success|episodes|return)"),
    re.compile(
        r"collapse/(?:probe|first_turn|trajectory)/(?:mi_sequence|mi_upper_bound|mi_token|mi_ratio|num_prompts|"
        r"conditional_entropy_token|conditional_entropy_sequence|retrieval_accuracy|retrieval_chance)"
    ),
)
STEP = "step"


def is_ours(name: str) -> bool:
    """Whether this is one of our metric names that a verdict or a page uses."""
    return name in KNOWN or any(pattern.fullmatch(name) for pattern in PATTERNS)


def resolve(mapping: Mapping[str, str] | None) -> dict[str, str]:
    """`--map` as {our full name: their column}; `step` stays `step`. Raises UnknownName naming the nearest name of ours."""
    found = {}
    for ours, theirs in (mapping or {}).items():
        name = ours.strip()
        if name != STEP and name not in SHORT_NAMES and not is_ours(name):
            raise UnknownName("metric", name, {STEP, *SHORT_NAMES, *KNOWN})
        found[SHORT_NAMES.get(name, name)] = theirs.strip()
    return found


KNOWN = frozenset({*(name for name in SHORT_NAMES.values() if "/log/" not in name), *OTHER_NAMES})
