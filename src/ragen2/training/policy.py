"""The policy's side of an update: log-probabilities, the clipped loss, one optimiser step a mini-batch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ragen2.algorithms import ResolvedAlgorithm, kl_penalty, policy_loss
from ragen2.engines.prefix import token_logprobs
from ragen2.errors import NonFiniteLoss
from ragen2.training.settings import OptimizerConfig
from ragen2.training.update_rows import UpdateRow, aggregation_weights, micro_batches, padded, shared_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Arithmetic:
    """Device and precision of forward passes."""

    device: torch.device
    autocast: bool

    def context(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 autocast where asked for."""
        if not self.autocast:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def score_rows(
    model: PreTrainedModel, rows: Sequence[UpdateRow], name: str, temperature: float, token_budget: int, arithmetic: Arithmetic
) -> None:
    """Put the model's log-probabilities of every row's sampled tokens in field `name`, without gradient."""
    with torch.no_grad(), arithmetic.context():
        for batch in micro_batches(rows, token_budget):
            select_BT = padded(rows, batch, "mask_T", arithmetic.device)
            scores = token_logprobs(model, shared_rows(rows, batch), temperature=temperature, select=select_BT)
            scatter(rows, batch.rows_PR, scores.logprobs_BT, name)


def scatter(rows: Sequence[UpdateRow], rows_PR: tuple[tuple[int, ...], ...], values_BT: torch.Tensor, name: str) -> None:
    """Write a [B, T] tensor back into field `name` of the rows."""
    values = values_BT.detach().float().cpu().numpy()
    for place, row in enumerate(row for group in rows_PR for row in group):
        if row >= 0:
            setattr(rows[row], name, np.where(rows[row].mask_T, values[place, : len(rows[row].suffix)], 0.0).astype(np.float32))


@dataclass
class PolicyUpdate:
    """Holds the policy's optimiser and learning-rate schedule."""

    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LambdaLR
    config: OptimizerConfig
    algorithm: ResolvedAlgorithm
    arithmetic: Arithmetic
    temperature: float
    horizon: int

    def step(self, rows: Sequence[UpdateRow]) -> dict[str, float]:
        """One optimiser step on a mini-batch. Returns sums and means for logging.

        Raises NonFiniteLoss before the weights are touched when the loss or a gradient is not finite.
        """
        weights_R = aggregation_weights(rows, self.algorithm.aggregation, self.horizon)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        totals: dict[str, float] = {"loss": 0.0, "entropy": 0.0, "clipped": 0.0, "kl": 0.0}
        for batch in micro_batches(rows, self.config.token_budget):
            self._backward(rows, batch, weights_R, totals)
        self.model.eval()
        norm = clip_gradients(self.model, self.config.clip_norm, "policy")
        self.optimizer.step()
        self.scheduler.step()
        return {**totals, "gradient_norm": norm, "tokens": float(sum(row.tokens for row in rows))}

    def _backward(self, rows: Sequence[UpdateRow], batch: Any, weights_R: np.ndarray, totals: dict[str, float]) -> None:
        device = self.arithmetic.device
        mask_BT = padded(rows, batch, "mask_T", device)
        flat = [row for group in batch.rows_PR for row in group]
        weights_B = torch.tensor([weights_R[row] if row >= 0 else 0.0 for row in flat], dtype=torch.float32, device=device)
        with self.arithmetic.context():
            scores = token_logprobs(
                self.model, shared_rows(rows, batch), temperature=self.temperature, entropy=True, select=mask_BT
            )
        entropy_BT = scores.entropy_BT
        if entropy_BT is None:
            raise TypeError("token_logprobs gave no entropy though it was asked for")
        surrogate = policy_loss(
            scores.logprobs_BT,
            padded(rows, batch, "old_logprobs_T", device),
            padded(rows, batch, "advantages_T", device),
            mask_BT,
            clip_low=self.algorithm.clip_low,
            clip_high=self.algorithm.clip_high,
            dual_clip=self.algorithm.dual_clip,
        )
        token_loss_BT = surrogate.token_loss_BT
        if self.algorithm.entropy_coef:
            token_loss_BT = token_loss_BT - self.algorithm.entropy_coef * entropy_BT
        if self.algorithm.kl_coef and self.algorithm.kl_in == "loss":
            reference_BT = padded(rows, batch, "reference_logprobs_T", device)
            token_kl_BT = kl_penalty(scores.logprobs_BT, reference_BT, mask_BT, estimator=self.algorithm.kl_estimator)
            token_loss_BT = token_loss_BT + self.algorithm.kl_coef * token_kl_BT
            totals["kl"] += float((token_kl_BT.detach() * mask_BT).sum())
        loss = (torch.where(mask_BT, token_loss_BT, 0.0).sum(1) * weights_B).sum()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise NonFiniteLoss(
                f"the policy loss is {value} on a micro-batch of {len(batch.rows)} rows; the weights are unchanged. "
                "Lower optimizer.learning_rate, or look for NaN in the rewards."
            )
        loss.backward()
        totals["loss"] += value
        totals["entropy"] += float(torch.where(mask_BT, entropy_BT.detach(), 0.0).sum())
        totals["clipped"] += float(surrogate.clipped_BT.sum())


def clip_gradients(module: torch.nn.Module, most: float, what: str) -> float:
    """Clip the gradient norm and return what it was. Raises NonFiniteLoss when it is not finite."""
    norm = float(torch.nn.utils.clip_grad_norm_(module.parameters(), most))
    if not math.isfinite(norm):
        raise NonFiniteLoss(f"the {what} gradient norm is {norm}; the weights are unchanged. Lower optimizer.learning_rate.")
    return norm


def make_optimizer(parameters: Any, learning_rate: float, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW over the parameters that train."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True)


def make_scheduler(optimizer: torch.optim.Optimizer, config: OptimizerConfig, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """The learning-rate schedule over `steps` optimiser steps."""

    def factor(step: int) -> float:
        if step < config.warmup_steps:
            return (step + 1) / (config.warmup_steps + 1)
        share = min(1.0, (step - config.warmup_steps) / max(1, steps - config.warmup_steps))
        if config.schedule == "linear":
            return 1.0 - 0.9 * share
        if config.schedule == "cosine":
            return 0.1 + 0.45 * (1 + math.cos(math.pi * share))
        return 1.0

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
