"""Supervised warm-up on the environments' own imperfect demonstrations, for any causal language model.

A model that has only learnt the format of a reply answers every prompt alike: it starts reinforcement learning already
collapsed. So the warm-up weighs reply tokens and, less, the observations, and ends at a gate that measures on held-out levels
whether the reasoning depends on the prompt (`ragen2.training.warmup_gate`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ragen2.errors import ConfigError, NonFiniteLoss, WarmupFailed
from ragen2.prompting.chat_format import ChatFormat
from ragen2.rollout.collector import Collector
from ragen2.rollout.config import RolloutConfig
from ragen2.training.demonstrations import DemoRow, DemoStream
from ragen2.training.warmup_batches import batch_loss, batch_rows
from ragen2.training.warmup_gate import EnvironmentMeasures, check_gate, measure

if TYPE_CHECKING:
    import torch

    from ragen2.engines.base import Engine
    from ragen2.training.settings import EnvironmentConfig

Report = Callable[[int, int, dict[str, float]], None]
"""Called after each step with the step (from 1), the number of steps and the figures of the step."""


@dataclass(frozen=True)
class WarmupConfig:
    """Settings of the warm-up. The defaults are those of the petri model; `WarmupConfig.pretrained()` suits a trained one."""

    steps: int = 400
    """Optimiser steps. Fixed, so that the same settings give the same weights on a slow machine and a fast one."""
    batch_tokens: int = 2048
    """Most tokens a step, padding included."""
    block_rows: int = 256
    """Episodes that are sorted by length together before they are cut into batches."""
    first_turn_share: float = 0.5
    """Share of the steps that train on first turns alone. In these short rows a model learns to read its prompt sooner than in
    whole episodes, most of which are repeated boards; whole episodes between them teach it which board is the present one."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """`muon`: Muon on the matrices of the layers, AdamW on embeddings and norms. `adamw`: AdamW on all."""
    matrix_learning_rate: float = 4e-3
    """Of Muon, in the scale of AdamW's (root mean square matched)."""
    learning_rate: float = 3e-3
    """Of AdamW."""
    weight_decay: float = 0.0
    ramp_steps: int = 20
    """Steps over which the learning rate rises from zero; it then falls linearly to `final_fraction` of itself."""
    final_fraction: float = 0.1
    clip_norm: float = 1.0
    expertise: float | None = None
    """Chance that a demonstrated turn is the solver's and not a random one; None takes the environment's default."""
    system_weight: float = 0.0
    """Loss weight of the system message. Reply tokens weigh 1."""
    observation_weight: float = 0.3
    """Loss weight of what the environment says."""
    autocast: Literal["auto", "none", "bfloat16"] = "auto"
    """Arithmetic of the forward pass; weights stay float32. `auto` is bfloat16 where the device has it in hardware."""
    stop_loss: float | None = None
    """End early once the mean reply loss of the last 20 steps is below this; None never does."""
    max_seconds: float | None = None
    """End early after this time. What comes out then depends on the machine: for trying things, not for results."""
    gate_levels: int = 128
    """Held-out levels a measurement plays, one episode each."""
    min_information: float = 0.8
    """Least first-turn mutual information at the gate, as a fraction of its ceiling."""
    min_valid_think: float = 0.95
    """Least valid-think rate at the gate."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "block_rows", "gate_levels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"warmup {name} is {getattr(self, name)}; it must be at least 1")
        for name in ("learning_rate", "matrix_learning_rate", "clip_norm"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"warmup {name} is {getattr(self, name)}; it must be above 0")
        for name in (
            "first_turn_share",
            "final_fraction",
            "system_weight",
            "observation_weight",
            "min_information",
            "min_valid_think",
        ):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"warmup {name} is {getattr(self, name)}; it must lie between 0 and 1")
        if self.expertise is not None and not 0 <= self.expertise <= 1:
            raise ConfigError(f"warmup expertise is {self.expertise}; it must lie between 0 (random) and 1 (the solver)")

    @classmethod
    def pretrained(cls, **overrides: Any) -> WarmupConfig:
        """Settings for a model that has been trained before: plain AdamW, small steps, no loss on observations."""
        settings = {"optimizer": "adamw", "learning_rate": 5e-5, "steps": 100, "observation_weight": 0.0, **overrides}
        return cls(**settings)


@dataclass(frozen=True)
class WarmupResult:
    """What a warm-up did. `measures` has one entry an environment, measured at the end on held-out levels."""

    steps: int
    tokens: int
    seconds: float
    reply_loss: float
    """Mean loss of the last 20 steps on reply tokens, nats a token."""
    stopped: Literal["steps", "loss", "seconds", "interrupted"]
    measures: dict[str, EnvironmentMeasures] = field(default_factory=dict)


def warmup(
    model: torch.nn.Module,
    tokenizer: Any,
    environments: Sequence[EnvironmentConfig],
    config: WarmupConfig,
    *,
    seed: int = 0,
    rollout: RolloutConfig | None = None,
    report: Report | None = None,
    engine: Engine | None = None,
) -> WarmupResult:
    """Train `model` in place on demonstrations of `environments`, measure it on held-out levels and hold it to the gate.

    model: any causal language model, with or without peft adapters (only parameters that require gradients are trained).
    rollout: the settings of the rollouts to come, so that the contexts are the same; its defaults when None.
    engine: what samples and scores `model` at the gate; the shared-prefix engine when None.
    Raises WarmupFailed with the figures where the gate does not hold, NonFiniteLoss, and NotImplementedError for an
    environment without demonstrations. After Ctrl-C it returns at once, unmeasured, with `stopped="interrupted"`.
    """
    from ragen2.engines.hf import HFEngine

    rollout = rollout or RolloutConfig()
    chat = ChatFormat(tokenizer, think=rollout.think)
    stream = DemoStream(
        environments,
        chat,
        rollout,
        seed=seed,
        expertise=config.expertise,
        observation_weight=config.observation_weight,
        system_weight=config.system_weight,
    )
    result = train_on_batches(model, demonstration_batches(stream, config, seed), config, report=report)
    if result.stopped == "interrupted":
        return result
    collector = Collector(engine or HFEngine(model, chat.end_ids), chat, rollout)
    try:
        measures = [measure(collector, item, levels=config.gate_levels, seed=seed) for item in environments]
    finally:
        collector.close()
    way = "optimizer='muon'" if config.optimizer == "adamw" else "another learning rate"
    advice = f"Try more steps (now {config.steps}), {way}, or names of one token for what the prompt shows."
    check_gate(measures, min_information=config.min_information, min_valid_think=config.min_valid_think, advice=advice)
    return dataclasses.replace(result, measures={item.environment: item for item in measures})


def demonstration_batches(stream: DemoStream, config: WarmupConfig, seed: int) -> Iterator[list[DemoRow]]:
    """Endless batches of a warm-up: of every ten, `first_turn_share` times ten hold first turns, the others whole episodes."""
    rng = np.random.default_rng([seed, 0xBA7C])
    short = batch_rows(stream.rows(most_turns=1), config.batch_tokens, config.block_rows, rng)
    whole = batch_rows(stream.rows(), config.batch_tokens, config.block_rows, rng)
    for number in itertools.count():
        is_short = math.floor((number + 1) * config.first_turn_share) > math.floor(number * config.first_turn_share)
        yield next(short if is_short else whole)


def train_on_batches(
    model: torch.nn.Module, batches: Iterator[list[DemoRow]], config: WarmupConfig, *, report: Report | None = None
) -> WarmupResult:
    """Train `model` in place, one optimiser step a batch; the first Ctrl-C ends it after the running step.

    Raises NonFiniteLoss when a loss or gradient is not finite, with the weights of the step before.
    """
    optimizers = make_optimizers(model, config)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    autocast = make_autocast(config.autocast, parameters[0].device.type)
    model.train()
    losses: list[float] = []
    tokens, step, stopped, started = 0, 0, "steps", time.monotonic()
    with interruptible() as interrupted:
        for step in range(1, config.steps + 1):
            batch = next(batches, None)
            if batch is None:
                raise WarmupFailed(f"the demonstrations ended at step {step} of {config.steps}; give more rows or fewer steps")
            set_learning_rates(optimizers, step, config)
            loss, reply_loss, norm = take_step(model, batch, optimizers, parameters, autocast, config.clip_norm)
            losses.append(reply_loss)
            tokens += sum(len(row.ids) for row in batch)
            if report is not None:
                report(step, config.steps, {"loss": loss, "reply_loss": reply_loss, "gradient_norm": norm})
            stopped = _why_stop(config, losses, time.monotonic() - started, interrupted)
            if stopped != "steps":
                break
    model.eval()
    return WarmupResult(step, tokens, time.monotonic() - started, float(np.mean(losses[-20:])), stopped)


def make_optimizers(model: torch.nn.Module, config: WarmupConfig) -> list[torch.optim.Optimizer]:
    """The optimisers of a warm-up; each group keeps its full rate as `initial_lr`."""
    import torch

    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    head = getattr(model, "lm_head", None)
    if head is not None:
        embeddings.add(id(head.weight))
    use_muon = config.optimizer == "muon"
    matrices = [p for _, p in trained if use_muon and p.ndim == 2 and id(p) not in embeddings]
    chosen = {id(p) for p in matrices}
    rest = [p for _, p in trained if id(p) not in chosen]
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        muon = torch.optim.Muon(
            matrices, lr=config.matrix_learning_rate, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw"
        )
        optimizers.append(muon)
    if rest:
        optimizers.append(torch.optim.AdamW(rest, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return optimizers


def set_learning_rates(optimizers: Sequence[torch.optim.Optimizer], step: int, config: WarmupConfig) -> None:
    """Set every group's rate for `step` (from 1)."""
    factor = rate_factor(step, config)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor


def rate_factor(step: int, config: WarmupConfig) -> float:
    """Share of the full learning rate at `step` (from 1): up over `ramp_steps`, then linearly down to `final_fraction`."""
    if step <= config.ramp_steps:
        return step / config.ramp_steps
    rest = max(1, config.steps - config.ramp_steps)
    return 1.0 - (1.0 - config.final_fraction) * min(1.0, (step - config.ramp_steps) / rest)


def take_step(
    model: torch.nn.Module,
    batch: Sequence[DemoRow],
    optimizers: Sequence[torch.optim.Optimizer],
    parameters: Sequence[torch.nn.Parameter],
    autocast: AbstractContextManager[Any],
    clip_norm: float,
) -> tuple[float, float, float]:
    """One optimiser step; (weighted loss, loss on reply tokens, gradient norm). Raises NonFiniteLoss before changing a weight."""
    import torch

    loss, reply_loss = batch_loss(model, batch, autocast)
    loss.backward()
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, clip_norm))
    value = loss.item()
    if not (math.isfinite(value) and math.isfinite(norm)):
        raise NonFiniteLoss(
            f"warm-up loss is {value} and its gradient norm {norm}; the weights before this step are kept. Lower learning_rate."
        )
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return value, reply_loss, norm


def make_autocast(setting: Literal["auto", "none", "bfloat16"], device: str) -> AbstractContextManager[Any]:
    """The context of the forward pass; `auto` is bfloat16 where the processor or the card multiplies it in hardware."""
    import torch

    if setting == "none" or (setting == "auto" and not _has_fast_bfloat16(device)):
        return nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16)


def _has_fast_bfloat16(device: str) -> bool:
    import torch

    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device == "cpu" and torch.cpu._is_amx_tile_supported()


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, so that the running step ends whole; the second Ctrl-C interrupts as usual."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: Any) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, handle)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _why_stop(
    config: WarmupConfig, losses: Sequence[float], seconds: float, interrupted: threading.Event
) -> Literal["steps", "loss", "seconds", "interrupted"]:
    if interrupted.is_set():
        return "interrupted"
    if config.stop_loss is not None and len(losses) >= 20 and float(np.mean(losses[-20:])) < config.stop_loss:
        return "loss"
    if config.max_seconds is not None and seconds >= config.max_seconds:
        return "seconds"
    return "steps"
