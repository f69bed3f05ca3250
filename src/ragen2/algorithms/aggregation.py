"""From token losses to one number, in a way that does not depend on padding or on how a mini-batch is split."""

from __future__ import annotations

from typing import Any

from ragen2.algorithms.arrays import Array, as_float, as_mask, namespace
from ragen2.algorithms.checks import require_choice
from ragen2.algorithms.config import AGGREGATIONS
from ragen2.errors import ConfigError


def aggregate_loss(
    token_loss_BT: Any, mask_BT: Any, mode: str, horizon: float | None = None, *, denominator: float | None = None
) -> Array:
    """The loss of a batch, a scalar of the library that came in.

    - `token-mean`: sum over kept tokens / number of kept tokens
    - `seq-mean-token-mean`: mean over rows that have a kept token of their token mean
    - `seq-mean-token-sum`: sum over kept tokens / (rows passed, empty ones too, times `horizon`)

    A micro-batch passes its mini-batch's `denominator` (see `loss_denominator`: tokens, rows with a token, or rows); the sum
    over micro-batches is then the loss of the mini-batch, in value and gradient. With no kept token the loss is 0 with gradient
    0. Numbers at places where `mask_BT` is 0 (NaN included) are not read. `horizon` is the largest number of tokens of a row,
    turns times tokens a turn; with a denominator and no horizon the denominator is taken to hold it. Raises ConfigError for an
    unknown mode or a missing horizon.
    """
    require_choice("aggregation", mode, AGGREGATIONS)
    loss_BT = as_float(token_loss_BT)
    mask = as_mask(mask_BT, loss_BT)
    if loss_BT.ndim != 2:
        raise ConfigError(f"token losses have shape {tuple(loss_BT.shape)}; they must be (rows, tokens).")
    scale = 1.0
    if mode == "seq-mean-token-sum":
        if horizon is None and denominator is None:
            raise ConfigError("seq-mean-token-sum divides by the horizon (turns times tokens a turn): pass horizon.")
        scale = 1.0 if horizon is None else _positive("horizon", horizon)
    xp = namespace(loss_BT)
    kept_BT = xp.where(mask, loss_BT, 0.0)
    divisor = max(loss_denominator(mask, mode), 1.0) if denominator is None else _positive("denominator", denominator)
    sums_B = xp.sum(kept_BT, axis=1)
    if mode == "seq-mean-token-mean":
        sums_B = sums_B / xp.clip(xp.sum(mask, axis=1), 1, None)
    return xp.sum(sums_B) / (divisor * scale)


def loss_denominator(mask_BT: Any, mode: str) -> float:
    """What `aggregate_loss` divides a whole mini-batch by (before the horizon): kept tokens, rows with a kept token, or rows."""
    require_choice("aggregation", mode, AGGREGATIONS)
    mask = as_float(mask_BT) != 0
    if mode == "token-mean":
        return float(mask.sum())
    if mode == "seq-mean-token-mean":
        return float(mask.any(axis=1).sum())
    return float(mask.shape[0])


def _positive(name: str, value: float) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise ConfigError(f"{name} is {value}; it must be a positive number.")
    return number
