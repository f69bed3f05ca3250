"""The gradient analysis of a checkpoint: fresh rollouts, groups in buckets by reward variance, gradients of each bucket.

After the RAGEN-2 paper (arXiv 2604.06268), section 3 and Theorem H.2, with what a comparison of norms needs: equal token counts
and a noise floor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ragen2.diagnostics.gradient_buckets import Bucket, draw_tokens, fixed_buckets, quantile_buckets
from ragen2.diagnostics.gradient_norms import BoundCheck, BucketGradients, GradientReport, check_bound
from ragen2.errors import NotMeasurable
from ragen2.filtering import group_scores
from ragen2.training.batches import spread_over_steps
from ragen2.training.credit import returns_by_group, rows_for_update
from ragen2.training.gradient_checkpoint import Loaded, load_for_analysis
from ragen2.training.gradient_settings import MOST_GROUPS, ProbeSettings
from ragen2.training.gradient_vectors import GradientMaker, norm_of
from ragen2.training.levels import LevelCursor
from ragen2.training.policy import score_rows
from ragen2.training.update import prepare_rows
from ragen2.training.update_rows import UpdateRow
from ragen2.trajectory import RolloutBatch

FIRST_LEVEL = 40_000_003
"""Level seeds of the analysis start here; those of a training run start at 0."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def analyse_gradients(
    target: str, settings: ProbeSettings, *, progress: Progress | None = None, note: Callable[[str], None] | None = None
) -> GradientReport:
    """Load a checkpoint (or the newest of a run directory), sample and analyse. Nothing is written.

    Raises ConfigError for a target that is no run or settings that do not fit, StorageError or CheckpointCorrupt for a
    checkpoint that does not read, NotMeasurable when too few groups are usable.
    """
    said = note or (lambda line: None)
    loaded = load_for_analysis(target, settings, said)
    try:
        batch = collect(loaded, settings, progress)
        return analyse_batch(loaded, batch, settings, progress)
    finally:
        loaded.parts.collector.close()
        loaded.parts.validator.close()


def collect(loaded: Loaded, settings: ProbeSettings, progress: Progress | None = None) -> RolloutBatch:
    """Play fresh levels of the training split, `group_size` trajectories each. Deterministic by the seed."""
    levels_rng, sampling_rng = _generators(settings)[:2]
    first = FIRST_LEVEL + settings.seed * MOST_GROUPS
    cursor = LevelCursor(loaded.config.environments, levels_rng, next_seed=first)
    levels = cursor.take(settings.groups, settings.group_size)
    seeds = sampling_rng.integers(2**62, size=settings.groups * settings.group_size).tolist()
    shown = progress or (lambda what, done, total: None)
    return loaded.parts.collector.collect(
        levels, seeds, policy_version=loaded.checkpoint.step, progress=lambda done, total: shown("playing", done, total)
    )


def analyse_batch(
    loaded: Loaded, batch: RolloutBatch, settings: ProbeSettings, progress: Progress | None = None
) -> GradientReport:
    """Buckets, gradients and bound of a batch sampled from the loaded policy. The weights stay as they are."""
    shown = progress or (lambda what, done, total: None)
    parts, algorithm = loaded.parts, loaded.parts.policy.algorithm
    if loaded.reference is None and algorithm.kl_coef and algorithm.kl_in == "reward":
        raise NotMeasurable(f"the run's advantages hold a divergence from its starting model: {loaded.kl_missing}")
    parts.model.eval()
    returns_PG, valid_PG = returns_by_group(batch, task=True)
    usable_P = np.nonzero(valid_PG.sum(1) >= 2)[0]
    if not len(usable_P):
        raise NotMeasurable(f"none of the {len(valid_PG)} groups has two valid trajectories: {_faults(batch)}")
    spread_P = group_scores(returns_PG, settings.spread, valid_PG)[usable_P]
    buckets = _buckets(spread_P, usable_P, settings)
    rows = _prepared_rows(loaded, batch)
    maker = GradientMaker(
        parts.model, algorithm, parts.arithmetic, loaded.config.rollout.temperature, parts.policy.horizon,
        loaded.config.optimizer.token_budget,
    )  # fmt: skip
    probe = _Probe(loaded, batch, maker, _by_trajectory(rows), _plain_advantages(batch, returns_PG, valid_PG), settings)
    return GradientReport(
        target=loaded.target,
        checkpoint=loaded.checkpoint.path.name,
        step=loaded.checkpoint.step,
        algorithm=algorithm.name,
        aggregation=algorithm.aggregation,
        kl_coef=algorithm.kl_coef if algorithm.kl_in == "loss" else 0.0,
        entropy_coef=algorithm.entropy_coef,
        kl_estimator=algorithm.kl_estimator,
        seed=settings.seed,
        group_count=settings.groups,
        group_size=settings.group_size,
        spread=settings.spread,
        parameters=maker.size,
        buckets=probe.measure(buckets, shown),
        bound=probe.bound(_spaced(spread_P, usable_P, settings.bound_groups), shown),
        kl_missing=loaded.kl_missing,
        notes=_notes(loaded, batch, len(usable_P), sum(len(bucket.groups) for bucket in buckets)),
    )


@dataclass(frozen=True)
class _Probe:
    """A batch with its rows, ready for gradients. `plain` is A = R - mean R of each trajectory."""

    loaded: Loaded
    batch: RolloutBatch
    maker: GradientMaker
    rows: dict[int, list[UpdateRow]]
    plain: dict[int, float]
    settings: ProbeSettings

    def measure(self, buckets: Sequence[Bucket], shown: Progress) -> tuple[BucketGradients, ...]:
        """Gradients of every bucket on as many tokens as the smallest has."""
        members = [self._members(bucket) for bucket in buckets]
        tokens = {index: sum(row.tokens for row in own) for index, own in self.rows.items()}
        there = [sum(tokens[member] for group in groups for member in group) for groups in members]
        budget = min(there)
        if budget == 0:
            empty = buckets[there.index(0)].label
            raise NotMeasurable(f"bucket {empty} holds no token that the policy sampled")
        rng = _generators(self.settings)[2]
        scratch_KN = self.maker.zeros(self.settings.blocks)
        found = []
        for number, (bucket, groups) in enumerate(zip(buckets, members, strict=True)):
            shown("gradients", number, len(buckets))
            drawn = draw_tokens(groups, tokens, budget, rng)
            blocks = self._blocks(groups, drawn, rng)
            found.append(self._bucket(bucket, blocks, scratch_KN[: len(blocks)], len(drawn), budget, there[number]))
        shown("gradients", len(buckets), len(buckets))
        return tuple(found)

    def _members(self, bucket: Bucket) -> list[list[int]]:
        """Trajectories with rows, by group."""
        inside: dict[int, list[int]] = {group: [] for group in bucket.groups}
        for index in self.rows:
            if (group := self.batch.group_index[index]) in inside:
                inside[group].append(index)
        return list(inside.values())

    def _blocks(self, groups: Sequence[Sequence[int]], drawn: dict[int, int], rng: np.random.Generator) -> list[list[UpdateRow]]:
        """Rows of the drawn trajectories, dealt over an even number of blocks so that each holds a share of every group."""
        kept = [[member for member in group if member in drawn] for group in groups]
        count = min(self.settings.blocks, len(drawn) // 2 * 2) or 1
        dealt = spread_over_steps(kept, count, rng)
        return [[row for index in block for row in _cut(self.rows[index], drawn[index], rng)] for block in dealt]

    def _bucket(
        self, bucket: Bucket, blocks: list[list[UpdateRow]], scratch_KN: torch.Tensor, trajectories: int, tokens: int, there: int
    ) -> BucketGradients:
        maker, algorithm = self.maker, self.maker.algorithm
        plain = [[self._plain_row(row) for row in block] for block in blocks]
        plain_half, _ = maker.measure("task", plain, scratch_KN)
        entropy, regulariser_N = maker.measure("entropy", blocks, scratch_KN)
        regulariser_N *= algorithm.entropy_coef
        kl = None
        if self.loaded.reference is not None:
            kl, kl_N = maker.measure("kl", blocks, scratch_KN)
            if algorithm.kl_in == "loss":
                regulariser_N += algorithm.kl_coef * kl_N
            del kl_N
        regulariser = norm_of(regulariser_N)
        task, task_N = maker.measure("task", blocks, scratch_KN)
        return BucketGradients(
            label=bucket.label,
            groups=bucket.groups,
            low=bucket.low,
            high=bucket.high,
            trajectories=trajectories,
            tokens=tokens,
            tokens_there=there,
            task=task,
            plain=plain_half,
            kl=kl,
            entropy=entropy,
            regulariser=regulariser,
            total=norm_of(task_N.add_(regulariser_N)),
        )

    def _plain_row(self, row: UpdateRow) -> UpdateRow:
        advantages_T = np.where(row.mask_T, self.plain[row.trajectory], 0.0).astype(np.float32)
        return dataclasses.replace(row, advantages_T=advantages_T)

    def bound(self, groups: Sequence[int], shown: Progress) -> tuple[BoundCheck, ...]:
        """The bound of each of these groups, over all its valid trajectories. Raises BoundViolated."""
        members = [[k for k, g in enumerate(self.batch.group_index) if g == group and k in self.plain] for group in groups]
        total, done = sum(map(len, members)), 0
        checks = []
        for group, own in zip(groups, members, strict=True):
            mean_N = self.maker.zeros(dtype=torch.float64)
            norms = []
            for index in own:
                shown("bound", done, total)
                score_N = self.maker.zeros()
                rows = self.rows.get(index, [])
                self.maker.add("score", rows, np.ones(len(rows)), score_N)
                norms.append(norm_of(score_N))
                mean_N.add_(score_N, alpha=self.plain[index] / len(own))
                done += 1
            returns = np.array([self.batch.trajectories[index].task_return for index in own])
            norm = norm_of(mean_N)
            checks.append(check_bound(group, self.batch.trajectories[own[0]].prompt_id, returns, np.array(norms), norm))
        shown("bound", total, total)
        return tuple(checks)


def _buckets(spread_P: np.ndarray, usable_P: np.ndarray, settings: ProbeSettings) -> list[Bucket]:
    if settings.edges is None:
        found = quantile_buckets(spread_P, settings.buckets, zero_apart=settings.zero_apart)
    else:
        found = fixed_buckets(spread_P, settings.edges)
    return [dataclasses.replace(item, groups=tuple(int(usable_P[place]) for place in item.groups)) for item in found]


def _prepared_rows(loaded: Loaded, batch: RolloutBatch) -> list[UpdateRow]:
    """Rows with the trainer's own log-probabilities as old ones (the ratio is then 1), reference, values and advantages."""
    parts, config = loaded.parts, loaded.config
    rows = rows_for_update(batch, np.ones(len(batch.groups), dtype=bool))
    if not rows:
        raise NotMeasurable(f"no valid trajectory holds a sampled token: {_faults(batch)}")
    score_rows(parts.model, rows, "old_logprobs_T", config.rollout.temperature, config.optimizer.token_budget, parts.arithmetic)
    prepare_rows(parts, rows, batch, config, 1.0, loaded.reference)
    return rows


def _by_trajectory(rows: Sequence[UpdateRow]) -> dict[int, list[UpdateRow]]:
    found: dict[int, list[UpdateRow]] = {}
    for row in rows:
        found.setdefault(row.trajectory, []).append(row)
    return found


def _plain_advantages(batch: RolloutBatch, returns_PG: np.ndarray, valid_PG: np.ndarray) -> dict[int, float]:
    """A = R - mean R of the task returns for every valid trajectory; exactly 0 in groups of equal returns."""
    scores_P = group_scores(returns_PG, "variance", valid_PG)
    found = {}
    for index, (group, trajectory) in enumerate(zip(batch.group_index, batch.trajectories, strict=True)):
        if trajectory.valid:
            mean = float(returns_PG[group][valid_PG[group]].mean())
            found[index] = trajectory.task_return - mean if scores_P[group] > 0 else 0.0
    return found


def _cut(rows: Sequence[UpdateRow], tokens: int, rng: np.random.Generator) -> list[UpdateRow]:
    """The rows of a trajectory with `tokens` of its tokens, drawn without replacement where there are more."""
    there = sum(row.tokens for row in rows)
    if tokens == there:
        return list(rows)
    counts = np.zeros(there, dtype=bool)
    counts[rng.choice(there, size=tokens, replace=False)] = True
    cut, start = [], 0
    for row in rows:
        mask_T = row.mask_T.copy()
        mask_T[row.mask_T] = counts[start : start + row.tokens]
        start += row.tokens
        cut.append(dataclasses.replace(row, mask_T=mask_T))
    return cut


def _spaced(spread_P: np.ndarray, usable_P: np.ndarray, count: int) -> list[int]:
    """`count` groups from the lowest to the highest spread above 0 (of all where none is above)."""
    order = np.argsort(spread_P, kind="stable")
    order = order[spread_P[order] > 0] if (spread_P > 0).any() else order
    places = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int))
    return [int(usable_P[order[place]]) for place in places]


def _notes(loaded: Loaded, batch: RolloutBatch, usable: int, inside: int) -> tuple[str, ...]:
    notes = []
    if (broken := sum(not trajectory.valid for trajectory in batch.trajectories)) > 0:
        notes.append(f"{broken} trajectories broke for reasons outside the policy and are left out ({_faults(batch)})")
    if (lost := len(batch.groups) - usable) > 0:
        notes.append(f"{lost} groups with fewer than two valid trajectories are left out")
    if inside < usable:
        notes.append(f"{usable - inside} groups lie outside the edges and are in no bucket")
    if len(loaded.config.environments) > 1:
        notes.append("several environments share the buckets: their rewards may have different scales")
    if loaded.kl_missing is not None:
        notes.append(f"KL gradient not measurable: {loaded.kl_missing}")
    elif loaded.parts.policy.algorithm.kl_estimator == "k1":
        notes.append("the run's KL estimator is k1, whose gradient in the loss has expectation 0: what is shown is noise")
    return tuple(notes)


def _faults(batch: RolloutBatch) -> str:
    first = next((trajectory.fault for trajectory in batch.trajectories if trajectory.fault), None)
    return "no fault was recorded" if first is None else f"first fault: {' '.join(first.split())[:200]}"


def _generators(settings: ProbeSettings) -> list[np.random.Generator]:
    """Streams for noise seeds, sampling, and the choice of tokens."""
    children = np.random.SeedSequence(settings.seed).spawn(3)
    return [np.random.Generator(np.random.PCG64(child)) for child in children]
