"""Log-probabilities of given tokens from hidden states, with few logits in memory at a time. Inference only."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

ROWS, COLUMNS = 512, 1024
"""Logits computed at once by `_log_sums`: they stay in the processor's cache (2 MiB of float32)."""

PEAKS = 4
"""Blocks of the vocabulary whose largest logit `_log_sums` computes again in float64."""

LOGIT_ELEMENTS = 1 << 22
"""Most logits held at once where the head must be called whole (16 MiB of float32)."""

TARGETS = 1024
"""Most targets whose rows of the output matrix are gathered at once."""


@torch.no_grad()
def head_logprobs(head: Any, hidden_ND: Tensor, at_M: np.ndarray, targets_M: np.ndarray) -> Tensor:
    """log p(targets_M[m]) under the distribution that `head` gives at hidden_ND[at_M[m]], nats, float32 or wider: [M].

    `at_M` must not decrease. `head` maps hidden states to logits.
    """
    if not len(at_M):
        return hidden_ND.new_zeros(0, dtype=torch.promote_types(hidden_ND.dtype, torch.float32))
    at_M, targets_M = (np.ascontiguousarray(x, dtype=np.int64) for x in (at_M, targets_M))
    at, targets = (torch.from_numpy(x).to(hidden_ND.device) for x in (at_M, targets_M))
    if _is_product(head, hidden_ND):
        return _target_logits(hidden_ND, at, targets, head.weight, head.bias) - _log_sums(hidden_ND, head.weight, head.bias)[at]
    return _whole(head, hidden_ND, at, targets)


def _is_product(head: Any, hidden: Tensor) -> bool:
    """Whether calling `head` is its matrix and bias and nothing else (adapters, hooks, a lower precision)."""
    hooked = isinstance(head, nn.Module) and (head._forward_hooks or head._forward_pre_hooks)
    return (
        type(head) is nn.Linear
        and not hooked
        and hidden.device.type == "cpu"
        and head.weight.dtype == hidden.dtype
        and hidden.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
    )


def _log_sums(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    """log of the sum of exp(logits) over the vocabulary, [N] in float64, a block of the vocabulary at a time."""
    vocabulary, found = len(weight_VD), []
    buffer = hidden_ND.new_empty(min(ROWS, len(hidden_ND)) * min(COLUMNS, vocabulary))
    for rows_BD in hidden_ND.split(ROWS):
        parts, peaks, places = [], [], []
        for begin in range(0, vocabulary, COLUMNS):
            block = slice(begin, min(begin + COLUMNS, vocabulary))
            logits = buffer[: len(rows_BD) * (block.stop - begin)].view(len(rows_BD), -1)
            torch.mm(rows_BD, weight_VD[block].T, out=logits)
            if bias_V is not None:
                logits += bias_V[block]
            peak_B, place_B = logits.max(1)
            parts.append(logits.sub_(peak_B[:, None]).exp_().sum(1).double().log_().add_(peak_B))
            peaks.append(peak_B)
            places.append(place_B.add_(begin))
        part_BC = torch.stack(parts, 1)
        if hidden_ND.dtype == torch.float32:
            _mend_peaks(part_BC, torch.stack(peaks, 1), torch.stack(places, 1), rows_BD, weight_VD, bias_V)
        found.append(part_BC.logsumexp(1))
    return torch.cat(found)


def _mend_peaks(
    part_BC: Tensor, peak_BC: Tensor, place_BC: Tensor, rows_BD: Tensor, weight_VD: Tensor, bias_V: Tensor | None
) -> None:
    """Put the likeliest tokens' logits into the blocks' log-sums as float64 gives them.

    Most of the error of a sum of exponentials is the rounding of its few largest logits: this takes it to about a third.
    """
    peak_BP, block_BP = peak_BC.topk(min(PEAKS, peak_BC.shape[1]), 1)
    place_BP, part_BP = place_BC.gather(1, block_BP), part_BC.gather(1, block_BP)
    exact_BP = torch.linalg.vecdot(rows_BD.double()[:, None], weight_VD[place_BP].double())
    if bias_V is not None:
        exact_BP += bias_V[place_BP]
    share_BP = (peak_BP - part_BP).exp_()
    part_BC.scatter_(1, block_BP, part_BP + torch.log1p(share_BP * torch.expm1(exact_BP - peak_BP)))


def _target_logits(hidden_ND: Tensor, at_M: Tensor, targets_M: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    found = []
    for at, targets in zip(at_M.split(TARGETS), targets_M.split(TARGETS), strict=True):
        # One product a token: float64 costs nothing here, and takes its rounding away.
        logits = torch.linalg.vecdot(hidden_ND[at].double(), weight_VD[targets].double())
        found.append(logits if bias_V is None else logits + bias_V[targets])
    return torch.cat(found)


def _whole(head: Any, hidden_ND: Tensor, at_M: Tensor, targets_M: Tensor) -> Tensor:
    vocabulary = getattr(head, "out_features", hidden_ND.shape[-1])
    size, found = max(1, LOGIT_ELEMENTS // vocabulary), []
    for begin in range(0, len(hidden_ND), size):
        logits = head(hidden_ND[begin : begin + size])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        low, high = torch.searchsorted(at_M, at_M.new_tensor([begin, begin + len(logits)])).tolist()
        found.append(logits[at_M[low:high] - begin, targets_M[low:high]] - logits.logsumexp(-1)[at_M[low:high] - begin])
    return torch.cat(found)
