"""Settings of the trainer's own parts: one dataclass a part, its only defaults beside their explanations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ragen2.errors import ConfigError

MOST_THREADS = 1024


@dataclass(frozen=True)
class EnvironmentConfig:
    """One environment of a run. Keys other than these are the environment's own options (`env.slip=0.2`)."""

    id: str
    """Name in `ragen2 envs`."""
    groups: int | None = None
    """Groups an iteration from this environment; None shares `rollout.groups` evenly."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the environment's constructor."""


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters through peft instead of full training."""

    r: int = 16
    alpha: int = 32
    dropout: float = 0.0
    targets: str = "all-linear"

    def __post_init__(self) -> None:
        if self.r < 1 or self.alpha < 1:
            raise ConfigError(f"model.lora.r is {self.r} and alpha {self.alpha}; both must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.lora.dropout is {self.dropout}; it must be at least 0 and below 1")


@dataclass(frozen=True)
class ModelConfig:
    """The policy."""

    name: str = "petri"
    """`petri` (built on first use), `smollm2-135m`, a local folder, or a hub id."""
    engine: Literal["prefix", "plain"] = "prefix"
    """`prefix` shares prompts and keeps keys and values across turns; `plain` serves architectures that it refuses."""
    device: str = "auto"
    """`auto` is CUDA when there is one, else the processor."""
    autocast: Literal["auto", "none", "bfloat16"] = "auto"
    """Arithmetic of rollouts and updates. Master weights stay float32. `auto` is bfloat16 on CUDA, none elsewhere."""
    lora: LoraConfig | None = None
    critic_layers: int | None = None
    """Layers of the critic: a copy of that many lowest layers of the policy's backbone. None copies all."""
    threads: int | None = None
    """Processor threads; None leaves torch's choice. Exact resumption holds at a fixed number."""

    def __post_init__(self) -> None:
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise ConfigError(f"model.threads is {self.threads}; it must be from 1 to {MOST_THREADS}, or null")


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW for the policy and the critic."""

    learning_rate: float = 1e-4
    critic_learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape over the whole run, after `warmup_steps`; linear and cosine end at a tenth."""
    warmup_steps: int = 0
    steps_per_iteration: int = 2
    """Optimiser steps of one pass over an iteration's kept trajectories: fixed, whatever the filter keeps."""
    epochs: int = 1
    """Passes over an iteration's trajectories."""
    token_budget: int = 16384
    """Most tokens (padding included) of one forward and backward pass. Changes speed and memory, never the gradient."""
    critic_warmup_iterations: int = 0
    """First iterations in which only the critic learns."""
    old_logprobs: Literal["auto", "sampler", "recompute"] = "auto"
    """Where the ratio's denominator comes from; `auto` recomputes when the sampler's arithmetic differs from the trainer's."""

    def __post_init__(self) -> None:
        for name in ("steps_per_iteration", "epochs", "token_budget"):
            if getattr(self, name) < 1:
                raise ConfigError(f"optimizer.{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("learning_rate", "critic_learning_rate", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"optimizer.{name} is {getattr(self, name)}; it must be above 0 and finite")
        for name in ("weight_decay", "warmup_steps", "critic_warmup_iterations"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"optimizer.{name} is {getattr(self, name)}; it must be at least 0 and finite")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"optimizer.betas is {self.betas}; both must be at least 0 and below 1")


@dataclass(frozen=True)
class ValidationConfig:
    """Held-out levels: the first `levels` distinct contents of the validation split."""

    levels: int = 512
    every: int = 0
    """Iterations between validations; 0 validates only at the start and the end."""
    samples: int = 1
    """Trajectories a level."""
    pass_at: tuple[int, ...] = (1,)
    """k of the unbiased pass@k reported; none may exceed `samples`."""
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.levels < 1 or self.samples < 1:
            raise ConfigError(f"validation.levels is {self.levels} and samples {self.samples}; both must be at least 1")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"validation.temperature is {self.temperature}; it must be at least 0 and finite")
        for k in self.pass_at:
            if not 1 <= k <= self.samples:
                raise ConfigError(f"validation.pass_at holds {k}; it must lie between 1 and validation.samples ({self.samples})")


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints hold everything a run needs to go on exactly."""

    every: int = 1
    """Iterations between checkpoints: what a kill can cost. The last iteration is always saved."""
    keep: int = 2
    """Newest checkpoints kept; older ones go."""

    def __post_init__(self) -> None:
        if self.every < 1 or self.keep < 1:
            raise ConfigError(f"checkpoint.every is {self.every} and keep {self.keep}; both must be at least 1")


@dataclass(frozen=True)
class LoggingConfig:
    """Where metrics and rollouts go."""

    writers: tuple[Literal["jsonl", "tensorboard", "wandb", "trackio"], ...] = ("jsonl", "tensorboard")
    rollouts_every: int = 10
    """Iterations between rollout files; the first and the last are always written. 0 writes none."""
    log_kl: bool = True
    """Measure the divergence from the starting policy (k3) whenever the monitor measures."""

    def __post_init__(self) -> None:
        if self.rollouts_every < 0:
            raise ConfigError(f"logging.rollouts_every is {self.rollouts_every}; it must be at least 0")
