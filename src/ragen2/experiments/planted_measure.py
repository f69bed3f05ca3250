"""What the trainer would log of a policy, measured without training it: the same views, rates, entropy and validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ragen2.diagnostics.monitor import Monitor
from ragen2.diagnostics.signals import iteration_metrics
from ragen2.engines.prefix import token_logprobs
from ragen2.training.config import RunConfig
from ragen2.training.credit import rows_for_update
from ragen2.training.levels import HeldOut, LevelCursor, held_out_levels
from ragen2.training.loop import PROBE_SEED, VALIDATION_SEED
from ragen2.training.update_rows import micro_batches, padded, shared_rows
from ragen2.training.validation import validate
from ragen2.trajectory import RolloutBatch

if TYPE_CHECKING:
    from ragen2.training.setup import Parts


@dataclass
class PolicyMeter:
    """Measures one policy again and again: the same held-out levels and probes each time, new training levels each time."""

    config: RunConfig
    parts: Parts
    rng: np.random.Generator

    def __post_init__(self) -> None:
        config, monitor = self.config, self.config.monitor
        self.monitor = Monitor(monitor)
        self._cursor = LevelCursor(config.environments, self.rng)
        self._held_out = [
            held_out_levels(item, config.validation.levels, config.validation.samples, VALIDATION_SEED)
            for item in config.environments
        ]
        self._probe = [
            held_out_levels(item, monitor.probe_prompts, monitor.probe_samples, PROBE_SEED) for item in config.environments
        ]

    def measure(self, step: int, *, validating: bool = True) -> dict[str, Any]:
        """Metrics of a step, alarms included; success on the held-out levels only when `validating`."""
        batch = self.play()
        probes = [self._play_probe(item) for item in self._probe]
        metrics: dict[str, Any] = dict(iteration_metrics(batch))
        metrics |= self.monitor.measure(batch, self.parts.engine, self.rng, probes=probes)
        metrics["policy/entropy"] = policy_entropy(self.parts, batch, self.config.optimizer.token_budget)
        if validating:
            metrics |= validate(self.parts.validator, self._held_out, self.config.validation, VALIDATION_SEED)[0]
        metrics |= self._alarm(step, metrics)
        return metrics

    def play(self) -> RolloutBatch:
        """Rollouts of the next training levels."""
        rollout = self.config.rollout
        levels = self._cursor.take(rollout.groups, rollout.group_size)
        seeds = self.rng.integers(2**62, size=rollout.groups * rollout.group_size).tolist()
        return self.parts.collector.collect(levels, seeds)

    def state_dict(self) -> dict[str, Any]:
        """As plain data: what the next measurement depends on."""
        return {
            "monitor": self.monitor.state_dict(),
            "cursor": self._cursor.state_dict(),
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.monitor.load_state_dict(state["monitor"])
        self._cursor.load_state_dict(state["cursor"])
        self.rng.bit_generator.state = state["rng"]

    def _play_probe(self, item: HeldOut) -> RolloutBatch:
        draws = np.random.Generator(np.random.PCG64(PROBE_SEED))
        seeds = draws.integers(2**62, size=len(item.levels) * self.config.monitor.probe_samples).tolist()
        return self.parts.collector.collect(item.levels, seeds, most_turns=1)

    def _alarm(self, step: int, metrics: Mapping[str, Any]) -> dict[str, str]:
        alarms = self.monitor.observe(step, metrics)
        return {"alarm": ", ".join(alarm.verdict for alarm in alarms)} if alarms else {}


def policy_entropy(parts: Parts, batch: RolloutBatch, token_budget: int) -> float:
    """Mean entropy (nats) of the policy's distribution at the tokens it sampled; NaN without a sampled token."""
    rows = rows_for_update(batch, np.ones(len(batch.groups), dtype=bool))
    total, tokens = 0.0, 0
    with torch.no_grad(), parts.arithmetic.context():
        for micro in micro_batches(rows, token_budget):
            mask_BT = padded(rows, micro, "mask_T", parts.arithmetic.device)
            scores = token_logprobs(parts.model, shared_rows(rows, micro), entropy=True, select=mask_BT)
            if scores.entropy_BT is None:
                raise TypeError("token_logprobs gave no entropy though it was asked for")
            total += float(torch.where(mask_BT, scores.entropy_BT, 0.0).sum())
            tokens += int(mask_BT.sum())
    return total / tokens if tokens else float("nan")
