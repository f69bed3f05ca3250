"""From a configuration to the working parts of a run: model, engine, collectors, optimisers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ragen2.algorithms import get_algorithm
from ragen2.algorithms.registry import resolve
from ragen2.engines.base import Engine
from ragen2.engines.hf import HFEngine
from ragen2.engines.loading import load_model
from ragen2.engines.plain import PlainEngine
from ragen2.errors import ConfigError
from ragen2.prompting.chat_format import ChatFormat
from ragen2.rollout.collector import Collector
from ragen2.training.config import RunConfig
from ragen2.training.critic import Critic, CriticUpdate
from ragen2.training.petri import resolve_model
from ragen2.training.policy import Arithmetic, PolicyUpdate, make_optimizer, make_scheduler
from ragen2.training.settings import ModelConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass
class Parts:
    """What a run works with. `critic` is None for algorithms without one, `reference` until something needs it."""

    model: PreTrainedModel
    tokenizer: Any
    chat_format: ChatFormat
    engine: Engine
    collector: Collector
    validator: Collector
    policy: PolicyUpdate
    critic: CriticUpdate | None
    arithmetic: Arithmetic
    start_model: str
    """Folder or hub id of the weights the run started from: the frozen reference of the divergence."""

    def save_policy(self, folder: Path) -> None:
        """Write the policy (adapters alone under LoRA) and its tokenizer as a Hugging Face folder."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def save_merged(self, folder: Path) -> None:
        """Write a whole model that any Hugging Face program loads; adapters are merged into a copy."""
        merge = getattr(self.model, "merge_and_unload", None)
        if merge is None:
            self.save_policy(folder)
            return
        import copy

        copied: Any = copy.deepcopy(self.model)
        copied.merge_and_unload().save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def choose_arithmetic(config: ModelConfig) -> Arithmetic:
    """Device and precision. Raises ConfigError for a device this machine does not have."""
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"model.device is {config.device!r}, but no CUDA device is here; use model.device=cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"model.device is {config.device!r}; allowed: auto, cpu, cuda, cuda:N ({error})") from error
    autocast = config.autocast == "bfloat16" or (config.autocast == "auto" and device.type == "cuda")
    return Arithmetic(device, autocast)


def start_model_of(config: RunConfig) -> str:
    """The folder or hub id the run starts from; builds `petri` when that is asked for and not yet cached."""
    name, environments = config.model.name, config.environments
    found = Path(resolve_model(name, environments, config.warmup_seed, config.warmup, rollout=config.rollout))
    # A run resumed from another folder must find the same weights.
    return str(found.resolve() if found.exists() else found)


def build_parts(config: RunConfig, start_model: str, policy_folder: Path | None = None) -> Parts:
    """Load the policy (from `policy_folder` when resuming) and build everything around it."""
    if config.model.threads is not None:
        torch.set_num_threads(config.model.threads)
    arithmetic = choose_arithmetic(config.model)
    algorithm = resolve(config.algorithm)
    model, tokenizer = load_policy(config.model, start_model, policy_folder, arithmetic.device, config.seed)
    chat_format = make_chat_format(model, tokenizer, config.rollout.think)
    engine = make_engine(config.model, model, chat_format, arithmetic)
    steps = config.iterations * config.optimizer.epochs * config.optimizer.steps_per_iteration
    horizon = config.rollout.max_turns * config.rollout.turn_tokens
    optimizer = make_optimizer(model.parameters(), config.optimizer.learning_rate, config.optimizer)
    policy = PolicyUpdate(
        model, optimizer, make_scheduler(optimizer, config.optimizer, steps), config.optimizer, algorithm, arithmetic,
        config.rollout.temperature, horizon,
    )  # fmt: skip
    critic = None
    if get_algorithm(config.algorithm.name).uses_critic:
        network = Critic(model, config.model.critic_layers)
        own = make_optimizer(network.parameters(), config.optimizer.critic_learning_rate, config.optimizer)
        schedule = make_scheduler(own, config.optimizer, steps)
        critic = CriticUpdate(network, own, schedule, config.optimizer, algorithm, arithmetic)
    greedy = dataclasses.replace(config.rollout, temperature=config.validation.temperature)
    return Parts(
        model=model,
        tokenizer=tokenizer,
        chat_format=chat_format,
        engine=engine,
        collector=Collector(engine, chat_format, config.rollout),
        validator=Collector(engine, chat_format, greedy),
        policy=policy,
        critic=critic,
        arithmetic=arithmetic,
        start_model=start_model,
    )


def make_chat_format(model: PreTrainedModel, tokenizer: Any, think: bool) -> ChatFormat:
    """The tokenizer's chat format, ended also by the ids that the model's generation settings name."""
    named = getattr(model.generation_config, "eos_token_id", None)
    ends = [named] if isinstance(named, int) else list(named or [])
    return ChatFormat(tokenizer, think=think, end_ids=ends)


def make_engine(config: ModelConfig, model: PreTrainedModel, chat_format: ChatFormat, arithmetic: Arithmetic) -> Engine:
    """The engine asked for, around the very model that is trained."""
    kind = {"prefix": HFEngine, "plain": PlainEngine}[config.engine]
    return kind(model, chat_format.end_ids, autocast=torch.bfloat16 if arithmetic.autocast else None)


def load_policy(
    config: ModelConfig, start_model: str, policy_folder: Path | None, device: torch.device, seed: int
) -> tuple[PreTrainedModel, Any]:
    """The trainable policy with float32 master weights, and its tokenizer."""
    torch.manual_seed(seed)
    if config.lora is None:
        loaded = load_model(str(policy_folder or start_model), dtype=torch.float32, device=device)
        return loaded.model, loaded.tokenizer
    loaded = load_model(start_model, dtype=torch.float32, device=device, lora=config.lora)
    if policy_folder is not None:
        from peft import load_peft_weights, set_peft_model_state_dict

        set_peft_model_state_dict(loaded.model, load_peft_weights(str(policy_folder), device=str(device)))
    return loaded.model, loaded.tokenizer


def load_reference(config: ModelConfig, parts: Parts) -> PreTrainedModel:
    """The frozen starting policy. Under LoRA it is the same model with its adapters off (see `reference_context`)."""
    if config.lora is not None:
        return parts.model
    reference = load_model(parts.start_model, dtype=torch.float32, device=parts.arithmetic.device).model
    return reference.requires_grad_(False).eval()
