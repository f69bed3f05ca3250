"""What an algorithm is: a rule for advantages, whether it needs a critic, and its own defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ragen2.errors import ConfigError


@dataclass(frozen=True)
class Algorithm:
    """A way to turn returns into advantages.

    Without a critic `advantages` is `(returns_PG, *, valid_PG=None) -> advantages_PG`; with one it is
    `(rewards_BT, values_BT, model_mask_BT, gamma, lam) -> (advantages_BT, returns_BT)`. `defaults` holds the keys of
    AlgorithmConfig in which the algorithm differs from the shared defaults.
    """

    name: str
    summary: str
    advantages: Callable[..., Any]
    uses_critic: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    min_group_size: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "defaults", MappingProxyType(dict(self.defaults)))

    def check_group_size(self, group_size: int) -> None:
        """Raises ConfigError when groups are too small for the algorithm to learn anything."""
        if group_size < self.min_group_size:
            raise ConfigError(
                f"algorithm {self.name!r} compares the trajectories of a prompt and needs a group size of at least "
                f"{self.min_group_size}, not {group_size}: every advantage would be 0. Raise the group size or use ppo."
            )
