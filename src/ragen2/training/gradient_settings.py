"""What a gradient analysis samples and how it divides it."""

from __future__ import annotations

from dataclasses import dataclass

from ragen2.diagnostics.gradient_buckets import check_edges
from ragen2.diagnostics.gradient_norms import MOST_BLOCKS
from ragen2.errors import ConfigError

MOST_GROUPS = 100_000
MOST_SEED = 2**32


@dataclass(frozen=True)
class ProbeSettings:
    """What to sample and how to divide it. Raises ConfigError for a value that cannot be used."""

    groups: int = 32
    group_size: int = 16
    buckets: int = 6
    edges: tuple[float, ...] | None = None
    """Fixed edges of the spread in place of `buckets` equal counts."""
    spread: str = "variance"
    """Sample variance (ddof 1) of a group's task returns, or its root: variance, std."""
    zero_apart: bool = True
    seed: int = 0
    blocks: int = 8
    """Blocks that halves are made of; memory for as many gradient vectors is needed."""
    bound_groups: int = 4
    """Groups whose bound is checked, one backward pass a trajectory."""

    def __post_init__(self) -> None:
        if not 1 <= self.groups <= MOST_GROUPS:
            raise ConfigError(f"groups is {self.groups}; it must be from 1 to {MOST_GROUPS}")
        if self.group_size < 2:
            raise ConfigError(f"group size is {self.group_size}; a spread of returns needs at least 2 trajectories a group")
        if self.edges is not None:
            check_edges(self.edges)
        elif not 1 <= self.buckets <= self.groups:
            raise ConfigError(f"{self.buckets} buckets for {self.groups} groups; give 1 to {self.groups} buckets, or more groups")
        if self.spread not in ("variance", "std"):
            raise ConfigError(f"spread is {self.spread!r}; allowed: variance, std")
        if not 0 <= self.seed < MOST_SEED:
            raise ConfigError(f"seed is {self.seed}; it must be from 0 to {MOST_SEED - 1}")
        if not 2 <= self.blocks <= MOST_BLOCKS or self.blocks % 2:
            raise ConfigError(f"blocks is {self.blocks}; it must be an even number from 2 to {MOST_BLOCKS}")
        if not 0 <= self.bound_groups <= MOST_GROUPS:
            raise ConfigError(f"bound groups is {self.bound_groups}; it must be from 0 to {MOST_GROUPS}")
