"""Distributions over the next answer, p(a | context, reasoning), with contexts and reasonings of two turns put together.

For a turn (x, z) and a donor turn (x', z') of another prompt there are four: both its own, the donor's reasoning after its own
context, its own reasoning after the donor's context, both the donor's. The swap test and the counterfactual test read them.
Source of the idea: the RAGEN-2 paper (arXiv 2604.06268) leaves open whether reasoning that depends on the input is used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ragen2.diagnostics.action_distance import normalised
from ragen2.diagnostics.answers import AnswerSet, answer_set
from ragen2.diagnostics.cross_score import Progress, Scorer
from ragen2.diagnostics.views import content_key
from ragen2.errors import ConfigError, NotMeasurable, TokenMismatch
from ragen2.trajectory import Ids, RolloutBatch, Turn

if TYPE_CHECKING:
    from ragen2.prompting.chat_format import ChatFormat

AT_ONCE = 32
"""Contexts given to the scorer in one call."""


@dataclass(frozen=True)
class SwapConfig:
    """How much is measured. The cost is about turns x (1 + 3 donors) contexts with all candidate answers."""

    turns: int = 24
    """Most turns measured: one a prompt and turn index, the earliest turns first."""
    donors: int = 1
    """Donors of each kind (another prompt, another sample) for every turn."""
    most_answers: int = 32
    """Most candidate answers where the environment's answers are not given."""
    resamples: int = 1000
    """Bootstrap draws of the intervals."""
    level: float = 0.95
    """Level of the intervals."""

    def __post_init__(self) -> None:
        if self.turns < 2 or self.donors < 1 or self.most_answers < 2 or self.resamples < 1:
            raise ConfigError(
                f"swap test: turns is {self.turns}, donors {self.donors}, most_answers {self.most_answers}, resamples "
                f"{self.resamples}; they must be at least 2, 1, 2 and 1"
            )
        if not 0 < self.level < 1:
            raise ConfigError(f"swap test: level is {self.level}; it must be between 0 and 1")


@dataclass(frozen=True)
class PromptPairs:
    """Pairs of a turn and a donor of another prompt (same environment and turn index), probabilities over A answers.

    `own_NA` p(a | x, z) · `swapped_NA` p(a | x, z') · `moved_NA` p(a | x', z) · `donor_NA` p(a | x', z'). `prompt_N` names the
    turn's prompt. Answers that an environment does not have hold 0.
    """

    prompt_N: tuple[bytes, ...]
    own_NA: np.ndarray
    swapped_NA: np.ndarray
    moved_NA: np.ndarray
    donor_NA: np.ndarray


@dataclass(frozen=True)
class SamplePairs:
    """Pairs of a turn and another sample's different reasoning in the very same context."""

    prompt_N: tuple[bytes, ...]
    own_NA: np.ndarray
    swapped_NA: np.ndarray


@dataclass(frozen=True)
class ActionScores:
    """What was scored. `coverage` is the mean probability, after a turn's own context and reasoning, that the reply goes on with
    one of the candidates: near 1 the candidates stand for the policy's choice. `turns` have a donor of another prompt."""

    prompts: PromptPairs
    samples: SamplePairs
    coverage: float
    turns: int
    without_donor: int
    """Turns for which no other prompt had a different reasoning (or one that fitted)."""
    answers: dict[str, tuple[str, ...]]
    """Candidate answers by environment."""


@dataclass(frozen=True)
class _Site:
    environment: str
    index: int
    prompt: bytes
    trajectory: int
    turn: Turn
    reasoning: Ids


_Request = tuple[str, bytes, bytes]
"""Environment, context, reasoning."""


def score_actions(
    batch: RolloutBatch,
    scorer: Scorer,
    chat: ChatFormat,
    rng: np.random.Generator,
    config: SwapConfig | None = None,
    *,
    answers: Mapping[str, Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> ActionScores:
    """Score every candidate answer after the contexts and reasonings of a batch, as they are and put together anew.

    `answers` gives the closed answer set of an environment (see `move_answers`); without it the candidates are the distinct
    answers of the batch. Raises NotMeasurable with the reason: no reasoning, a single answer, no two prompts with different
    reasonings at one turn index; TokenMismatch when the scorer returns another number of tokens than it was given.
    """
    config = config or SwapConfig()
    sites = _sites(batch)
    if not sites:
        raise NotMeasurable("no turn has a reasoning to swap")
    candidates: dict[str, AnswerSet] = {}
    for name in dict.fromkeys(site.environment for site in sites):
        turns = [site.turn for site in sites if site.environment == name]
        candidates[name] = answer_set(turns, chat, (answers or {}).get(name), config.most_answers)
    limit = _context_limit(batch)
    chosen = _choose(sites, config.turns, rng)
    prompts, without = _other_prompts(chosen, config.donors, limit, candidates, rng)
    if not prompts:
        raise NotMeasurable(
            f"{len(chosen)} turns, but no two of different prompts at one turn index have different reasonings: nothing to swap"
        )
    samples = _other_samples(chosen, sites, config.donors, rng)
    scored = _score(scorer, _requests(prompts, samples), candidates, progress)
    return _assemble(prompts, samples, without, scored, candidates)


def _sites(batch: RolloutBatch) -> list[_Site]:
    return [
        _Site(trajectory.environment, turn.index, content_key(trajectory.turns[0].context_ids), number, turn, turn.reasoning_ids)
        for number, trajectory in enumerate(batch.trajectories)
        if trajectory.valid
        for turn in trajectory.turns
        if turn.reasoning_ids is not None
    ]


def _context_limit(batch: RolloutBatch) -> float:
    """Most tokens of a row in the rollouts: what is put together must fit as well."""
    given = batch.sampling.get("context_tokens")
    return float(given) if isinstance(given, int) and given > 0 else float("inf")


def _choose(sites: Sequence[_Site], most: int, rng: np.random.Generator) -> list[_Site]:
    """One turn a prompt and turn index, drawn at random, the earliest turn indices first: there the samples of a prompt share
    their context, and most prompts still play."""
    cells: dict[tuple[str, int, bytes], list[_Site]] = defaultdict(list)
    for site in sites:
        cells[site.environment, site.index, site.prompt].append(site)
    drawn = [members[int(rng.integers(len(members)))] for members in cells.values()]
    order = rng.permutation(len(drawn))
    return sorted((drawn[int(place)] for place in order), key=lambda site: site.index)[:most]


def _other_prompts(
    chosen: Sequence[_Site], donors: int, limit: float, candidates: Mapping[str, AnswerSet], rng: np.random.Generator
) -> tuple[list[tuple[_Site, _Site]], int]:
    """Pairs (turn, donor) and how many turns found no donor."""
    pairs: list[tuple[_Site, _Site]] = []
    without = 0
    for site in chosen:
        tail = max(len(ids) for ids in candidates[site.environment].tails)
        fitting = [
            other
            for other in chosen
            if (other.environment, other.index) == (site.environment, site.index)
            and other.prompt != site.prompt
            and not np.array_equal(other.reasoning, site.reasoning)
            and max(_length(site, other), _length(other, site)) + tail <= limit
        ]
        without += not fitting
        pairs += [(site, other) for other in _draw(fitting, donors, rng)]
    return pairs, without


def _other_samples(
    chosen: Sequence[_Site], sites: Sequence[_Site], donors: int, rng: np.random.Generator
) -> list[tuple[_Site, _Site]]:
    by_context: dict[tuple[str, bytes], list[_Site]] = defaultdict(list)
    for site in sites:
        by_context[site.environment, content_key(site.turn.context_ids)].append(site)
    pairs: list[tuple[_Site, _Site]] = []
    for site in chosen:
        others = [
            other
            for other in by_context[site.environment, content_key(site.turn.context_ids)]
            if other.trajectory != site.trajectory and not np.array_equal(other.reasoning, site.reasoning)
        ]
        pairs += [(site, other) for other in _draw(others, donors, rng)]
    return pairs


def _length(context: _Site, reasoning: _Site) -> int:
    return len(context.turn.context_ids) + len(reasoning.reasoning)


def _draw(items: list[_Site], most: int, rng: np.random.Generator) -> list[_Site]:
    return [items[int(place)] for place in rng.permutation(len(items))[:most]]


def _request(context: _Site, reasoning: _Site) -> _Request:
    return context.environment, _bytes(context.turn.context_ids), _bytes(reasoning.reasoning)


def _bytes(ids: Ids) -> bytes:
    return np.ascontiguousarray(ids, dtype=np.int32).tobytes()


def _requests(prompts: Sequence[tuple[_Site, _Site]], samples: Sequence[tuple[_Site, _Site]]) -> list[_Request]:
    found: dict[_Request, None] = {}
    for site, other in prompts:
        for pair in ((site, site), (site, other), (other, site), (other, other)):
            found[_request(*pair)] = None
    for site, other in samples:
        found[_request(site, site)] = found[_request(site, other)] = None
    return list(found)


def _score(
    scorer: Scorer, requests: Sequence[_Request], candidates: Mapping[str, AnswerSet], progress: Progress | None
) -> dict[_Request, np.ndarray]:
    """Summed log-probability of every candidate's tail for each request, padded with -inf to the largest answer set."""
    width = max(len(item.tails) for item in candidates.values())
    scored: dict[_Request, np.ndarray] = {}
    for begin in range(0, len(requests), AT_ONCE):
        part = requests[begin : begin + AT_ONCE]
        contexts = [np.frombuffer(context + reasoning, dtype=np.int32) for _, context, reasoning in part]
        tails = [candidates[name].tails for name, _, _ in part]
        found = scorer.score(contexts, tails)
        for request, asked, given in zip(part, tails, found, strict=True):
            if [len(ids) for ids in asked] != [len(values) for values in given]:
                raise TokenMismatch(f"the scorer was given {len(asked)} answers and returned other numbers of tokens for them")
            sums = [float(np.asarray(values, dtype=np.float64).sum()) for values in given]
            scored[request] = np.array(sums + [-np.inf] * (width - len(sums)))
        if progress is not None:
            progress(len(scored), len(requests))
    return scored


def _assemble(
    prompts: Sequence[tuple[_Site, _Site]],
    samples: Sequence[tuple[_Site, _Site]],
    without: int,
    scored: Mapping[_Request, np.ndarray],
    candidates: Mapping[str, AnswerSet],
) -> ActionScores:
    width = max(len(item.tails) for item in candidates.values())

    def table(pairs: Sequence[tuple[_Site, _Site]]) -> np.ndarray:
        return normalised(np.stack([scored[_request(*pair)] for pair in pairs])) if pairs else np.empty((0, width))

    own = {_request(site, site): scored[_request(site, site)] for site, _ in prompts}
    # A scorer's rounding can leave the sum a hair above 1.
    coverage = float(np.mean([min(1.0, np.exp(sums).sum()) for sums in own.values()]))
    return ActionScores(
        prompts=PromptPairs(
            tuple(site.prompt for site, _ in prompts),
            own_NA=table([(site, site) for site, _ in prompts]),
            swapped_NA=table(prompts),
            moved_NA=table([(other, site) for site, other in prompts]),
            donor_NA=table([(other, other) for _, other in prompts]),
        ),
        samples=SamplePairs(
            tuple(site.prompt for site, _ in samples),
            own_NA=table([(site, site) for site, _ in samples]),
            swapped_NA=table(samples),
        ),
        coverage=coverage,
        turns=len({id(site) for site, _ in prompts}),
        without_donor=without,
        answers={name: item.texts for name, item in candidates.items()},
    )
