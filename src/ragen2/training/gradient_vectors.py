"""Gradients of the parts of the policy loss as flat vectors: separate backward passes, no optimiser, no trace on the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ragen2.algorithms import ResolvedAlgorithm, kl_penalty, policy_loss
from ragen2.diagnostics.gradient_norms import SplitHalf, split_half
from ragen2.engines.prefix import TokenScores, token_logprobs
from ragen2.errors import NonFiniteLoss
from ragen2.training.batches import MicroBatch
from ragen2.training.policy import Arithmetic
from ragen2.training.update_rows import UpdateRow, aggregation_weights, micro_batches, padded, shared_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Part = Literal["task", "kl", "entropy", "score"]
"""A part of the loss: the clipped surrogate, the divergence estimate, minus the entropy; or the log-probability itself."""

CHUNK = 1 << 20
"""Parameters taken at once into 64-bit inner products."""


@dataclass(frozen=True)
class GradientMaker:
    """Makes gradients of a policy with respect to the parameters that train (under LoRA the adapters), N in all."""

    model: PreTrainedModel
    algorithm: ResolvedAlgorithm
    arithmetic: Arithmetic
    temperature: float
    horizon: int
    token_budget: int

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Those that train, in the order of the flat vector."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def size(self) -> int:
        """N."""
        return sum(parameter.numel() for parameter in self.parameters)

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Room for vectors, shape (*shape, N), on the model's device."""
        return torch.zeros(*shape, self.size, dtype=dtype, device=self.arithmetic.device)

    def add(self, part: Part, rows: Sequence[UpdateRow], weights_R: np.ndarray, into_N: torch.Tensor) -> None:
        """Add the gradient of sum_r w_r sum_t part to `into_N`. `.grad` of the parameters is not touched.

        Raises NonFiniteLoss when it is not finite.
        """
        used = [k for k, row in enumerate(rows) if row.tokens and (part != "task" or row.advantages_T[row.mask_T].any())]
        kept = [rows[k] for k in used]
        for batch in micro_batches(kept, self.token_budget):
            self._add_batch(part, kept, weights_R[used], batch, into_N)

    def _add_batch(
        self, part: Part, rows: Sequence[UpdateRow], weights_R: np.ndarray, batch: MicroBatch, into_N: torch.Tensor
    ) -> None:
        device = self.arithmetic.device
        mask_BT = padded(rows, batch, "mask_T", device)
        flat = [row for group in batch.rows_PR for row in group]
        weights_B = torch.tensor([weights_R[row] if row >= 0 else 0.0 for row in flat], dtype=torch.float32, device=device)
        with torch.enable_grad():
            with self.arithmetic.context():
                scores = token_logprobs(
                    self.model, shared_rows(rows, batch), temperature=self.temperature, entropy=part == "entropy", select=mask_BT
                )
            values_BT = self._values(part, scores, rows, batch, mask_BT)
            loss = (torch.where(mask_BT, values_BT, 0.0).sum(1) * weights_B).sum()
            parameters = self.parameters
            found: Any = torch.autograd.grad(loss, parameters, allow_unused=True)
        start = 0
        for parameter, gradient in zip(parameters, found, strict=True):
            stop = start + parameter.numel()
            if gradient is not None:
                into_N[start:stop] += gradient.detach().flatten().to(into_N.dtype)
            start = stop
        if not bool(torch.isfinite(into_N).all()):
            raise NonFiniteLoss(f"the {part} gradient is not finite: the checkpoint's weights may be broken")

    def _values(
        self, part: Part, scores: TokenScores, rows: Sequence[UpdateRow], batch: MicroBatch, mask_BT: torch.Tensor
    ) -> torch.Tensor:
        """What is summed, at every token."""
        device = self.arithmetic.device
        if part == "score":
            return scores.logprobs_BT
        if part == "entropy":
            if scores.entropy_BT is None:
                raise TypeError("token_logprobs gave no entropy though it was asked for")
            return -scores.entropy_BT
        if part == "kl":
            reference_BT = padded(rows, batch, "reference_logprobs_T", device)
            return kl_penalty(scores.logprobs_BT, reference_BT, mask_BT, estimator=self.algorithm.kl_estimator)
        return policy_loss(
            scores.logprobs_BT,
            padded(rows, batch, "old_logprobs_T", device),
            padded(rows, batch, "advantages_T", device),
            mask_BT,
            clip_low=self.algorithm.clip_low,
            clip_high=self.algorithm.clip_high,
            dual_clip=self.algorithm.dual_clip,
        ).token_loss_BT

    def block_size(self, rows: Sequence[UpdateRow]) -> float:
        """What the aggregation divides these rows' sum by: tokens, or trajectories."""
        if self.algorithm.aggregation == "token-mean":
            return float(sum(row.tokens for row in rows))
        return float(len({row.trajectory for row in rows if row.tokens}))

    def over_blocks(self, part: Part, blocks: Sequence[Sequence[UpdateRow]], scratch_KN: torch.Tensor) -> torch.Tensor:
        """Fill `scratch_KN` with the sums of the blocks (before the aggregation's division) and return the mean gradient of all
        rows, shape (N,)."""
        for block_N, rows in zip(scratch_KN, blocks, strict=True):
            block_N.zero_()
            weights_R = aggregation_weights(rows, self.algorithm.aggregation, self.horizon) * self.block_size(rows)
            self.add(part, rows, weights_R, block_N)
        return scratch_KN.sum(0) / sum(self.block_size(rows) for rows in blocks)

    def measure(
        self, part: Part, blocks: Sequence[Sequence[UpdateRow]], scratch_KN: torch.Tensor
    ) -> tuple[SplitHalf, torch.Tensor]:
        """Norm, signal and noise of a part of the loss over blocks of rows, and its mean gradient (N,)."""
        mean_N = self.over_blocks(part, blocks, scratch_KN)
        return split_half(inner_products(scratch_KN), np.array([self.block_size(rows) for rows in blocks])), mean_N


def inner_products(vectors_KN: torch.Tensor) -> np.ndarray:
    """Gram matrix (K, K) in 64 bits, without a 64-bit copy of the vectors."""
    gram_KK = torch.zeros(len(vectors_KN), len(vectors_KN), dtype=torch.float64, device=vectors_KN.device)
    for start in range(0, vectors_KN.shape[1], CHUNK):
        chunk = vectors_KN[:, start : start + CHUNK].double()
        gram_KK += chunk @ chunk.T
    return gram_KK.cpu().numpy()


def norm_of(vector_N: torch.Tensor) -> float:
    """Euclidean norm, summed in 64 bits."""
    return float(inner_products(vector_N[None])[0, 0]) ** 0.5
