"""One turn of one trajectory as a rollout file tells it, and what was said while reading."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

from ragen2.trajectory import Ids

TextOrIds = str | Ids
"""Text, or the token ids that were shown or sampled."""


@dataclass(frozen=True)
class Episode:
    """What the turns of one trajectory have in common.

    `prompt_key` names the group: trajectories of one prompt share it within a step. `trajectory` tells trajectories of a step
    apart. `ret` is the return, `task_ret` the return without format penalties where the file tells them apart, `success`
    whether the task was solved; None where the file does not say. `split` is train or validation.
    """

    step: int
    prompt_key: str
    environment: str
    trajectory: str
    ret: float | None = None
    success: bool | None = None
    task_ret: float | None = None
    split: str = "train"


@dataclass(frozen=True)
class Sample:
    """One turn. The turns of a trajectory follow one another; `turn` counts from 0.

    `context` is everything shown before the reasoning, the opening think tag included; None where the file does not hold it.
    `reasoning` is what stands between the think tags, None where the reply does not parse. Both are token ids where the file
    holds them, else text. `tokens` counts the sampled tokens of the turn (a file that knows only the sum over a trajectory
    puts it on the first turn), None where unknown. `status` is a parse status of `ragen2.prompting.reply`.
    """

    episode: Episode
    turn: int
    context: TextOrIds | None
    reasoning: TextOrIds | None
    reply: str
    status: str
    truncated: bool | None = None
    tokens: int | None = None

    @property
    def valid_think(self) -> bool:
        """Whether the reply has the form the format asks for."""
        return self.status == "ok"

    @property
    def step(self) -> int:
        """Training step, 0 where the file knows none."""
        return self.episode.step

    @property
    def prompt_key(self) -> str:
        """Names the group within a step."""
        return self.episode.prompt_key

    @property
    def environment(self) -> str:
        """Where the trajectory was played; empty where the file does not say."""
        return self.episode.environment

    @property
    def ret(self) -> float | None:
        """Return of the whole trajectory."""
        return self.episode.ret

    @property
    def success(self) -> bool | None:
        """Whether the trajectory solved its task."""
        return self.episode.success


@dataclass
class ReadReport:
    """Collects what a reader left out, by reason, and what it assumed."""

    skipped: Counter[str] = field(default_factory=Counter)
    assumptions: dict[str, None] = field(default_factory=dict)

    def skip(self, reason: str) -> None:
        """Count something that was left out; `reason` reads like "broken lines"."""
        self.skipped[reason] += 1

    def assume(self, text: str) -> None:
        """Say once what was taken for granted."""
        self.assumptions.setdefault(text)

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything as sentences."""
        left_out = [f"left out: {count} {reason}" for reason, count in sorted(self.skipped.items())]
        return (*self.assumptions, *left_out)


def digest(value: TextOrIds) -> str:
    """Eight bytes that stand for a text or token ids: equal contents, equal digests."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value.astype("<i8").tobytes()
    return blake2b(data, digest_size=8).hexdigest()
