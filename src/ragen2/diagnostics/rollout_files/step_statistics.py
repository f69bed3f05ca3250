"""Figures of a training step counted turn by turn: nothing but sums is kept, and one line a group."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from ragen2.diagnostics.rollout_files.sample import Sample, TextOrIds, digest
from ragen2.diagnostics.signals import EQUAL_RETURNS, spread_figures

MOST_GROUPS = 1 << 16
"""Groups of a step whose returns are followed."""

MOST_REASONINGS = 1 << 14
"""Reasonings of a step that are compared word for word."""


@dataclass
class Mean:
    """A running mean of what is known; `unknown` counts the rest."""

    total: float = 0.0
    count: int = 0
    unknown: int = 0

    def add(self, value: float | None) -> None:
        """None is unknown."""
        if value is None:
            self.unknown += 1
        else:
            self.total += value
            self.count += 1

    @property
    def value(self) -> float | None:
        """None where nothing is known."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class _Group:
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self.squares += step * (value - self.mean)
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)

    @property
    def variance(self) -> float:
        """Sample variance (ddof 1), exactly 0 where the returns are equal."""
        equal = self.highest - self.lowest <= EQUAL_RETURNS * max(1.0, abs(self.highest))
        return 0.0 if equal else self.squares / (self.count - 1)


@dataclass
class StepStatistics:
    """What is counted of one step."""

    turns: int = 0
    trajectories: int = 0
    tagged: int = 0
    """Replies that hold a think tag."""
    statuses: Counter[str] = field(default_factory=Counter)
    success: Mean = field(default_factory=Mean)
    returns: Mean = field(default_factory=Mean)
    task_returns: Mean = field(default_factory=Mean)
    truncated: Mean = field(default_factory=Mean)
    reasonings: int = 0
    empty: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    characters: int = 0
    groups: dict[str, _Group] = field(default_factory=dict)
    wordings: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """Digest of a reasoning: how often it was said, and under which prompt (None: under several)."""
    compared: int = 0
    dropped_groups: int = 0
    largest_group: int = 0
    """Trajectories of the largest group with known returns."""
    settled: dict[str, float] | None = None
    """Figures of groups and wordings once `settle` has been called."""

    def add(self, sample: Sample) -> None:
        """Count one turn; what belongs to the trajectory is counted with its first turn."""
        self.turns += 1
        self.statuses[sample.status] += 1
        self.tagged += "think>" in sample.reply
        self.truncated.add(None if sample.truncated is None else float(sample.truncated))
        self.characters += len(sample.reply)
        self.tokens += sample.tokens or 0
        self.unknown_tokens += sample.tokens is None
        if sample.turn == 0:
            self._add_trajectory(sample)
        if sample.reasoning is not None:
            self._add_reasoning(sample.reasoning, _group_key(sample))

    def _add_trajectory(self, sample: Sample) -> None:
        episode = sample.episode
        self.trajectories += 1
        self.success.add(None if episode.success is None else float(episode.success))
        self.returns.add(_finite(episode.ret))
        self.task_returns.add(_finite(episode.task_ret))
        value = _finite(episode.ret if episode.task_ret is None else episode.task_ret)
        if value is None:
            return
        if self.settled is not None:
            self.dropped_groups += 1
            return
        key = _group_key(sample)
        if key in self.groups or len(self.groups) < MOST_GROUPS:
            group = self.groups.setdefault(key, _Group())
            group.add(value)
            self.largest_group = max(self.largest_group, group.count)
        else:
            self.dropped_groups += 1

    def _add_reasoning(self, reasoning: TextOrIds, prompt: str) -> None:
        said = " ".join(reasoning.split()) if isinstance(reasoning, str) else reasoning
        self.reasonings += 1
        self.empty += len(said) == 0
        if self.compared >= MOST_REASONINGS or self.settled is not None:
            return
        self.compared += 1
        key = digest(said)
        count, before = self.wordings.get(key, (0, prompt))
        self.wordings[key] = count + 1, before if before == prompt else None

    def metrics(self) -> dict[str, float]:
        """Flat figures; what is unknown is missing."""
        known = {
            "train/success": self.success.value,
            "train/return": self.returns.value,
            "train/task_return": self.task_returns.value,
            "train/truncated_rate": self.truncated.value,
        }
        figures = {name: value for name, value in known.items() if value is not None}
        if self.turns:
            figures["collapse/valid_think_rate"] = self.statuses["ok"] / self.turns
            figures |= {f"parse/{status}": count / self.turns for status, count in sorted(self.statuses.items())}
        if self.trajectories:
            figures |= {"train/trajectories": float(self.trajectories), "train/turns": self.turns / self.trajectories}
            figures["text/response_characters"] = self.characters / self.trajectories
            if not self.unknown_tokens:
                figures["train/response_length"] = self.tokens / self.trajectories
        if self.reasonings:
            figures["collapse/empty_reasoning_rate"] = self.empty / self.reasonings
        return figures | (self._compared_figures() if self.settled is None else self.settled)

    def settle(self) -> None:
        """Give up the memory of groups and wordings; what comes later counts in neither."""
        self.settled = self._compared_figures()
        self.groups, self.wordings = {}, {}

    @property
    def held(self) -> int:
        """Entries in memory."""
        return len(self.groups) + len(self.wordings)

    def _compared_figures(self) -> dict[str, float]:
        figures: dict[str, float] = {}
        if self.compared:
            figures["text/distinct_reasonings"] = len(self.wordings) / self.compared
            prompts = {prompt for _, prompt in self.wordings.values()}
            if len(prompts) > 1 or None in prompts:
                shared = sum(count for count, prompt in self.wordings.values() if prompt is None)
                figures["text/shared_reasonings"] = shared / self.compared
        return figures | self._spread()

    def _spread(self) -> dict[str, float]:
        return spread_figures([group.variance for group in self.groups.values() if group.count > 1])


def _group_key(sample: Sample) -> str:
    return f"{sample.environment}\n{sample.prompt_key}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
