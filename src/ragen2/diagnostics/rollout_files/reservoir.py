"""A bounded random part of the turns of a step, kept for scoring: some prompts, some reasonings of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from ragen2.diagnostics.rollout_files.sample import Sample, TextOrIds, digest

MOST_TURNS = 32
"""Turn indices of the trajectory view that are kept."""


@dataclass
class Kept:
    """A context with reasonings drawn from those sampled in it; `seen` counts all of them."""

    context: TextOrIds
    reasonings: list[TextOrIds] = field(default_factory=list)
    seen: int = 0


@dataclass
class Prompts:
    """Up to `most` prompts, those of the lowest rank. A rank is a salted digest, so a prompt that lost its place stays out."""

    most: int
    kept: dict[str, tuple[bytes, Kept]] = field(default_factory=dict)
    turns: int = 0
    dropped: int = 0

    def place(self, key: str, rank: bytes, context: TextOrIds) -> Kept | None:
        """The place of a prompt, made when its rank is among the lowest; None when it is not."""
        held = self.kept.get(key)
        if held is not None:
            return held[1]
        if len(self.kept) >= self.most:
            worst = max(self.kept, key=lambda name: self.kept[name][0])
            if self.kept[worst][0] <= rank:
                return None
            del self.kept[worst]
        self.kept[key] = rank, Kept(context)
        return self.kept[key][1]


class Reservoir:
    """Turns of one step. First turns: `prompts` distinct contexts an environment, `per_prompt` reasonings each. Later views:
    for every turn index one turn a prompt. All draws are without replacement and uniform."""

    def __init__(self, prompts: int, per_prompt: int, salt: bytes, rng: np.random.Generator) -> None:
        self.prompts, self.per_prompt, self.salt, self.rng = prompts, per_prompt, salt, rng
        self.first: dict[str, Prompts] = {}
        self.by_turn: dict[tuple[str, int], Prompts] = {}
        self.no_context = 0

    def add(self, sample: Sample) -> None:
        """Offer one turn."""
        if sample.context is None or len(sample.context) == 0:
            self.no_context += 1
            return
        if sample.turn == 0:
            first = self.first.setdefault(sample.environment, Prompts(self.prompts))
            kept = self._place(first, digest(sample.context), sample)
            if kept is not None and sample.reasoning is not None:
                place = self._drawn(kept, self.per_prompt)
                kept.reasonings[place : place + 1] = [sample.reasoning] if place < self.per_prompt else []
        if sample.turn < MOST_TURNS:
            turns = self.by_turn.setdefault((sample.environment, sample.turn), Prompts(self.prompts))
            kept = None if sample.reasoning is None else self._place(turns, sample.prompt_key, sample)
            if sample.reasoning is None:
                turns.turns, turns.dropped = turns.turns + 1, turns.dropped + 1
            elif kept is not None and self._drawn(kept, 1) == 0:
                kept.context, kept.reasonings = sample.context, [sample.reasoning]

    def _place(self, prompts: Prompts, key: str, sample: Sample) -> Kept | None:
        prompts.turns += 1
        prompts.dropped += sample.reasoning is None
        rank = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, key=self.salt).digest()
        return None if sample.context is None else prompts.place(key, rank, sample.context)

    def _drawn(self, kept: Kept, most: int) -> int:
        """Where the next of `seen` items goes among the `most` that are held; `most` or more: nowhere."""
        kept.seen += 1
        return kept.seen - 1 if kept.seen <= most else int(self.rng.integers(kept.seen))
