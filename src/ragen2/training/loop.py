"""The training loop: roll out, measure, filter, update, log, save; every iteration can be the last."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ragen2.diagnostics.early_stop import EarlyStop, StopDecision
from ragen2.diagnostics.history import PromptHistory
from ragen2.diagnostics.monitor import Monitor
from ragen2.diagnostics.signals import iteration_metrics
from ragen2.diagnostics.swap_metrics import swap_metrics
from ragen2.training.checkpoint import prune_checkpoints, save_checkpoint
from ragen2.training.config import RunConfig
from ragen2.training.effective_filter import effective_filter
from ragen2.training.generators import Generators
from ragen2.training.levels import HeldOut, LevelCursor, held_out_levels
from ragen2.training.metrics_log import MetricsLog
from ragen2.training.run_dir import RunDirectory
from ragen2.training.selection import Selection, collect_groups
from ragen2.training.settings import OptimizerConfig
from ragen2.training.setup import Parts, load_reference
from ragen2.training.update import update
from ragen2.training.validation import validate
from ragen2.trajectory import RolloutBatch

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from ragen2.training.live_table import LiveTable

VALIDATION_SEED = 20_000_003
PROBE_SEED = 30_000_001


@dataclass
class Trainer:
    """Everything a run carries from one iteration to the next. `iteration` counts finished iterations."""

    config: RunConfig
    run: RunDirectory
    parts: Parts
    log: MetricsLog
    table: LiveTable
    generators: Generators
    iteration: int = 0
    policy_version: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    """Metrics of all steps so far, as logged."""
    cursor: LevelCursor = field(init=False)
    monitor: Monitor = field(init=False)
    early_stop: EarlyStop = field(init=False)
    prompts: PromptHistory = field(init=False)
    held_out: list[HeldOut] = field(init=False)
    probe: list[HeldOut] = field(init=False)
    reference: PreTrainedModel | None = None

    def __post_init__(self) -> None:
        config = self.config
        self.cursor = LevelCursor(config.environments, self.generators.levels)
        self.monitor = Monitor(config.monitor)
        self.early_stop = EarlyStop(config.early_stop)
        self.prompts = PromptHistory()
        settings = config.validation
        self.held_out = [held_out_levels(e, settings.levels, settings.samples, VALIDATION_SEED) for e in config.environments]
        self.probe = [
            held_out_levels(e, config.monitor.probe_prompts, config.monitor.probe_samples, PROBE_SEED)
            for e in config.environments
        ]
        if config.logging.log_kl or self.parts.policy.algorithm.kl_coef:
            self.reference = load_reference(config.model, self.parts)

    def train(self) -> StopDecision | None:
        """Run the remaining iterations. Returns why the run stopped early, or None when it ran through."""
        if self.iteration == 0 and not self.history:
            metrics: dict[str, Any] = {}
            self._validate(metrics, 0)
            self._record(0, metrics)
        while self.iteration < self.config.iterations:
            decision = self._iterate(self.iteration + 1)
            if decision is not None:
                return decision
        return None

    def _iterate(self, step: int) -> StopDecision | None:
        metrics: dict[str, Any] = {}
        started = time.perf_counter()
        selection = self._collect(step, metrics)
        self._measure(step, selection.first, metrics)
        self._learn(step, selection, metrics)
        last = step == self.config.iterations
        every = self.config.validation.every
        if last or (every and step % every == 0):
            self._validate(metrics, step)
        stop = self.early_stop.update(metrics) or self._alarms(step, metrics)
        if stop is not None and not last and not any(key.startswith("validation/") for key in metrics):
            self._validate(metrics, step)
        if stop is not None:
            metrics["stop"] = stop.reason
        metrics["time/iteration"] = time.perf_counter() - started
        self.iteration = step
        self._write_rollouts(step, selection.batch, last or stop is not None)
        self._record(step, metrics)
        alarmed = "alarm" in metrics and self.config.monitor.on_alarm != "warn"
        if step % self.config.checkpoint.every == 0 or last or alarmed or stop is not None:
            self.save()
        return stop

    def _collect(self, step: int, metrics: dict[str, Any]) -> Selection:
        """Sample groups and filter them."""
        rollout, algorithm = self.config.rollout, self.parts.policy.algorithm
        spent, tokens = 0.0, 0

        def sample() -> RolloutBatch:
            nonlocal spent, tokens
            started = time.perf_counter()
            batch = self._sample(step, rollout.groups)
            spent += time.perf_counter() - started
            tokens += sum(len(turn.sampled_ids) for trajectory in batch.trajectories for turn in trajectory.turns)
            return batch

        started = time.perf_counter()
        settings = effective_filter(self.config.filter, algorithm)
        selection = collect_groups(sample, settings, rollout.groups, self.generators.filtering)
        metrics["time/rollout"] = spent
        metrics["speed/sampled_tokens_per_second"] = tokens / spent if spent else 0.0
        metrics["time/filter"] = time.perf_counter() - started - spent
        metrics.update(selection.metrics())
        for left in selection.dropped:
            self.prompts.record(left, np.zeros(len(left.groups), dtype=bool))
        self.prompts.record(selection.batch, selection.kept_P)
        return selection

    def _sample(self, step: int, groups: int) -> RolloutBatch:
        config = self.config.rollout
        levels = self.cursor.take(groups, config.group_size)
        seeds = self.generators.sampling.integers(2**62, size=groups * config.group_size).tolist()
        self.table.phase("rollout", 0, groups * config.group_size)
        return self.parts.collector.collect(
            levels,
            seeds,
            policy_version=self.policy_version,
            progress=lambda done, total: self.table.phase("rollout", done, total),
        )

    def _measure(self, step: int, batch: RolloutBatch, metrics: dict[str, Any]) -> None:
        with self._timed("monitor", metrics):
            metrics.update(iteration_metrics(batch))
            metrics.update(self.prompts.metrics())
            if self.monitor.due(step):
                self.table.phase("monitor")
                probes = [self._probe_batch(item) for item in self.probe]
                metrics.update(self.monitor.measure(batch, self.parts.engine, self.generators.monitor, probes=probes))
                if self.config.monitor.swap:
                    parts = self.parts
                    metrics.update(swap_metrics(batch, parts.engine, parts.chat_format, self.generators.monitor))

    def _probe_batch(self, item: HeldOut) -> RolloutBatch:
        """One reply to each held-out prompt, the same seeds every time."""
        count = len(item.levels) * self.config.monitor.probe_samples
        seeds = np.random.Generator(np.random.PCG64(PROBE_SEED)).integers(2**62, size=count).tolist()
        return self.parts.collector.collect(item.levels, seeds, policy_version=self.policy_version, most_turns=1)

    def _learn(self, step: int, selection: Selection, metrics: dict[str, Any]) -> None:
        metrics["filter/empty"] = not selection.kept_P.any()
        if metrics["filter/empty"]:
            return
        settings = self.config
        wanted = bool(self.parts.policy.algorithm.kl_coef) or (settings.logging.log_kl and self.monitor.due(step))
        with self._timed("update", metrics):
            metrics.update(
                update(
                    self.parts,
                    selection.batch,
                    selection.kept_P,
                    settings,
                    self.generators.batches,
                    scale=selection.decision.loss_scale,
                    iteration=step,
                    reference=self.reference if wanted else None,
                    progress=lambda done, total: self.table.phase("update", done, total),
                    measure_mismatch=self.monitor.due(step),
                )
            )
        self.policy_version += 1

    def _validate(self, metrics: dict[str, Any], step: int) -> None:
        with self._timed("validation", metrics):
            found, batches = validate(
                self.parts.validator,
                self.held_out,
                self.config.validation,
                VALIDATION_SEED,
                lambda done, total: self.table.phase("validation", done, total),
            )
        metrics.update(found)
        if self.config.logging.rollouts_every:
            for item, batch in zip(self.held_out, batches, strict=True):
                name = item.environment.replace("/", "-")
                batch.to_jsonl(self.run.rollouts / f"validation-{name}-{step:06d}.jsonl")

    def _alarms(self, step: int, metrics: dict[str, Any]) -> StopDecision | None:
        """Show alarms; one ends the run only where `monitor.on_alarm` says so."""
        alarms = self.monitor.observe(step, metrics)
        if not alarms:
            return None
        metrics["alarm"] = ", ".join(alarm.verdict for alarm in alarms)
        for alarm in alarms:
            self.table.note(f"alarm at iteration {step}: {alarm.message}")
        if self.config.monitor.on_alarm != "stop":
            return None
        return StopDecision("alarm", alarms[0].message)

    def _write_rollouts(self, step: int, batch: RolloutBatch, last: bool) -> None:
        every = self.config.logging.rollouts_every
        if every and (last or step == 1 or step % every == 0):
            batch.to_jsonl(self.run.rollouts / f"train-{step:06d}.jsonl")

    def _record(self, step: int, metrics: dict[str, Any]) -> None:
        self.log.log(step, metrics)
        self.history.append({"step": step, **metrics})
        self.table.row({"step": step, **metrics})

    def save(self) -> None:
        """Write a checkpoint of everything that the next iteration depends on."""
        self.table.phase("checkpoint")
        save_checkpoint(self.run.checkpoints, self.iteration, self.parts.save_policy, self._state(), self._tensors())
        prune_checkpoints(self.run.checkpoints, self.config.checkpoint.keep)

    def _state(self) -> dict[str, Any]:
        return {
            "policy_version": self.policy_version,
            "generators": self.generators.state_dict(),
            "cursor": self.cursor.state_dict(),
            "monitor": self.monitor.state_dict(),
            "early_stop": self.early_stop.state_dict(),
            "prompts": self.prompts.state_dict(),
            "start_model": self.parts.start_model,
        }

    def _tensors(self) -> dict[str, Any]:
        import torch

        policy, critic = self.parts.policy, self.parts.critic
        tensors = {
            "policy_optimizer": policy.optimizer.state_dict(),
            "policy_scheduler": policy.scheduler.state_dict(),
            "torch_generator": torch.get_rng_state(),
        }
        if critic is not None:
            tensors["critic"] = critic.critic.state_dict()
            tensors["critic_optimizer"] = critic.optimizer.state_dict()
            tensors["critic_scheduler"] = critic.scheduler.state_dict()
        return tensors

    @contextmanager
    def _timed(self, name: str, metrics: dict[str, Any]) -> Iterator[None]:
        started = time.perf_counter()
        yield
        metrics[f"time/{name}"] = metrics.get(f"time/{name}", 0.0) + time.perf_counter() - started


def restore(trainer: Trainer, state: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Put a read checkpoint's state into a freshly built trainer (its model must come from the checkpoint's policy folder)."""
    import torch

    trainer.iteration = int(state["step"])
    trainer.policy_version = int(state["policy_version"])
    trainer.generators.load_state_dict(state["generators"])
    trainer.cursor.load_state_dict(state["cursor"])
    trainer.monitor.load_state_dict(state["monitor"])
    trainer.early_stop.load_state_dict(state["early_stop"])
    trainer.prompts.load_state_dict(state["prompts"])
    settings, policy, critic = trainer.config.optimizer, trainer.parts.policy, trainer.parts.critic
    policy.optimizer.load_state_dict(tensors["policy_optimizer"])
    policy.scheduler.load_state_dict(tensors["policy_scheduler"])
    _apply(policy.optimizer, policy.scheduler, settings.learning_rate, settings)
    torch.set_rng_state(tensors["torch_generator"].cpu())
    if critic is not None:
        critic.critic.load_state_dict(tensors["critic"])
        critic.optimizer.load_state_dict(tensors["critic_optimizer"])
        critic.scheduler.load_state_dict(tensors["critic_scheduler"])
        _apply(critic.optimizer, critic.scheduler, settings.critic_learning_rate, settings)


def _apply(
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LambdaLR,
    learning_rate: float,
    settings: OptimizerConfig,
) -> None:
    """The run's present settings over those that came with the saved state, so that a resumed run can change them."""
    scheduler.base_lrs = [learning_rate for _ in optimizer.param_groups]
    for group, factor in zip(optimizer.param_groups, scheduler.lr_lambdas, strict=True):
        group["initial_lr"] = learning_rate
        group["lr"] = learning_rate * factor(scheduler.last_epoch)
        group["betas"], group["weight_decay"] = settings.betas, settings.weight_decay
