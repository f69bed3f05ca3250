"""Which contexts compete: pairs of context and reasoning drawn from a batch, by environment and turn index.

Source: the RAGEN-2 paper (arXiv 2604.06268), cross-scoring of in-batch reasonings. Contexts of different environments never
compete, those of different turn indices only in the mixed view: telling them apart needs no reading of the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ragen2.trajectory import Ids, RolloutBatch, Trajectory, Turn

MIN_TRAJECTORY_PROMPTS = 4
"""A turn index with fewer distinct contexts is skipped in the trajectory view: its ceiling log N is too low to read."""

MIXED_DRAWS = 64
"""Reasonings of an environment in the mixed view (the paper's number)."""

MIXED_DEPTHS = -1
"""Turn index of a slice whose contexts stand at different depths."""


@dataclass(frozen=True)
class Slice:
    """Contexts that compete: one environment, one turn index (`MIXED_DEPTHS`: several). `source_S[s]` is the context reasoning s
    was sampled in. `prompts[n]` marks the prompt of context n; empty where every context is a prompt of its own.
    """

    environment: str
    turn: int
    contexts: tuple[Ids, ...]
    reasonings: tuple[Ids, ...]
    source_S: np.ndarray
    prompts: tuple[bytes, ...] = ()

    @property
    def where(self) -> str:
        """The slice in words."""
        return f"{self.environment} {'mixed turns' if self.turn == MIXED_DEPTHS else f'turn {self.turn}'}"

    @property
    def prompt_labels(self) -> tuple[tuple[str, bytes], ...]:
        """Environment and prompt of each context."""
        keys = self.prompts or tuple(content_key(ids) for ids in self.contexts)
        return tuple((self.environment, key) for key in keys)

    @property
    def lengths_S(self) -> np.ndarray:
        """Tokens of each reasoning."""
        return np.array([len(ids) for ids in self.reasonings], dtype=np.int64)


@dataclass(frozen=True)
class View:
    """Slices to score one by one; the figure is their mean weighted by reasonings.

    `turns` is how many turns were looked at, `dropped` how many of them had no reasoning, by parse status, `skipped` says why
    a slice is missing. An empty reasoning is a reasoning: it is kept, and counted in `empty`. `leaking` counts, in the mixed
    view, the pairs of `leaking_pairs`.
    """

    name: str
    slices: tuple[Slice, ...]
    turns: int
    dropped: dict[str, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    leaking: int | None = None

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
            chosen = [(key, turns[int(rng.integers(len(turns)))]) for key, turns in candidates.items()]
            part = _slice_of_turns(environment, index, chosen)
            if len(part.contexts) < MIN_TRAJECTORY_PROMPTS:
                skipped.append(_too_few(part))
            else:
                slices.append(part)
    return View("trajectory", tuple(slices), seen, dict(dropped), tuple(skipped))


def mixed_view(
    batch: RolloutBatch, rng: np.random.Generator, draws: int = MIXED_DRAWS, *, per_trajectory: int | None = 1
) -> View:
    """Contexts of all depths compete: `draws` reasonings of each environment, the trajectory drawn first, then its turn.

    This is what the public code of the RAGEN-2 paper calls trajectory sampling, without replacement and with equal contexts
    merged. Depth alone tells many of these contexts apart, so the figure is no measure of reading the state; use it to compare.
    A later context of the same trajectory holds the reasoning word for word, which makes it likely there and drives the figure
    below zero: by default a trajectory gives one turn, so that none competes. `per_trajectory=None` draws all turns as the
    public code does; `View.leaking` counts the pairs concerned.
    """
    slices: list[Slice] = []
    skipped: list[str] = []
    dropped: Counter[str] = Counter()
    seen = 0
    for environment, trajectories in _by_environment(batch):
        spoken: list[list[tuple[bytes, Turn]]] = []
        for trajectory in trajectories:
            seen += len(trajectory.turns)
            parsed = [turn for turn in trajectory.turns if _reasoning(turn, dropped) is not None]
            if parsed:
                key = content_key(trajectory.turns[0].context_ids)
                spoken.append([(key, parsed[i]) for i in rng.permutation(len(parsed))[:per_trajectory]])
        part = _slice_of_turns(environment, MIXED_DEPTHS, _drawn(spoken, draws, rng))
        if len(part.contexts) < MIN_TRAJECTORY_PROMPTS:
            skipped.append(_too_few(part))
        else:
            slices.append(part)
    leaking = sum(int(leaking_pairs(part).sum()) for part in slices)
    return View("mixed", tuple(slices), seen, dict(dropped), tuple(skipped), leaking)


def leaking_pairs(part: Slice) -> np.ndarray:
    """Where a context other than its own holds a reasoning word for word: bool [reasonings, contexts].

    Such a context makes the reasoning likely by copying. An empty reasoning leaks nowhere.
    """
    held_SN = np.zeros((len(part.reasonings), len(part.contexts)), dtype=bool)
    contexts = [content_key(ids) for ids in part.contexts]
    for row, ids in enumerate(part.reasonings):
        if len(ids):
            held_SN[row] = [_holds(context, content_key(ids)) for context in contexts]
            held_SN[row, part.source_S[row]] = False
    return held_SN


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


def _slice_of_turns(environment: str, index: int, chosen: list[tuple[bytes, Turn]]) -> Slice:
    """Turns with a reasoning, each with the key of its prompt."""
    contexts: dict[bytes, Ids] = {}
    prompts: dict[bytes, bytes] = {}
    for prompt, turn in chosen:
        key = content_key(turn.context_ids)
        contexts.setdefault(key, turn.context_ids)
        prompts.setdefault(key, prompt)
    pairs = [(content_key(turn.context_ids), turn.reasoning_ids) for _, turn in chosen if turn.reasoning_ids is not None]
    return replace(_slice(environment, index, contexts, pairs), prompts=tuple(prompts.values()))


def _too_few(part: Slice) -> str:
    return f"{part.where}: {len(part.contexts)} distinct contexts, needs {MIN_TRAJECTORY_PROMPTS}"


def _drawn(spoken: list[list[tuple[bytes, Turn]]], draws: int, rng: np.random.Generator) -> list[tuple[bytes, Turn]]:
    """A trajectory drawn uniformly among those that have a turn left, then its next turn; `draws` times or until none is left."""
    chosen: list[tuple[bytes, Turn]] = []
    left = [list(turns) for turns in spoken]
    while left and len(chosen) < draws:
        place = int(rng.integers(len(left)))
        chosen.append(left[place].pop())
        if not left[place]:
            del left[place]
    return chosen


def _holds(context: bytes, reasoning: bytes) -> bool:
    # Ids are eight bytes each: a match that starts inside an id is none.
    place = context.find(reasoning)
    while place % 8 and place != -1:
        place = context.find(reasoning, place + 1)
    return place != -1
