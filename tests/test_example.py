"""The example: one training loop that learns from the very ids it sampled, and says the same twice."""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ragen2
from ragen2.engines.base import Reply
from ragen2.engines.hf import HFSession
from ragen2.errors import ConfigError
from ragen2.prompting.reply import ParsedReply
from ragen2.rollout.config import RolloutConfig
from ragen2.training import petri
from ragen2.training.petri import PetriConfig, new_petri, petri_tokenizer
from ragen2.training.settings import EnvironmentConfig

FILE = Path(__file__).resolve().parents[1] / "examples" / "grpo_frozen_lake.py"
TINY = PetriConfig(hidden=32, layers=1, heads=2, key_value_heads=1, feed_forward=64, vocabulary=900)
SIZES = ["--iterations", "2", "--groups", "2", "--group-size", "4", "--learning-rate", "1e-3"]
KEEPS_ONLY_LAST = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' and not loop.last %}"
    "{{ m['content'].split('</think>')[-1] }}{% else %}{{ m['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("grpo_frozen_lake", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random petri model whose vocabulary comes from a few episodes of FrozenLake."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(petri, "SERVED", ("frozen-lake",))
        patch.setattr(petri, "VOCABULARY_EPISODES", 6)
        tokenizer = petri_tokenizer([EnvironmentConfig("frozen-lake")], RolloutConfig(), TINY.vocabulary)
    target = tmp_path_factory.mktemp("model")
    new_petri(TINY, tokenizer, seed=0).save_pretrained(target)
    tokenizer.save_pretrained(target)
    return target


def read_noise(text: str, *, max_actions: int, **_: Any) -> ParsedReply:
    """Stands in for the parser, since a random model never keeps the format: noise becomes a move, or nothing at all."""
    chosen = sum(map(ord, text)) % 3
    return (
        ParsedReply("ok", actions=(("Left",), ("Right",), ())[chosen][:max_actions]) if chosen < 2 else ParsedReply("no_answer")
    )


@pytest.fixture
def walkable(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake on which a random model now succeeds, now fails."""
    monkeypatch.setattr(example, "parse_reply", read_noise)
    monkeypatch.setattr(ragen2, "make", partial(ragen2.make, board=["HSG"]))


class Recorder:
    """What the engine gave and what the update was asked to score."""

    def __init__(self, example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replies: list[Reply] = []
        self.trained: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        monkeypatch.setattr(HFSession, "advance", self._advance(HFSession.advance))
        monkeypatch.setattr(example, "token_logprobs", self._token_logprobs(example.token_logprobs))

    def _advance(self, real: Callable[[HFSession], list[Reply]]) -> Callable[[HFSession], list[Reply]]:
        def advance(session: HFSession) -> list[Reply]:
            found = real(session)
            self.replies += found
            return found

        return advance

    def _token_logprobs(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def token_logprobs(model: Any, rows: Any, *, select: torch.Tensor, **options: Any) -> Any:
            scores = real(model, rows, select=select, **options)
            for row, suffix in enumerate(rows.suffixes):
                mask_T = select[row, : len(suffix)].numpy()
                logprobs_T = scores.logprobs_BT[row, : len(suffix)].detach().numpy()
                self.trained.append((rows.prefixes[row // rows.rows_per_prefix], suffix, mask_T, logprobs_T))
            return scores

        return token_logprobs


def pieces(ids: np.ndarray, mask_T: np.ndarray) -> list[np.ndarray]:
    """The runs of ids under the mask."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask_T.astype(int), [0]])))
    return [ids[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]


def load(folder: Path) -> tuple[Any, Any]:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(folder)


def options(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"iterations": 2, "groups": 2, "group_size": 4, "learning_rate": 1e-3, "seed": 0, **changes})


@pytest.mark.usefixtures("walkable")
def test_a_kept_group_changes_the_weights(example, folder):
    model, tokenizer = load(folder)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    history = example.train(model, tokenizer, options())
    assert len(history) == 2
    assert sum(numbers["kept_groups"] for numbers in history) > 0
    assert any(not torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())


@pytest.mark.parametrize("template", [None, KEEPS_ONLY_LAST])
@pytest.mark.usefixtures("walkable")
def test_what_is_trained_is_what_was_sampled(example, folder, monkeypatch, template):
    model, tokenizer = load(folder)
    tokenizer.chat_template = template or tokenizer.chat_template
    recorder = Recorder(example, monkeypatch)
    # With a rate of zero the policy stays the one that sampled: its log-probabilities must come back in every step.
    history = example.train(model, tokenizer, options(iterations=1, groups=4, learning_rate=0.0))
    assert history[0]["kept_groups"] > 0 and recorder.trained

    sampled = {reply.ids.tobytes(): reply.logprobs for reply in recorder.replies}
    turns_a_row = []
    for prefix, suffix, mask_T, logprobs_T in recorder.trained:
        assert mask_T[0]
        found = pieces(suffix, mask_T)
        turns_a_row.append(len(found))
        expected = [sampled[ids.tobytes()] for ids in found]
        np.testing.assert_allclose(logprobs_T[mask_T], np.concatenate(expected), atol=1e-4)
        assert tokenizer.decode(prefix).endswith("<think>")
    assert (max(turns_a_row) > 1) == (template is None)


def test_nothing_kept_leaves_the_weights_alone(example, folder):
    model, tokenizer = load(folder)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    history = example.train(model, tokenizer, options(iterations=1))
    assert history[0]["kept_groups"] == 0 and history[0]["valid_think"] == 0
    assert history[0]["return"] == pytest.approx(5 * RolloutConfig.format_penalty)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.usefixtures("walkable")
def test_the_same_seed_gives_the_same_history(example, folder, capsys):
    first, again, other = (example.main([*SIZES, "--seed", seed, "--model", str(folder)]) for seed in ("3", "3", "4"))
    assert first == again != other
    assert all(math.isfinite(value) for numbers in first for value in numbers.values())
    assert all(0 <= numbers["success"] <= 1 and numbers["entropy"] > 0 for numbers in first)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all("success" in line and "kept_groups" in line for line in lines)


def test_a_prompt_without_room_is_refused(example, folder):
    model, tokenizer = load(folder)
    model.config.max_position_embeddings = 100
    with pytest.raises(ConfigError, match="this model takes 100"):
        example.train(model, tokenizer, options())


def test_the_file_stays_short():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 300
