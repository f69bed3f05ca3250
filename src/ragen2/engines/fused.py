"""Attention over a shared prefix and a causal own part by the processor's fused kernel, for many query tokens a row.

Each part runs by itself; their outputs join by their log-sums. In the backward pass each part's kernel gets the joint output
and the joint log-sum, which makes its recomputed weights those of the joint softmax: nothing of size T x (L + T) is ever kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def can_fuse(query: Tensor) -> bool:
    """Whether `fused_attention` serves tensors of this kind."""
    return query.device.type == "cpu" and query.dtype in (torch.float32, torch.float64, torch.bfloat16)


def fused_attention(
    query_BHTd: Tensor,
    prefix_PKLd: tuple[Tensor, Tensor],
    own_BKTd: tuple[Tensor, Tensor],
    scaling: float,
    prefix_mask_PL: Tensor | None,
) -> Tensor:
    """As `attention.two_part_attention` with a causal own part, output [B, T, H, d].

    `prefix_mask_PL` is additive; every prefix must show at least one token.
    """
    return _Fused.apply(query_BHTd, *prefix_PKLd, *own_BKTd, scaling, prefix_mask_PL)  # type: ignore[return-value]


def attention_with_sums(query: Tensor, keys: Tensor, values: Tensor, scaling: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Softmax attention without gradients: output [b, h, n, d] and the log-sums [b, h, n] of its scores (float32 or wider).

    Parts over different keys join by their log-sums. Keys and values are [b, h, m, d] and may be expanded views; `causal` needs
    n == m. Without the fused kernel the scores are held whole.
    """
    if can_fuse(query):
        return _forward(query, keys, values, 0.0, causal, scale=scaling)
    scores = (query * scaling) @ keys.transpose(-1, -2)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1), float("-inf"))
    sums = scores.logsumexp(-1)
    return (scores - sums[..., None]).exp_().to(query.dtype) @ values, sums


class _Layout:
    """The two shapes in which the kernel reads per-query tensors: [P, K, R * rep * T, .] and [B * K, rep, T, .]."""

    def __init__(self, query_BHTd: Tensor, prefix_PKLd: Tensor) -> None:
        self.rows, self.heads, self.tokens, self.width = query_BHTd.shape
        self.prefixes, self.key_heads = prefix_PKLd.shape[:2]
        self.members, self.repeat = self.rows // self.prefixes, self.heads // self.key_heads

    def own(self, x_BHTn: Tensor) -> Tensor:
        return x_BHTn.reshape(self.rows * self.key_heads, self.repeat, self.tokens, -1)

    def own_keys(self, x_BKTd: Tensor) -> Tensor:
        return x_BKTd.reshape(-1, 1, self.tokens, self.width).expand(-1, self.repeat, -1, -1)

    def grouped(self, x_BHTn: Tensor) -> Tensor:
        split = x_BHTn.reshape(self.prefixes, self.members, self.key_heads, self.repeat * self.tokens, -1)
        return split.transpose(1, 2).reshape(self.prefixes, self.key_heads, self.members * self.repeat * self.tokens, -1)

    def ungrouped(self, x: Tensor) -> Tensor:
        split = x.reshape(self.prefixes, self.key_heads, self.members, self.repeat * self.tokens, -1)
        return split.transpose(1, 2).reshape(self.rows, self.heads, self.tokens, -1)

    def mask(self, mask_PL: Tensor | None) -> Tensor | None:
        if mask_PL is None:
            return None
        queries = self.members * self.repeat * self.tokens
        return mask_PL[:, None, None].expand(-1, self.key_heads, queries, -1)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        prefix_keys: Tensor,
        prefix_values: Tensor,
        keys: Tensor,
        values: Tensor,
        scaling: float,
        mask_PL: Tensor | None,
    ) -> Tensor:
        """Output [B, T, H, d]."""
        layout = _Layout(query, prefix_keys)
        mask = layout.mask(mask_PL)
        shared, shared_sum = _forward(
            layout.grouped(query), prefix_keys, prefix_values, 0.0, False, attn_mask=mask, scale=scaling
        )
        own, own_sum = _forward(layout.own(query), layout.own_keys(keys), layout.own_keys(values), 0.0, True, scale=scaling)
        size = query.shape[:3]
        shared, shared_sum = layout.ungrouped(shared), layout.ungrouped(shared_sum[..., None])
        own, own_sum = own.reshape(*size, -1), own_sum.reshape(*size, 1)
        joint_sum = torch.logaddexp(shared_sum, own_sum)
        out = (shared * (shared_sum - joint_sum).exp() + own * (own_sum - joint_sum).exp()).to(query.dtype)
        ctx.save_for_backward(query, prefix_keys, prefix_values, keys, values, out, joint_sum, mask_PL)
        ctx.scaling = scaling
        return out.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Gradients of the query, the prefix's keys and values, and the own keys and values."""
        query, prefix_keys, prefix_values, keys, values, out, joint_sum, mask_PL = ctx.saved_tensors
        layout, gradient = _Layout(query, prefix_keys), gradients[0].transpose(1, 2)
        from_prefix, prefix_keys_gradient, prefix_values_gradient = _backward(
            layout.grouped(gradient),
            layout.grouped(query),
            prefix_keys,
            prefix_values,
            layout.grouped(out),
            layout.grouped(joint_sum)[..., 0],
            0.0,
            False,
            attn_mask=layout.mask(mask_PL),
            scale=ctx.scaling,
        )
        from_own, keys_gradient, values_gradient = _backward(
            layout.own(gradient),
            layout.own(query),
            layout.own_keys(keys),
            layout.own_keys(values),
            layout.own(out),
            layout.own(joint_sum)[..., 0],
            0.0,
            True,
            scale=ctx.scaling,
        )
        query_gradient = layout.ungrouped(from_prefix) + from_own.reshape(query.shape)
        return (
            query_gradient,
            prefix_keys_gradient,
            prefix_values_gradient,
            keys_gradient.sum(1).reshape(keys.shape),
            values_gradient.sum(1).reshape(values.shape),
            None,
            None,
        )
