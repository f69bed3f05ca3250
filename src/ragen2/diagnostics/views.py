"""Which contexts compete: pairs of context and reasoning drawn from a batch, by environment and turn index.

Source: the RAGEN-2 paper (arXiv 2604.06268), cross-scoring of in-batch reasonings. Contexts of different environments or turn
indices never compete: telling them apart needs no reading of the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ragen2.trajectory import Ids, RolloutBatch, Trajectory, Turn

MIN_TRAJECTORY_PROMPTS = 4
"""A turn index with fewer distinct contexts is skipped in the trajectory view: its ceiling log N is too low to read."""


@dataclass(frozen=True)
class Slice:
    """Contexts that compete: one environment, one turn index. `source_S[s]` is the context reasoning s was sampled in."""

    environment: str
    turn: int
    contexts: tuple[Ids, ...]
    reasonings: tuple[Ids, ...]
    source_S: np.ndarray

    @property
    def lengths_S(self) -> np.ndarray:
        """Tokens of each reasoning."""
        return np.array([len(ids) for ids in self.reasonings], dtype=np.int64)


@dataclass(frozen=True)
class View:
    """Slices to score one by one; the figure is their mean weighted by reasonings.

    `turns` is how many turns were looked at, `dropped` how many of them had no reasoning, by parse status, `skipped` says why
    a slice is missing. An empty reasoning is a reasoning: it is kept, and counted in `empty`.
    """

    name: str
    slices: tuple[Slice, ...]
    turns: int
    dropped: dict[str, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    @property
    def empty(self) -> int:
        """Reasonings without a token."""
        return sum(len(ids) == 0 for part in self.slices for ids in part.reasonings)


def first_turn_view(
    batch: RolloutBatch, rng: np.random.Generator, per_prompt: int | None = 16, *, name: str = "first_turn"
) -> View:
    """First turns of every valid trajectory: all distinct prompts compete, up to `per_prompt` reasonings each (None: all).

    Reasonings are drawn without replacement. Prompts are the same where their context ids are the same. A prompt without a
    reasoning stays among the contexts.
    """
    slices: list[Slice] = []
    dropped: Counter[str] = Counter()
    seen = 0
    for environment, trajectories in _by_environment(batch):
        contexts: dict[bytes, Ids] = {}
        spoken: dict[bytes, list[Ids]] = {}
        for trajectory in trajectories:
            if not trajectory.turns:
                continue
            seen += 1
            turn = trajectory.turns[0]
            key = content_key(turn.context_ids)
            contexts.setdefault(key, turn.context_ids)
            reasoning = _reasoning(turn, dropped)
            if reasoning is not None:
                spoken.setdefault(key, []).append(reasoning)
        pairs = [(key, ids) for key in contexts for ids in _draw(spoken.get(key, []), per_prompt, rng)]
        slices.append(_slice(environment, 0, contexts, pairs))
    return View(name, tuple(slices), seen, dict(dropped), () if slices else ("no valid trajectory",))


def probe_view(batch: RolloutBatch, rng: np.random.Generator) -> View:
    """First turns of a fixed held-out set of distinct prompts, every reasoning used.

    With many prompts the ceiling log N is high, so that a healthy policy is not stuck at it from start to end.
    """
    return first_turn_view(batch, rng, None, name="probe")


def trajectory_view(batch: RolloutBatch, rng: np.random.Generator) -> View:
    """For each turn index, one trajectory per distinct prompt, drawn without replacement among those with a reasoning there.

    A turn index with fewer than `MIN_TRAJECTORY_PROMPTS` distinct contexts is skipped, and said so.
    """
    slices: list[Slice] = []
    skipped: list[str] = []
    dropped: Counter[str] = Counter()
    seen = 0
    for environment, trajectories in _by_environment(batch):
        for index in range(max((len(trajectory.turns) for trajectory in trajectories), default=0)):
            candidates: dict[bytes, list[Turn]] = {}
            for trajectory in trajectories:
                if index >= len(trajectory.turns):
                    continue
                seen += 1
                if _reasoning(trajectory.turns[index], dropped) is not None:
                    key = content_key(trajectory.turns[0].context_ids)
                    candidates.setdefault(key, []).append(trajectory.turns[index])
            chosen = [turns[int(rng.integers(len(turns)))] for turns in candidates.values()]
            contexts = {content_key(turn.context_ids): turn.context_ids for turn in chosen}
            if len(contexts) < MIN_TRAJECTORY_PROMPTS:
                skipped.append(f"{environment} turn {index}: {len(contexts)} distinct contexts, needs {MIN_TRAJECTORY_PROMPTS}")
                continue
            pairs = [(content_key(t.context_ids), t.reasoning_ids) for t in chosen if t.reasoning_ids is not None]
            slices.append(_slice(environment, index, contexts, pairs))
    return View("trajectory", tuple(slices), seen, dict(dropped), tuple(skipped))


def content_key(ids: Ids) -> bytes:
    """Equal exactly when the token ids are equal."""
    return np.ascontiguousarray(ids, dtype=np.int64).tobytes()


def _by_environment(batch: RolloutBatch) -> Iterator[tuple[str, list[Trajectory]]]:
    found: dict[str, list[Trajectory]] = {}
    for trajectory in batch.trajectories:
        if trajectory.valid:
            found.setdefault(trajectory.environment, []).append(trajectory)
    yield from found.items()


def _reasoning(turn: Turn, dropped: Counter[str]) -> Ids | None:
    if turn.reasoning_ids is None:
        dropped[turn.parse_status] += 1
    return turn.reasoning_ids


def _draw(items: list[Ids], most: int | None, rng: np.random.Generator) -> list[Ids]:
    if most is None or len(items) <= most:
        return items
    return [items[i] for i in sorted(rng.choice(len(items), size=most, replace=False))]


def _slice(environment: str, turn: int, contexts: dict[bytes, Ids], pairs: list[tuple[bytes, Ids]]) -> Slice:
    column = {key: number for number, key in enumerate(contexts)}
    source_S = np.array([column[key] for key, _ in pairs], dtype=np.int64)
    return Slice(environment, turn, tuple(contexts.values()), tuple(ids for _, ids in pairs), source_S)
