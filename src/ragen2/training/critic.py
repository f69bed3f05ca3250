"""The critic: a backbone of its own with one value a token, and its optimiser step."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ragen2.algorithms import ResolvedAlgorithm, value_loss
from ragen2.engines.prefix import SharedRows, one_earlier, suffix_hidden
from ragen2.errors import ConfigError, NonFiniteLoss
from ragen2.training.batches import MicroBatch
from ragen2.training.policy import Arithmetic, clip_gradients, scatter
from ragen2.training.settings import OptimizerConfig
from ragen2.training.update_rows import UpdateRow, micro_batches, padded, shared_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Critic(torch.nn.Module):
    """Predicts the return from each state: value of token t is read before token t is seen."""

    def __init__(self, policy: PreTrainedModel, layers: int | None = None) -> None:
        """Raises ConfigError when the backbone does not have that many layers, or none to choose from."""
        super().__init__()
        backbone: Any = copy.deepcopy(getattr(policy, "get_base_model", lambda: policy)().base_model)
        if layers is not None:
            keep_lowest(backbone, layers)
        for parameter in backbone.parameters():
            parameter.requires_grad_(True)
        width = backbone.config.get_text_config().hidden_size
        self.backbone = backbone
        self.head = torch.nn.Linear(width, 1)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.to(next(policy.parameters()).device)

    def forward(self, rows: SharedRows) -> torch.Tensor:
        """Values [B, T], float32, one before each suffix token."""
        hidden_BTD, _ = suffix_hidden(self.backbone, one_earlier(rows))
        return self.head(hidden_BTD.float()).squeeze(-1)


def keep_lowest(backbone: Any, layers: int) -> None:
    """Cut a backbone down to its lowest layers, in place."""
    stack = getattr(backbone, "layers", None)
    if not isinstance(stack, torch.nn.ModuleList):
        raise ConfigError(
            f"model.critic_layers is {layers}, but {type(backbone).__name__} has no list of layers; leave it at null"
        )
    if not 1 <= layers <= len(stack):
        raise ConfigError(f"model.critic_layers is {layers}; the policy has {len(stack)} layers: give 1 to {len(stack)}, or null")
    del stack[layers:]
    backbone.config.num_hidden_layers = layers


@dataclass
class CriticUpdate:
    """Holds the critic's optimiser and schedule."""

    critic: Critic
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LambdaLR
    config: OptimizerConfig
    algorithm: ResolvedAlgorithm
    arithmetic: Arithmetic

    def values(self, rows: Sequence[UpdateRow]) -> None:
        """Put the critic's present values in every row's `values_T`."""
        with torch.no_grad(), self.arithmetic.context():
            for batch in micro_batches(rows, self.config.token_budget):
                scatter(rows, batch.rows_PR, self.critic(shared_rows(rows, batch)), "values_T")

    def step(self, rows: Sequence[UpdateRow]) -> dict[str, float]:
        """One optimiser step: mean over tokens of the clipped squared error to `returns_T`.

        Raises NonFiniteLoss before the weights are touched when the loss or a gradient is not finite.
        """
        tokens = sum(row.tokens for row in rows)
        self.optimizer.zero_grad(set_to_none=True)
        total = sum(self._backward(rows, batch, tokens) for batch in micro_batches(rows, self.config.token_budget))
        norm = clip_gradients(self.critic, self.config.clip_norm, "critic")
        self.optimizer.step()
        self.scheduler.step()
        return {"loss": total, "gradient_norm": norm}

    def _backward(self, rows: Sequence[UpdateRow], batch: MicroBatch, tokens: int) -> float:
        device = self.arithmetic.device
        mask_BT = padded(rows, batch, "mask_T", device)
        with self.arithmetic.context():
            values_BT = self.critic(shared_rows(rows, batch))
        loss_BT = value_loss(
            values_BT,
            padded(rows, batch, "values_T", device),
            padded(rows, batch, "returns_T", device),
            mask_BT,
            clip=self.algorithm.value_clip,
        )
        loss = torch.where(mask_BT, loss_BT, 0.0).sum() / max(tokens, 1)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise NonFiniteLoss(f"the critic loss is {value}; the weights are unchanged. Lower optimizer.critic_learning_rate.")
        loss.backward()
        return value


def explained_variance(rows: Sequence[UpdateRow]) -> float:
    """1 - Var(returns - values) / Var(returns) over trained tokens; NaN when all returns are equal."""
    returns = np.concatenate([row.returns_T[row.mask_T] for row in rows])
    values = np.concatenate([row.values_T[row.mask_T] for row in rows])
    spread = float(np.var(returns))
    return float("nan") if spread == 0 else 1.0 - float(np.var(returns - values)) / spread
