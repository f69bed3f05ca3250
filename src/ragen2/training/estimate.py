"""What a run will take, before it starts: memory counted from shapes, time from a short measurement on this machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from ragen2.engines.prefix import SharedRows, token_logprobs
from ragen2.trajectory import as_ids

if TYPE_CHECKING:
    from ragen2.training.config import RunConfig
    from ragen2.training.setup import Parts

BYTES = 4
ACTIVATION_FACTOR = 34
"""Numbers kept a token, layer and hidden unit for the backward pass of a usual transformer block (rough)."""
PROBE_TOKENS = 2048


def estimate(config: RunConfig, parts: Parts) -> list[str]:
    """Lines to show: trajectories and steps of an iteration, memory needed and there, time of the whole run at most."""
    rollout, optimizer = config.rollout, config.optimizer
    rows = rollout.groups * rollout.group_size
    needed = memory_bytes(config, parts)
    free = free_bytes(parts.arithmetic.device)
    seconds = seconds_per_iteration(config, parts)
    lines = [
        f"{config.iterations} iterations of {rollout.groups} groups x {rollout.group_size} = {rows} trajectories, up to "
        f"{rollout.max_turns} turns of {rollout.turn_tokens} tokens, "
        f"{optimizer.epochs * optimizer.steps_per_iteration} optimiser steps each",
        f"about {needed / 2**30:.1f} GiB of memory ({free / 2**30:.1f} GiB free) and at most about "
        f"{seconds * config.iterations / 60:.0f} minutes of training, were every reply to run to its limit",
    ]
    if needed > free:
        lines.append(
            "warning: this may not fit. Lower optimizer.token_budget, rollout.groups or rollout.context_tokens, "
            "or use model.lora."
        )
    return lines


def memory_bytes(config: RunConfig, parts: Parts) -> int:
    """Weights, gradients and AdamW moments of policy and critic, the reference, keys and values, activations."""
    trained = sum(p.numel() for p in parts.model.parameters() if p.requires_grad)
    frozen = sum(p.numel() for p in parts.model.parameters() if not p.requires_grad)
    if parts.critic is not None:
        trained += sum(p.numel() for p in parts.critic.critic.parameters())
    keeps_reference = config.model.lora is None and (config.logging.log_kl or bool(parts.policy.algorithm.kl_coef))
    reference = sum(p.numel() for p in parts.model.parameters()) if keeps_reference else 0
    shape = parts.model.config.get_text_config()
    layers, hidden = shape.num_hidden_layers, shape.hidden_size
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    width = getattr(shape, "head_dim", None) or hidden // shape.num_attention_heads
    rows = config.rollout.groups * config.rollout.group_size
    own = config.rollout.max_turns * config.rollout.turn_tokens * 2
    cache = rows * min(own, config.rollout.context_tokens) * layers * heads * width * 2
    activations = config.optimizer.token_budget * layers * hidden * ACTIVATION_FACTOR
    return BYTES * (4 * trained + frozen + reference + cache + activations)


def free_bytes(device: torch.device) -> int:
    """Memory that can be had on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return _physical_bytes()
    return _physical_bytes()


def _physical_bytes() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def seconds_per_iteration(config: RunConfig, parts: Parts) -> float:
    """Upper estimate: every trajectory uses all its turns and tokens; sampling a token costs about five times scoring it."""
    rng = np.random.default_rng(0)
    vocabulary = parts.model.config.get_text_config().vocab_size
    row = as_ids(rng.integers(vocabulary, size=PROBE_TOKENS // 8))
    rows = SharedRows([row[:16]] * 8, [row[16:]] * 8)
    with torch.no_grad(), parts.arithmetic.context():
        token_logprobs(parts.model, rows, select=None)
        started = time.perf_counter()
        token_logprobs(parts.model, rows, select=None)
        per_token = (time.perf_counter() - started) / PROBE_TOKENS
    rollout = config.rollout
    sampled = rollout.groups * rollout.group_size * rollout.max_turns * rollout.turn_tokens
    passes = 3 * config.optimizer.epochs * (2 if parts.critic is not None else 1)
    return per_token * sampled * (5 + passes * 1.5)
