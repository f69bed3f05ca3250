"""A checkpoint made ready for gradient analysis: its policy, its critic, and the model its run started from."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ragen2.errors import CheckpointCorrupt, ConfigError, ModelError
from ragen2.training.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from ragen2.training.config import RunConfig, load_config
from ragen2.training.estimate import free_bytes
from ragen2.training.gradient_settings import ProbeSettings
from ragen2.training.run_dir import open_run_directory
from ragen2.training.setup import Parts, build_parts, load_reference, start_model_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Loaded:
    """A checkpoint ready for analysis. `reference` is None where the KL gradient cannot be had; `kl_missing` says why."""

    target: str
    checkpoint: Checkpoint
    config: RunConfig
    parts: Parts
    reference: PreTrainedModel | None
    kl_missing: str | None


def load_for_analysis(target: str, settings: ProbeSettings, note: Callable[[str], None]) -> Loaded:
    """The policy, critic and reference of a checkpoint. The global generators are left as they were."""
    path = Path(target)
    inside = path.parent.parent if path.parent.name == "checkpoints" else path
    # Not Path.exists, which raises for a name that is too long.
    if not os.path.exists(target):
        raise ConfigError(
            f"there is no run or checkpoint {target}; give a run directory or one of its checkpoints/step-* folders"
        )
    config = load_config(str(open_run_directory(inside).config))
    rollout = dataclasses.replace(config.rollout, groups=settings.groups, group_size=settings.group_size)
    shared = tuple(dataclasses.replace(item, groups=None) for item in config.environments)
    config = dataclasses.replace(config, rollout=rollout, environments=shared)
    checkpoint = load_checkpoint(find_checkpoint(path))
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        parts = build_parts(config, checkpoint.start_model, checkpoint.policy)
        _load_critic(parts, checkpoint)
        reference, missing = _load_reference(config, parts, note)
    vectors = (settings.blocks + 5) * 4 * sum(p.numel() for p in parts.model.parameters() if p.requires_grad)
    free = free_bytes(parts.arithmetic.device)
    note(f"gradient vectors take about {vectors / 2**30:.2f} GiB beside the model ({free / 2**30:.1f} GiB free)")
    if vectors > free:
        note("warning: this may not fit. Lower the number of blocks (2 is the least); under LoRA adapters alone count")
    return Loaded(target, checkpoint, config, parts, reference, missing)


def _load_critic(parts: Parts, checkpoint: Checkpoint) -> None:
    if parts.critic is None:
        return
    try:
        parts.critic.critic.load_state_dict(checkpoint.tensors["critic"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointCorrupt(
            f"checkpoint {checkpoint.path} holds no critic that fits its run ({error!r}); its advantages cannot be estimated"
        ) from error
    parts.critic.critic.eval()


def _load_reference(config: RunConfig, parts: Parts, note: Callable[[str], None]) -> tuple[PreTrainedModel | None, str | None]:
    """The frozen starting policy, built again where it was built and is gone; or None and the reason."""
    start = Path(parts.start_model)
    if config.model.lora is None and start.is_absolute() and not start.exists() and config.model.name == "petri":
        note(f"building the starting model again: {start} is gone")
        rebuilt = Path(start_model_of(config))
        if rebuilt.name != start.name:
            return None, f"the starting model {start} is gone, and this version builds another ({rebuilt.name})"
        parts = dataclasses.replace(parts, start_model=str(rebuilt))
    try:
        return load_reference(config.model, parts), None
    except ModelError as error:
        return None, f"the starting model cannot be loaded: {error}"
