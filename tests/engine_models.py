"""Tiny random models for the engine tests, and log-probabilities computed the obvious way."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from ragen2.trajectory import Ids

SIZES: dict[str, Any] = dict(
    vocab_size=61,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    initializer_range=0.3,
    eos_token_id=0,
    pad_token_id=1,
)


def tiny_llama(dtype: torch.dtype, **changes: Any) -> Any:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, "tie_word_embeddings": True, **changes})).to(dtype).eval()  # type: ignore[arg-type]


def tiny_qwen2(dtype: torch.dtype, **changes: Any) -> Any:
    torch.manual_seed(1)
    return Qwen2ForCausalLM(Qwen2Config(**{**SIZES, **changes})).to(dtype).eval()  # type: ignore[arg-type]


@torch.no_grad()
def brute_logprobs(model: Any, prefix: Ids, suffix: Ids, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability and entropy at every suffix token, from one plain forward of the whole row."""
    ids = torch.from_numpy(np.concatenate([prefix, suffix])).long()[None]
    rows = (model(input_ids=ids).logits[0].double() / temperature).log_softmax(-1)[len(prefix) - 1 : -1]
    picked = rows.gather(1, ids[0, len(prefix) :, None])[:, 0]
    return picked.numpy(), -(rows.exp() * rows).sum(-1).numpy()
