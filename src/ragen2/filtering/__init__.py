"""SNR-aware filtering of groups (the authors' page calls it SNR-Adaptive Filtering). Importing this loads numpy only."""

from ragen2.filtering.config import FilterConfig
from ragen2.filtering.decision import FilterDecision
from ragen2.filtering.presets import FILTER_PRESETS, filter_preset
from ragen2.filtering.scores import group_scores
from ragen2.filtering.select import select_groups, spread_ratio, wants_refill

__all__ = [
    "FILTER_PRESETS",
    "FilterConfig",
    "FilterDecision",
    "filter_preset",
    "group_scores",
    "select_groups",
    "spread_ratio",
    "wants_refill",
]
