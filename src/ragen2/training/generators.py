"""The run's random generators: one stream a purpose, all from the run's seed, all saved in checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass
class Generators:
    """Independent streams, so that measuring more or less never changes what is sampled."""

    levels: np.random.Generator
    sampling: np.random.Generator
    filtering: np.random.Generator
    batches: np.random.Generator
    monitor: np.random.Generator

    @classmethod
    def from_seed(cls, seed: int) -> Generators:
        """Fresh streams of a run."""
        children = np.random.SeedSequence(seed).spawn(len(fields(cls)))
        return cls(*(np.random.Generator(np.random.PCG64(child)) for child in children))

    def state_dict(self) -> dict[str, Any]:
        """JSON-able state of every stream."""
        return {item.name: getattr(self, item.name).bit_generator.state for item in fields(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        for item in fields(self):
            getattr(self, item.name).bit_generator.state = state[item.name]
