"""Settings of the group filter, as a user writes them (`filter.top_p=0.8`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ragen2.algorithms.checks import require_choice, require_flag, require_number
from ragen2.errors import ConfigError

Mode = Literal["top_p", "softmax_top_p", "top_k", "top_k_count", "min_p", "none"]
Score = Literal["variance", "std", "mean", "sum", "entropy", "entropy_variance", "length"]

MODES: tuple[Mode, ...] = ("top_p", "softmax_top_p", "top_k", "top_k_count", "min_p", "none")
RETURN_SCORES: tuple[Score, ...] = ("variance", "std", "mean", "sum")
OTHER_SCORES: tuple[Score, ...] = ("entropy", "entropy_variance", "length")


@dataclass(frozen=True)
class FilterConfig:
    """Which groups of a batch are trained on. The default is the paper's filter (arXiv 2604.06268 section 3).

    Raises ConfigError for a value that is not allowed.
    """

    mode: Mode = "top_p"
    """top_p: the fewest groups that hold a share of the total score · softmax_top_p: the same over softmax(score), what the
    published scripts ran · top_k: a share of the groups · top_k_count: a number of groups · min_p: groups that reach a share of
    the best score · none: off."""
    score: Score = "variance"
    """variance (sample variance of the returns, ddof 1), std, mean, sum; entropy, entropy_variance and length are measured by
    the trainer."""
    top_p: float = 0.9
    """Share of the total that top_p and softmax_top_p keep, above 0 and at most 1. 1 keeps every candidate."""
    top_k: float = 0.5
    """Share of the groups that top_k keeps, rounded down, at least one."""
    top_k_count: int = 4
    """Number of groups that top_k_count keeps."""
    min_p: float = 0.2
    """Share of the best score that a group must reach under min_p."""
    direction: Literal["largest", "smallest"] = "largest"
    """Which end is kept; smallest is a control."""
    include_zero: bool | None = None
    """Whether groups with a score of 0 can be kept. None is the mode's rule: no for top_p with the largest, yes for all
    others."""
    control: Literal["none", "random"] = "none"
    """random keeps as many groups as this filter would, drawn at random: the control for training on less."""
    within_environment: bool = True
    """Select within each environment; otherwise over the whole batch, where rewards of different scale compete."""
    include_penalty: bool = False
    """Score returns with the format penalty in them (the public code) instead of the task's own."""
    gate: float = 0.0
    """Keep all groups while the deviations of the groups' returns are alike: their std / mean under this. 0 is off; the paper's
    table 8 suggests about 0.5."""
    loss_scaling: Literal["none", "kept", "sqrt"] = "none"
    """Factor on the loss: 1, the share of groups kept, or its square root."""
    updates: Literal["fixed", "shrink"] = "fixed"
    """fixed spreads the kept trajectories over the same number of optimiser steps; shrink takes fewer steps with fewer groups
    (the public code)."""
    on_empty: Literal["skip", "refill"] = "skip"
    """What to do when nothing is kept: no update, or sample other prompts (dynamic sampling)."""
    refill_share: float = 0.0
    """With refill, sample again until this share of the iteration's groups is kept; 0 asks for a single group, 1 for a full
    batch."""
    max_refills: int = 3
    """Most samplings again in one iteration."""

    def __post_init__(self) -> None:
        for key, options in _CHOICES.items():
            require_choice(f"filter.{key}", getattr(self, key), options)
        for key in ("top_p", "top_k"):
            require_number(f"filter.{key}", getattr(self, key), 0.0, 1.0, above=True)
        for key in ("min_p", "refill_share"):
            require_number(f"filter.{key}", getattr(self, key), 0.0, 1.0)
        require_number("filter.gate", self.gate, 0.0)
        for key, low in (("top_k_count", 1), ("max_refills", 0)):
            require_number(f"filter.{key}", getattr(self, key), low, whole=True)
        for key in ("within_environment", "include_penalty"):
            require_flag(f"filter.{key}", getattr(self, key))
        if self.include_zero is not None:
            require_flag("filter.include_zero", self.include_zero)
        if self.control == "random" and self.mode == "none":
            raise ConfigError(
                "filter.control is 'random' with filter.mode 'none', which keeps all groups: choose the mode to imitate."
            )

    @property
    def keeps_zero(self) -> bool:
        """Whether groups with a score of 0 are candidates."""
        if self.include_zero is not None:
            return self.include_zero
        return not (self.mode == "top_p" and self.direction == "largest")


_CHOICES: dict[str, tuple[str, ...]] = {
    "mode": MODES,
    "score": RETURN_SCORES + OTHER_SCORES,
    "direction": ("largest", "smallest"),
    "control": ("none", "random"),
    "loss_scaling": ("none", "kept", "sqrt"),
    "updates": ("fixed", "shrink"),
    "on_empty": ("skip", "refill"),
}
