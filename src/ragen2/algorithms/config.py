"""Settings of the policy update, as a user writes them (`algorithm.clip_high=0.3`) and after the algorithm filled the gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ragen2.algorithms.checks import require_choice, require_flag, require_number

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"]
KlEstimator = Literal["k1", "k2", "k3"]
KlPlace = Literal["loss", "reward"]

AGGREGATIONS: tuple[Aggregation, ...] = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")
KL_ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3")
KL_PLACES: tuple[KlPlace, ...] = ("loss", "reward")


@dataclass(frozen=True)
class AlgorithmConfig:
    """The policy update. A key left at None takes the algorithm's own value; `resolve` fills it. Raises ConfigError for a bad
    value."""

    name: str = "ppo"
    """ppo, grpo, dr_grpo, dapo, rloo, or one that `register_algorithm` added."""
    aggregation: Aggregation | None = None
    """How token losses become one number: over all tokens, over trajectories of token means, or of token sums over the
    horizon."""
    clip_low: float | None = None
    """The probability ratio counts down to 1 - clip_low."""
    clip_high: float | None = None
    """The probability ratio counts up to 1 + clip_high."""
    dual_clip: float | None = None
    """Bound c > 1 on the loss of tokens with a negative advantage (c times its size); 0 is off."""
    gamma: float | None = None
    """Discount from token to token."""
    lam: float | None = None
    """Decay of generalised advantage estimation, between tokens and (bi-level) between turns."""
    turn_gamma: float | None = None
    """Discount from turn to turn, used when bi_level is on."""
    bi_level: bool | None = None
    """Estimate advantages over turns first, then over the tokens inside each. Needs a critic."""
    whiten: bool | None = None
    """Bring the advantages of the kept tokens to mean 0 and deviation 1."""
    kl_coef: float | None = None
    """Weight of the divergence from the frozen reference; 0 is off."""
    kl_estimator: KlEstimator | None = None
    """k1, k2 or k3. In the loss k2 has the gradient of the reverse divergence on policy; in the reward k1 is unbiased."""
    kl_in: KlPlace | None = None
    """Where the divergence acts: a term of the loss, or taken from each token's reward."""
    entropy_coef: float | None = None
    """Weight of the entropy bonus; 0 is off."""
    value_clip: float | None = None
    """How far a new value may move from the old one before the value loss stops rewarding it; 0 is off. Needs a critic."""
    dynamic_sampling: bool | None = None
    """Drop groups of equal returns and sample others in their place, bounded (the filter's preset `dynamic-sampling`)."""
    overlong_share: float | None = None
    """Last share of the reply's token limit in which the overlong penalty grows."""
    overlong_factor: float | None = None
    """Largest overlong penalty, taken from the return; 0 is off."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            require_choice("algorithm.name", self.name, ("ppo", "grpo", "dr_grpo", "dapo", "rloo"))
        for key, low, high in _RANGES:
            value = getattr(self, key)
            if value is not None:
                require_number(f"algorithm.{key}", value, low, high)
        if self.dual_clip:
            require_number("algorithm.dual_clip (0 is off)", self.dual_clip, 1.0, above=True)
        for key, options in (("aggregation", AGGREGATIONS), ("kl_estimator", KL_ESTIMATORS), ("kl_in", KL_PLACES)):
            value = getattr(self, key)
            if value is not None:
                require_choice(f"algorithm.{key}", value, options)
        for key in ("bi_level", "whiten", "dynamic_sampling"):
            value = getattr(self, key)
            if value is not None:
                require_flag(f"algorithm.{key}", value)


_RANGES = (
    ("clip_low", 0.0, 1.0),
    ("clip_high", 0.0, 1e6),
    ("dual_clip", 0.0, 1e6),
    ("gamma", 0.0, 1.0),
    ("lam", 0.0, 1.0),
    ("turn_gamma", 0.0, 1.0),
    ("kl_coef", 0.0, 1e6),
    ("entropy_coef", -1e6, 1e6),
    ("value_clip", 0.0, 1e9),
    ("overlong_share", 0.0, 1.0),
    ("overlong_factor", 0.0, 1e6),
)


@dataclass(frozen=True)
class ResolvedAlgorithm(AlgorithmConfig):
    """An AlgorithmConfig in which no key is None: what the trainer works with. Made by `resolve`."""

    aggregation: Aggregation = "token-mean"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 3.0
    gamma: float = 1.0
    lam: float = 1.0
    turn_gamma: float = 0.95
    bi_level: bool = False
    whiten: bool = False
    kl_coef: float = 0.0
    kl_estimator: KlEstimator = "k2"
    kl_in: KlPlace = "loss"
    entropy_coef: float = 0.001
    value_clip: float = 0.5
    dynamic_sampling: bool = False
    overlong_share: float = 0.2
    overlong_factor: float = 0.0
