"""Loading model folders, and what is said when they are not whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from engine_models import tiny_llama
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from ragen2.engines.loading import load_model
from ragen2.errors import ModelError


@dataclass(frozen=True)
class Lora:
    r: int = 2
    alpha: int = 4
    dropout: float = 0.0
    targets: str = "all-linear"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_llama(torch.float32).save_pretrained(tmp_path)
    words = {f"w{i}": i for i in range(61)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0"))).save_pretrained(tmp_path)
    return tmp_path


def test_loads_a_folder_with_and_without_lora(folder: Path) -> None:
    loaded = load_model(str(folder), dtype=torch.float32)
    assert loaded.name == str(folder)
    assert loaded.revision is None
    assert not loaded.model.training
    ids = torch.arange(6)[None]
    expected = tiny_llama(torch.float32)(input_ids=ids).logits
    torch.testing.assert_close(loaded.model(input_ids=ids).logits, expected, rtol=0, atol=0)
    lora = load_model(str(folder), lora=Lora()).model
    assert {"lora" in name for name, p in lora.named_parameters() if p.requires_grad} == {True}
    assert load_model(str(folder), dtype=torch.bfloat16).model.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("missing", "said"),
    [("config.json", "no config.json"), ("model.safetensors", "no weights"), ("tokenizer.json", "no tokenizer")],
)
def test_says_which_file_is_missing(folder: Path, missing: str, said: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelError, match=said):
        load_model(str(folder))


def test_damaged_files_are_named(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match="cannot load the model"):
        load_model(str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="does not read"):
        load_model(str(folder))


def test_a_hub_id_offline_asks_for_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="give a local folder"):
        load_model("nobody/no-such-model")
