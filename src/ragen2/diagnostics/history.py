"""What became of each prompt over the run: how often seen, kept, failed by all, solved by all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from ragen2.errors import ConfigError
from ragen2.trajectory import RolloutBatch


@dataclass
class PromptRecord:
    """Counts over the visits of one prompt. A visit is one group with at least one valid trajectory."""

    visits: int = 0
    kept: int = 0
    all_failed: int = 0
    all_solved: int = 0


class PromptHistory:
    """History by prompt id. A prompt the filter never kept is *starved*: the policy was never trained on it.

    At most `limit` prompts are remembered; the one seen longest ago is forgotten first, and counted.
    """

    def __init__(self, limit: int = 100_000) -> None:
        if limit < 1:
            raise ConfigError(f"limit of the prompt history is {limit}; it must be at least 1")
        self.limit = limit
        self.forgotten = 0
        self._records: dict[str, PromptRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, prompt_id: str) -> PromptRecord:
        return self._records[prompt_id]

    def record(self, batch: RolloutBatch, kept_P: Sequence[bool] | np.ndarray) -> None:
        """Add one iteration. `kept_P` is in the order of `batch.groups`. Raises ConfigError when their numbers differ."""
        groups = batch.groups
        if len(groups) != len(kept_P):
            raise ConfigError(f"the batch has {len(groups)} groups but kept_P has {len(kept_P)} entries")
        for group, kept in zip(groups, kept_P, strict=True):
            wins = [trajectory.success for trajectory in group if trajectory.valid]
            if not wins:
                continue
            prompt_id = group[0].prompt_id
            record = self._records.pop(prompt_id, None) or PromptRecord()
            record.visits += 1
            record.kept += bool(kept)
            record.all_failed += not any(wins)
            record.all_solved += all(wins)
            self._records[prompt_id] = record
        while len(self._records) > self.limit:
            del self._records[next(iter(self._records))]
            self.forgotten += 1

    def metrics(self) -> dict[str, float]:
        """`history/…`: prompts seen, and how many of them were starved, always failed by all, always solved by all."""
        records = self._records.values()
        return {
            "history/prompts": float(len(records)),
            "history/visits": float(sum(record.visits for record in records)),
            "history/starved": float(sum(record.kept == 0 for record in records)),
            "history/starved_failed": float(sum(record.kept == 0 and record.all_failed == record.visits for record in records)),
            "history/all_failed": float(sum(record.all_failed == record.visits for record in records)),
            "history/all_solved": float(sum(record.all_solved == record.visits for record in records)),
        }

    def state_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"forgotten": self.forgotten, "prompts": {key: list(astuple(record)) for key, record in self._records.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.forgotten = int(state["forgotten"])
        self._records = {str(key): PromptRecord(*(int(n) for n in counts)) for key, counts in state["prompts"].items()}
