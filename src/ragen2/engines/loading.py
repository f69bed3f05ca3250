"""Loads a causal language model and its tokenizer from a local folder or the hub, with float32 master weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ragen2.errors import MissingDependency, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


class LoraSettings(Protocol):
    """Rank, scale and place of low-rank adapters."""

    @property
    def r(self) -> int: ...
    @property
    def alpha(self) -> int: ...
    @property
    def dropout(self) -> float: ...
    @property
    def targets(self) -> str: ...


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode and its tokenizer. `name` is what was asked for, `revision` the hub commit it came from
    (None for a folder)."""

    model: PreTrainedModel
    tokenizer: Any
    name: str
    revision: str | None = None


def load_model(
    name: str, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu", lora: LoraSettings | None = None
) -> LoadedModel:
    """Load `name`: a folder (nothing is fetched then) or a hub id. With `lora`, adapters train and the rest is frozen.

    Raises ModelError saying which file a folder lacks, or why a hub id cannot be had; MissingDependency without peft.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    folder = Path(name)
    local = folder.exists()
    if local:
        _check_folder(folder)
    elif folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ModelError(
            f"there is no model folder {name}; give a folder with a model, a hub id (owner/name), petri or smollm2-135m"
        )
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, local_files_only=local)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        # Damaged weights, unknown architectures and an unreachable hub all arrive as one of these.
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        advice = "Check the folder." if local else "Without a connection to the hub, give a local folder."
        raise ModelError(f"cannot load the model {name!r}: {reason}. {advice}") from error
    model.to(device).eval()
    revision = None if local else getattr(model.config, "_commit_hash", None)
    if lora is not None:
        model = _with_lora(model, lora)
    return LoadedModel(model, tokenizer, name, revision)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ModelError(f"the model {str(folder)!r} is a file; give the folder that holds config.json and the weights")
    config = folder / "config.json"
    if not config.is_file():
        raise ModelError(f"the model folder {folder} has no config.json")
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"the model folder {folder} has a config.json that does not read: {error}") from error
    if not isinstance(settings, dict):
        raise ModelError(f"the model folder {folder} has a config.json that holds no object of settings")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("pytorch_model*.bin")):
        raise ModelError(f"the model folder {folder} has no weights: expected model.safetensors (or its parts)")
    if not any((folder / file).is_file() for file in TOKENIZER_FILES):
        raise ModelError(f"the model folder {folder} has no tokenizer: expected one of {', '.join(TOKENIZER_FILES)}")


def _with_lora(model: PreTrainedModel, lora: LoraSettings) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise MissingDependency("peft", "train", "model.lora") from error
    settings = LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=lora.targets, task_type="CAUSAL_LM"
    )
    return get_peft_model(model, settings)
