"""Attention over a shared prefix and a row's own tokens, plugged into Hugging Face models without changing them.

A model's attention layers are pointed at `_dispatch` for the length of one call; the layer's rotated queries, keys and values
reach the call's `AttentionState`, which decides what each token sees. Outside such a call the model is what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from ragen2.errors import ModelError

ATTENTION = "ragen2_prefix"


class AttentionState(Protocol):
    """What the tokens of one call see, layer by layer."""

    @property
    def longest(self) -> int:
        """Most tokens any token of this call looks back on, itself included."""
        ...

    def attend(self, layer: int, query_BHTd: Tensor, key_BKTd: Tensor, value_BKTd: Tensor, scaling: float) -> Tensor:
        """Attention output [B, T, H, d]."""
        ...


def _dispatch(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    ragen2_state: AttentionState,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    if softcap is not None or s_aux is not None:
        raise unsupported(type(module).__name__, "its attention has a soft cap or sinks")
    if sliding_window is not None and sliding_window < ragen2_state.longest:
        window = f"its sliding window of {sliding_window} tokens is shorter than the context of {ragen2_state.longest}"
        raise unsupported(type(module).__name__, window)
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        # What follows has its types chosen by hand.
        with torch.autocast(query.device.type, enabled=False):
            return ragen2_state.attend(_layer(module), query, key, value, _scale(query, scaling)), None
    return ragen2_state.attend(_layer(module), query, key, value, _scale(query, scaling)), None


def _scale(query: Tensor, scaling: float | None) -> float:
    return query.shape[-1] ** -0.5 if scaling is None else scaling


def _layer(module: nn.Module) -> int:
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int):
        raise unsupported(type(module).__name__, "its attention modules carry no layer number")
    return layer


AttentionInterface.register(ATTENTION, _dispatch)


def unsupported(what: str, reason: str) -> ModelError:
    """The error for a model whose attention cannot be shared between rows."""
    return ModelError(f"{what} cannot share prefixes between rows: {reason}. Use engine=plain, which serves any causal model.")


def decoder_of(model: nn.Module) -> Any:
    """The module that maps ids to final hidden states: of a causal model, a bare backbone, or either wrapped by peft."""
    base = bare(model)
    get_decoder = getattr(base, "get_decoder", None)
    if get_decoder is None:
        raise unsupported(type(base).__name__, "it is not a transformers model")
    decoder = get_decoder()
    _check_architecture(base, decoder)
    return decoder


def bare(model: nn.Module) -> Any:
    """The transformers model inside a peft wrapper, or the model itself."""
    get_base_model = getattr(model, "get_base_model", None)
    if get_base_model is None:
        return model
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise unsupported("a prompt-tuning adapter", "its virtual tokens are not ids; use LoRA")
    return get_base_model()


def _check_architecture(base: Any, decoder: Any) -> None:
    name, config = type(base).__name__, decoder.config
    if getattr(config, "is_encoder_decoder", False):
        raise unsupported(name, "it is an encoder-decoder model")
    if not getattr(decoder, "_supports_attention_backend", False):
        raise unsupported(name, "it does not take its attention from transformers' attention interface")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    strange = kinds - {"full_attention", "sliding_attention"}
    if strange:
        raise unsupported(name, f"it has layers of the kind {', '.join(sorted(strange))}")
    if getattr(config, "attn_logit_softcapping", None) is not None:
        raise unsupported(name, "its attention has a soft cap")


_configs: WeakKeyDictionary[nn.Module, list[Any]] = WeakKeyDictionary()


@contextmanager
def _pointed_at_dispatch(decoder: Any) -> Iterator[None]:
    if decoder not in _configs:
        found = {id(module.config): module.config for module in decoder.modules() if hasattr(module, "config")}
        _configs[decoder] = list(found.values())
    before = [(config, config._attn_implementation_internal) for config in _configs[decoder]]
    for config, _ in before:
        config._attn_implementation_internal = ATTENTION
    try:
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def run_decoder(decoder: Any, ids_BT: Tensor, positions_BT: Tensor, state: AttentionState) -> Tensor:
    """Final hidden states [B, T, D] of `ids_BT` when every layer attends as `state` says."""
    checkpointed = torch.is_grad_enabled() and any(getattr(m, "gradient_checkpointing", False) for m in decoder.modules())
    if checkpointed and decoder.training:
        raise ModelError(
            "gradient checkpointing is on, but its second forward would run without the shared prefix. "
            "Turn it off (model.gradient_checkpointing_disable()) and use a smaller token budget instead."
        )
    with _pointed_at_dispatch(decoder):
        return decoder(
            input_ids=ids_BT, position_ids=positions_BT, attention_mask=None, use_cache=False, ragen2_state=state
        ).last_hidden_state


def run_causal_model(
    model: nn.Module, ids_BT: Tensor, positions_BT: Tensor, state: AttentionState, at_M: Tensor | None = None
) -> Tensor:
    """Logits [B, T, V] of the whole model when every layer attends as `state` says: for models that do more than
    multiply the hidden states by their output matrix. With `at_M` only those positions of T, [B, M, V]."""
    base = bare(model)
    some = at_M is not None and "logits_to_keep" in signature(base.forward).parameters
    wanted = {"logits_to_keep": at_M} if some else {}
    with _pointed_at_dispatch(base):
        logits = base(
            input_ids=ids_BT, position_ids=positions_BT, attention_mask=None, use_cache=False, ragen2_state=state, **wanted
        ).logits
    return logits if some or at_M is None else logits[:, at_M]


def two_part_attention(
    query_BHTd: Tensor,
    prefix_PKLd: tuple[Tensor, Tensor],
    own_BKSd: tuple[Tensor, Tensor],
    scaling: float,
    *,
    prefix_mask: Tensor | None,
    own_mask: Tensor | None,
) -> Tensor:
    """Softmax attention of each row's queries over its prefix and its own tokens together, output [B, T, H, d].

    Rows are in prefix-major order, R = B // P rows a prefix; query head h reads key head h // (H // K). The prefix's keys and
    values are read once for all its rows. Masks are additive: `prefix_mask` broadcasts to [P, R, K, rep, T, L], `own_mask` to
    [B, K, rep, T, S].
    """
    rows, heads, tokens, width = query_BHTd.shape
    prefixes, key_heads, length, _ = prefix_PKLd[0].shape
    members, repeat = rows // prefixes, heads // key_heads
    query = query_BHTd * scaling
    flat = query.reshape(rows, key_heads, repeat * tokens, width)
    own = (flat @ own_BKSd[0].transpose(-1, -2)).view(rows, key_heads, repeat, tokens, -1)
    if own_mask is not None:
        own = own.add_(own_mask)
    shape = (prefixes, members, key_heads, repeat, tokens)
    grouped = flat.view(*shape[:3], repeat * tokens, width).transpose(1, 2).reshape(prefixes, key_heads, -1, width)
    shared = (grouped @ prefix_PKLd[0].transpose(-1, -2)).view(prefixes, key_heads, members, repeat, tokens, length)
    shared = shared.transpose(1, 2)
    if prefix_mask is not None:
        shared = shared.add_(prefix_mask)
    scores = torch.cat([shared, own.view(*shape, -1)], -1)
    exact = torch.promote_types(scores.dtype, torch.float32)
    weights = scores.softmax(-1, dtype=exact).to(query.dtype)
    to_prefix = weights[..., :length].transpose(1, 2).reshape(prefixes, key_heads, -1, length)
    from_prefix = (to_prefix @ prefix_PKLd[1]).view(prefixes, key_heads, members, repeat, tokens, width)
    to_own = weights[..., length:].reshape(rows, key_heads, repeat * tokens, -1)
    from_own = (to_own @ own_BKSd[1]).view(rows, heads, tokens, width)
    out = from_prefix.transpose(1, 2).reshape(rows, heads, tokens, width) + from_own
    return out.transpose(1, 2)
