"""What a gradient is worth: its norm against the noise in it, the signal under that noise, and the bound by reward variance.

A bucket's trajectories are dealt at random into K blocks, every group spread over all of them. All estimates follow from the
inner products of the K block gradients. For two halves made of K/2 blocks each, with mean gradients g1 and g2, E[g1 . g2] is
the squared norm of the expected gradient (given the prompts) and E|g1 - g2|^2 / 4 is the variance that sampling puts into
(g1 + g2) / 2. The bound is that of the RAGEN-2 paper (arXiv 2604.06268), Theorem H.2.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ragen2.errors import BoundViolated

SCHEMA = "ragen2.gradients/1"
MOST_BLOCKS = 12
"""12 blocks make 462 pairs of halves and 2048 patterns of signs."""
LEVEL = 0.05
"""A gradient rises above its noise floor when its sign-flip p-value is at most this."""
BOUND_ROUNDING = 1e-6
"""Relative rounding allowed to the two sides of the bound, which is a theorem of exact numbers."""


@dataclass(frozen=True)
class SplitHalf:
    """A mean gradient and how much of it is noise. All norms are Euclidean, over the trained parameters.

    `norm` is that of the mean over all blocks. `signal_squared` is the mean of g1 . g2 over all pairs of halves (unbiased for
    the squared norm of the expected gradient; may be negative), `signal` its root, 0 where negative. `noise` is the noise
    floor: the norm that sampling noise alone gives a mean over this many tokens. `cosine` is the mean cosine between halves.
    `p_value` is the share of sign patterns of the blocks whose sum is at least as long as the real one. None: not measurable
    (fewer than two blocks, or a gradient that is exactly 0 has no direction).
    """

    norm: float
    blocks: int
    halves: int
    signal_squared: float | None
    signal: float | None
    noise: float | None
    cosine: float | None
    p_value: float | None

    @property
    def above_floor(self) -> bool | None:
        """Whether there is more than noise: by the p-value where there are enough blocks for one, else signal against noise."""
        if self.norm == 0:
            return False
        if self.signal is None or self.noise is None:
            return None
        if self.p_value is not None and 2.0 ** (1 - self.blocks) <= LEVEL:
            return self.p_value <= LEVEL
        return self.signal > self.noise


def split_half(gram_KK: np.ndarray, sizes_K: np.ndarray) -> SplitHalf:
    """Norm, signal and noise of the mean gradient from block sums S_k: `gram_KK[k, l]` = S_k . S_l, `sizes_K` what each block sum
    is divided by (tokens or trajectories), all above 0. An odd number of blocks above 1 is a ValueError."""
    gram = np.asarray(gram_KK, dtype=np.float64)
    sizes = np.asarray(sizes_K, dtype=np.float64)
    count = len(sizes)
    if gram.shape != (count, count) or count < 1 or (count > 1 and count % 2) or count > MOST_BLOCKS or not (sizes > 0).all():
        raise ValueError(f"inner products of shape {gram.shape} for blocks of sizes {sizes.tolist()}")
    norm = math.sqrt(max(0.0, float(gram.sum()))) / float(sizes.sum())
    if not gram.any():
        return SplitHalf(0.0, count, 0, 0.0, 0.0, 0.0, None, None)
    if count == 1:
        return SplitHalf(norm, 1, 0, None, None, None, None, None)
    dots, noises, cosines = [], [], []
    for others in combinations(range(1, count), count // 2 - 1):
        is_first = np.isin(np.arange(count), (0, *others))
        first = is_first / sizes[is_first].sum()
        second = ~is_first / sizes[~is_first].sum()
        dot, one, two = float(first @ gram @ second), float(first @ gram @ first), float(second @ gram @ second)
        dots.append(dot)
        noises.append((one + two - 2 * dot) / 4)
        if one > 0 and two > 0:
            cosines.append(dot / math.sqrt(one * two))
    signal_squared = math.fsum(dots) / len(dots)
    return SplitHalf(
        norm=norm,
        blocks=count,
        halves=len(dots),
        signal_squared=signal_squared,
        signal=math.sqrt(max(0.0, signal_squared)),
        noise=math.sqrt(max(0.0, math.fsum(noises) / len(noises))),
        cosine=math.fsum(cosines) / len(cosines) if cosines else None,
        p_value=sign_flip_p_value(gram),
    )


def sign_flip_p_value(gram_KK: np.ndarray) -> float:
    """Share of the 2^(K-1) sign patterns e with |sum e_k S_k| >= |sum S_k|: exact where the noise of a block is as likely as its
    negative and there is nothing else. Never below 2^-(K-1), the pattern that was observed."""
    count = len(gram_KK)
    bits = (np.arange(2 ** (count - 1))[:, None] >> np.arange(count - 1)) & 1
    signs = np.concatenate([np.ones((len(bits), 1)), 1.0 - 2.0 * bits], axis=1)
    lengths = np.einsum("sk,kl,sl->s", signs, gram_KK, signs)
    return float(np.mean(lengths >= lengths[0] - 1e-12 * abs(float(np.trace(gram_KK)))))


@dataclass(frozen=True)
class BoundCheck:
    """The bound for one prompt of G trajectories: |g| <= sqrt(variance) * score_norm, g = mean of (R - mean R) s.

    `variance` has ddof 0: with it the bound is Cauchy-Schwarz for the G trajectories that were sampled. `score_norm` is the root
    mean square norm of their score vectors s. `slack` is 1 - |g| / bound, None where the bound is 0.
    """

    group: int
    prompt_id: str
    trajectories: int
    variance: float
    norm: float
    score_norm: float
    bound: float
    slack: float | None


def check_bound(group: int, prompt_id: str, returns_G: np.ndarray, score_norms_G: np.ndarray, norm: float) -> BoundCheck:
    """The bound for one prompt. Raises BoundViolated when `norm` is above it: then the gradients are wrong."""
    returns = np.asarray(returns_G, dtype=np.float64)
    variance = float(np.mean((returns - returns.mean()) ** 2))
    score_norm = math.sqrt(float(np.mean(np.asarray(score_norms_G, dtype=np.float64) ** 2)))
    bound = math.sqrt(variance) * score_norm
    if not norm <= bound * (1 + BOUND_ROUNDING):
        raise BoundViolated(
            f"group {group} ({prompt_id}): the task gradient has norm {norm:.6g}, above its bound {bound:.6g} = sqrt(variance "
            f"{variance:.6g}) x score norm {score_norm:.6g}. This cannot be: please report it with the command used."
        )
    return BoundCheck(
        group, prompt_id, len(returns), variance, norm, score_norm, bound, 1.0 - norm / bound if bound > 0 else None
    )


@dataclass(frozen=True)
class BucketGradients:
    """Gradients of one bucket on `tokens` model tokens.

    `task` uses the run's own advantages, `plain` A = R - mean R of the task returns. `regulariser` is the norm of the KL and
    entropy gradients weighted as in the run, `total` that of everything the run's loss sums. `kl` is None where there is no
    reference.
    """

    label: str
    groups: tuple[int, ...]
    low: float
    high: float
    trajectories: int
    tokens: int
    tokens_there: int
    task: SplitHalf
    plain: SplitHalf
    kl: SplitHalf | None
    entropy: SplitHalf
    regulariser: float
    total: float

    @property
    def snr(self) -> float | None:
        """Signal over noise and regularisers, of the task gradient (PAPER section 3); None where nothing is measured below."""
        if self.task.signal is None or self.task.noise is None or self.task.noise + self.regulariser == 0:
            return None
        return self.task.signal / (self.task.noise + self.regulariser)

    @property
    def rho(self) -> float | None:
        """Share of the regularisers, |reg| / (|task| + |reg|) (PAPER appendix K); None where both are 0."""
        both = self.task.norm + self.regulariser
        return self.regulariser / both if both > 0 else None


@dataclass(frozen=True)
class GradientReport:
    """All that one analysis found, and what it was made with. `kl_missing` says why `kl` is None."""

    target: str
    checkpoint: str
    step: int
    algorithm: str
    aggregation: str
    kl_coef: float
    entropy_coef: float
    kl_estimator: str
    seed: int
    group_count: int
    group_size: int
    spread: str
    parameters: int
    buckets: tuple[BucketGradients, ...]
    bound: tuple[BoundCheck, ...]
    kl_missing: str | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data of schema `ragen2.gradients/1`; what was not measured is null."""
        data = dataclasses.asdict(self)
        for item, bucket in zip(data["buckets"], self.buckets, strict=True):
            item["snr"], item["rho"] = bucket.snr, bucket.rho
            for name in ("task", "plain", "kl", "entropy"):
                part = getattr(bucket, name)
                if part is not None:
                    item[name]["above_floor"] = part.above_floor
        return {"schema": SCHEMA, **data, "reading": list(reading(self))}


def reading(report: GradientReport) -> tuple[str, ...]:
    """What the figures say, a sentence each."""
    lowest = report.buckets[0]
    sentences = [f"Lowest bucket, {_range(lowest, report.spread)}: {_against_floor(lowest.task)}"]
    if len(report.buckets) > 1:
        highest = report.buckets[-1]
        sentences.append(f"Highest bucket, {_range(highest, report.spread)}: {_against_floor(highest.task)}")
        sentences.append(f"The task gradient rises above its noise floor in {_above([b.task for b in report.buckets], report)}.")
    if lowest.high == 0 and lowest.task.norm > 0:
        sentences.append(
            "In groups of equal task returns A = R - mean is exactly 0; the run's own advantages are not, because they count "
            "format penalties or a critic's values."
        )
    sentences.append(_regularisers(report))
    kl = [bucket.kl for bucket in report.buckets if bucket.kl is not None]
    own = f"the KL gradient in {_above(kl, report)}, " if kl else ""
    entropy = _above([bucket.entropy for bucket in report.buckets], report)
    sentences.append(f"Above their own noise floors: {own}the entropy gradient in {entropy}.")
    if report.bound:
        slacks = [check.slack for check in report.bound if check.slack is not None]
        words = f", slack {min(slacks):.2f} to {max(slacks):.2f}" if slacks else ""
        sentences.append(f"The bound by reward variance holds for all {len(report.bound)} prompts checked{words}.")
    return tuple(sentences)


def _range(bucket: BucketGradients, spread: str) -> str:
    return f"{bucket.label} ({spread} {bucket.low:.3g} to {bucket.high:.3g})"


def _against_floor(part: SplitHalf) -> str:
    if part.norm == 0:
        return "the task gradient is exactly 0."
    if part.noise is None or part.above_floor is None:
        return f"task gradient {part.norm:.3g}; too few trajectories for a noise floor."
    verb = "rises" if part.above_floor else "does not rise"
    chance = "" if part.p_value is None else f", p = {part.p_value:.3f}"
    return f"task gradient {part.norm:.3g}, noise floor {part.noise:.3g}{chance}: it {verb} above the floor."


def _regularisers(report: GradientReport) -> str:
    weights = f"KL {report.kl_coef:g}, entropy {report.entropy_coef:g}"
    shares = [bucket.rho for bucket in report.buckets if bucket.rho is not None]
    if not shares:
        return f"Regularisers, weighted as in the run ({weights}), and task gradient are both 0."
    dominated = [bucket.label for bucket in report.buckets if bucket.rho is not None and bucket.rho > 0.5]
    words = f"dominate in {', '.join(dominated) or 'no bucket'}"
    return f"Regularisers, weighted as in the run ({weights}), {words}: rho is {min(shares):.2g} to {max(shares):.2g}."


def _above(parts: Sequence[SplitHalf], report: GradientReport) -> str:
    """Labels of the buckets whose part of the loss rises above its floor; `parts` has one a bucket."""
    labels = [bucket.label for bucket, part in zip(report.buckets, parts, strict=True) if part.above_floor]
    return "every bucket" if len(labels) == len(report.buckets) else ", ".join(labels) or "no bucket"
