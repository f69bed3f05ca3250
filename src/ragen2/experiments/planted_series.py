"""A series of supervised steps that leads a healthy policy into a planted state, measured step by step into a run directory.

First the policy goes on learning from ordinary demonstrations, so that success rises: the trunk, which several series share. Then
planted demonstrations are mixed in, a larger share each step, until they are all there is.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragen2.diagnostics.diagnose import Diagnosis, diagnose
from ragen2.errors import ConfigError
from ragen2.experiments.planted_measure import PolicyMeter
from ragen2.experiments.plants import Plant, PlantedStream, ordinary
from ragen2.storage import write_whole
from ragen2.training.config import RunConfig, dump_config, load_config
from ragen2.training.demonstrations import DemoRow
from ragen2.training.metrics_log import MetricsLog
from ragen2.training.run import about
from ragen2.training.run_dir import RunDirectory, new_run_directory
from ragen2.training.setup import Parts, build_parts
from ragen2.training.warmup import WarmupConfig, make_autocast, make_optimizers, set_learning_rates, take_step
from ragen2.training.warmup_batches import batch_rows

Note = Callable[[str], None]

BLOCK_ROWS = 32
"""Episodes sorted by length together: few, so that a step trains on the planted share that is its own."""


@dataclass(frozen=True)
class SeriesConfig:
    """How a series is trained and measured."""

    healthy_steps: int = 6
    """Measured steps on ordinary demonstrations alone."""
    mixing_steps: int = 4
    """Measured steps over which the planted share of the turns rises to 1."""
    held_steps: int = 10
    """Measured steps with planted demonstrations alone."""
    validate_every: int = 2
    """Steps between readings of success on held-out levels; the start and the end are always read."""
    optimizer_steps: int = 8
    """Optimiser steps between two measurements."""
    batch_tokens: int = 2048
    learning_rate: float = 2e-3
    """Of AdamW, on embeddings and norms."""
    matrix_learning_rate: float = 2e-3
    """Of Muon, on matrices."""
    expertise: float = 0.9
    """Share of the solver's turns in the ordinary demonstrations: above that of the warm-up, so that success rises."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("healthy_steps", "mixing_steps", "held_steps", "validate_every", "optimizer_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"planted series: {name} is {getattr(self, name)}; it must be at least 1")

    @property
    def steps(self) -> int:
        """Measured steps, the start not counted."""
        return self.healthy_steps + self.mixing_steps + self.held_steps

    def share(self, step: int) -> float:
        """Planted share of the turns at a step (from 1)."""
        return min(1.0, max(0.0, (step - self.healthy_steps) / self.mixing_steps))

    def validates(self, step: int) -> bool:
        """Whether success is read at a step."""
        return step % self.validate_every == 0 or step in (self.healthy_steps, self.steps)


@dataclass(frozen=True)
class Trunk:
    """The healthy beginning that several series go on from: metrics by step, weights, and the state of the meter."""

    history: list[dict[str, Any]]
    weights: dict[str, Any]
    meter: dict[str, Any]


@dataclass(frozen=True)
class Series:
    """A finished series: its run directory, all metrics by step, what `diagnose` says, and the policy at its end."""

    plant: Plant
    run: RunDirectory
    history: list[dict[str, Any]]
    diagnosis: Diagnosis
    parts: Parts


def planted_config(model: str | Path, out: str | Path, *overrides: str, recipe: str = "frozen-lake") -> RunConfig:
    """The recipe with measurements small enough to repeat at every step of a series; `overrides` as for `ragen2 train`."""
    small = (
        "algorithm=grpo",
        f"model.name={model}",
        "model.threads=1",
        f"out={out}",
        "rollout.group_size=4",
        "validation.levels=64",
        "monitor.every=1",
        "monitor.views=[first_turn, probe]",
        "monitor.probe_prompts=32",
        "monitor.resamples=200",
    )
    return load_config(recipe, [*small, *overrides])


def grow_trunk(config: RunConfig, settings: SeriesConfig, note: Note = print) -> Trunk:
    """Train and measure the healthy steps. Raises ConfigError for a configuration of several environments."""
    if len(config.environments) != 1:
        raise ConfigError(f"a planted series needs one environment, got {len(config.environments)}")
    parts = build_parts(config, config.model.name)
    meter = PolicyMeter(config, parts, np.random.default_rng([settings.seed, 0x3E7E4]))
    steps = range(1, settings.healthy_steps + 1)
    history = [_measured(meter, config, settings, 0, {"planted/share": 0.0}, note)]
    for step, trained in train_steps(config, parts, ordinary(settings.expertise), settings, steps):
        history.append(_measured(meter, config, settings, step, trained, note))
    return Trunk(history, copy.deepcopy(parts.model.state_dict()), meter.state_dict())


def run_series(config: RunConfig, plant: Plant, settings: SeriesConfig, trunk: Trunk, note: Note = print) -> Series:
    """Go on from the trunk with the plant, in a new run directory, and diagnose the whole from there."""
    parts = build_parts(config, config.model.name)
    parts.model.load_state_dict(trunk.weights)
    run = new_run_directory(config.out, f"planted-{plant.name}", "supervised")
    write_whole(run.config, dump_config(dataclasses.replace(config, iterations=settings.steps)).encode())
    run.write_json(run.about, {**about(config.model.name), "planted": plant.name, **dataclasses.asdict(settings)})
    meter = PolicyMeter(config, parts, np.random.default_rng(0))
    meter.load_state_dict(trunk.meter)
    history = list(trunk.history)
    with MetricsLog(run.path, ("jsonl",)) as log:
        for record in history:
            log.log(record["step"], {name: value for name, value in record.items() if name != "step"})
        steps = range(settings.healthy_steps + 1, settings.steps + 1)
        for step, trained in train_steps(config, parts, plant, settings, steps):
            record = _measured(meter, config, settings, step, trained, note)
            log.log(step, {name: value for name, value in record.items() if name != "step"})
            history.append(record)
    diagnosis = diagnose(run.path)
    run.write_json(run.verdict, diagnosis.to_json())
    return Series(plant, run, history, diagnosis, parts)


def train_steps(
    config: RunConfig,
    parts: Parts,
    plant: Plant,
    settings: SeriesConfig,
    steps: range,
    share: Callable[[int], float] | None = None,
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train the policy in place, `optimizer_steps` a step; yields each step and what was trained before it.

    `share(step)` is the planted share of the turns, the settings' when None.
    """
    warmup = WarmupConfig(
        learning_rate=settings.learning_rate,
        matrix_learning_rate=settings.matrix_learning_rate,
        ramp_steps=5,
        final_fraction=1.0,
        steps=settings.steps * settings.optimizer_steps,
    )
    seed = settings.seed * 1000 + steps.start
    usual = ordinary(settings.expertise)
    stream = PlantedStream(config.environments[0], parts.chat_format, config.rollout, usual, plant, seed=seed)
    rng = np.random.default_rng([seed, 0xBA7C])
    optimizers = make_optimizers(parts.model, warmup)
    parameters = [parameter for parameter in parts.model.parameters() if parameter.requires_grad]
    autocast = make_autocast("auto", parts.arithmetic.device.type)
    done = 0
    try:
        for step in steps:
            stream.share = (share or settings.share)(step)
            losses = []
            for batch in _batches(stream.rows(), settings, rng):
                done += 1
                set_learning_rates(optimizers, done, warmup)
                parts.model.train()
                losses.append(take_step(parts.model, batch, optimizers, parameters, autocast, warmup.clip_norm)[1])
                parts.model.eval()
            yield step, {"planted/share": stream.share, "planted/reply_loss": float(np.mean(losses))}
    finally:
        stream.close()


def describe_step(record: dict[str, Any]) -> str:
    """One line for people."""
    names = {
        "success": next((name for name in record if name.startswith("validation/") and name.endswith("/success")), ""),
        "valid-think": "collapse/valid_think_rate",
        "MI/ceiling": "collapse/probe/mi_ratio",
        "H(Z|X) a token": "collapse/probe/conditional_entropy_token",
        "entropy": "policy/entropy",
    }
    figures = ", ".join(f"{words} {record[name]:.2f}" for words, name in names.items() if name in record)
    return f"step {record['step']}, {record['planted/share']:.0%} planted: {figures}"


def _measured(
    meter: PolicyMeter, config: RunConfig, settings: SeriesConfig, step: int, trained: dict[str, float], note: Note
) -> dict[str, Any]:
    record = {"step": step, **meter.measure(step, validating=settings.validates(step)), **trained}
    note(describe_step(record))
    return record


def _batches(rows: Iterator[DemoRow], settings: SeriesConfig, rng: np.random.Generator) -> Iterator[list[DemoRow]]:
    found = batch_rows(rows, settings.batch_tokens, BLOCK_ROWS, rng)
    for _ in range(settings.optimizer_steps):
        yield next(found)
