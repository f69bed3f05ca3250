"""Every threshold a verdict depends on, explained in one place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from ragen2.errors import ConfigError

QUARTER = 0.25


@dataclass(frozen=True)
class VerdictConfig:
    """Thresholds of the verdict. All shares are relative to a signal's reference in the same run: its start or, when better, its
    best smoothed value so far. Units (summed or averaged entropies, nats, rates) therefore do not matter.

    Most are a half, a quarter off or a tenth: round numbers on purpose. What a verdict needs is that signals agree, not that
    one of them passes a fine line; `moved` gives the settings by which this is tried.
    """

    format_share: float = 0.5
    """Half of the replies that parsed at best no longer do: the format is broken. Not enough for format collapse by itself: what
    is left (share of valid replies times share of success) must be below `format_share` times `success_share`, so that a
    run that still succeeds with fewer valid replies counts as degrading."""
    information_share: float = 0.15
    """Reasoning no longer depends on the prompt when MI / ceiling is below this share of its reference. Healthy runs drift down
    to a fifth of their best while the policy grows sure of itself; collapsed ones end within a tenth."""
    information_alarm_share: float = 0.1
    """The same on line, where nothing later can take it back: an alarm asks for more."""
    information_floor: float = 0.05
    """A reference of MI / ceiling at or below this never depended on the prompt: collapsed from the start. A twentieth of the
    ceiling is about the noise of 64 reasonings."""
    entropy_share: float = 0.1
    """Policy entropy is gone below this share of its start. A tenth, since entropy halves in every run that learns."""
    low_share: float = 0.5
    """H(Z|X) a token, or MI, below this share of its start is low: decides the regime and confirms entropy collapse."""
    success_share: float = 0.5
    """Success is lost below this share of its reference: half. It decides only together with broken format."""
    degraded_share: float = 0.75
    """A run is degrading when what is left (share of valid replies times share of success) is below this. A fall of success
    counts only when it is larger than `errors` standard errors of the difference."""
    spread_share: float = 0.1
    """The reward spread is gone below this share of its early mean (the early stop's share)."""
    solved_success: float = 0.95
    """Success over the last `solved_readings` training iterations from which a run is solved: healthy, whatever else stopped."""
    solved_readings: int = 5
    """Training iterations in a row that must be solved: one has few prompts and is solved by luck."""
    rise_errors: float = 2.5
    """Standard errors of the difference that the best third of the run must lie above its start for a run without any other
    finding to be called healthy. Three or four thirds are looked at, so two would call one flat run in ten healthy."""
    errors: float = 2.0
    """Standard errors that success must rise above its start to count as learned (about 1 in 40 by luck a reading)."""
    episodes: int = 512
    """Validation episodes a reading, where the log does not say: what the public code validates on."""
    in_a_row: int = 3
    """Readings that must agree: on line in a row, off line to the end. A single low reading is never an onset."""
    min_prompts: int = 4
    """Readings of mutual information with fewer distinct prompts are left out: their ceiling is too low."""
    min_steps: int = 15
    """A run shorter than this that shows no collapse is undecided."""
    block: int = 5
    """Training success and returns are averaged over this many iterations before they are compared: one has few prompts."""

    def __post_init__(self) -> None:
        shares = {name: value for name, value in vars(self).items() if name.endswith(("_share", "_floor"))}
        for name, value in shares.items():
            if not 0 < value < 1:
                raise ConfigError(f"verdict {name} is {value}; it must be between 0 and 1")
        if min(self.in_a_row, self.block, self.episodes, self.solved_readings) < 1 or self.min_prompts < 2:
            raise ConfigError("verdict: in_a_row, block, episodes and solved_readings must be at least 1, min_prompts at least 2")

    def moved(self, by: float = QUARTER) -> Iterator[tuple[str, VerdictConfig]]:
        """(name of the threshold, settings with only that one moved), each down and up by the share `by`: whole numbers by at
        least 1; a share that would reach 1 goes halfway there."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int):
                change = max(1, round(value * by))
                lowest = 2 if item.name == "min_prompts" else 1
                low, high = max(value - change, lowest), value + change
            else:
                low, high = value * (1 - by), value * (1 + by)
                high = (1 + value) / 2 if value < 1 <= high else high
            yield item.name, replace(self, **{item.name: low})
            yield item.name, replace(self, **{item.name: high})
