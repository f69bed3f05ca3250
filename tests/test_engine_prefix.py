"""Rows that share prefixes give the values and gradients of whole rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from engine_models import brute_logprobs, tiny_llama, tiny_qwen2
from transformers import Gemma2Config, Gemma2ForCausalLM, GraniteConfig, GraniteForCausalLM

from ragen2.engines.prefix import SharedRows, compute_prefix, suffix_hidden, token_logprobs, without_last
from ragen2.errors import ConfigError, ModelError, TokenMismatch
from ragen2.trajectory import as_ids


def example(seed: int = 0, prefixes: tuple[int, ...] = (9, 1, 5), members: int = 3) -> SharedRows:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 7, len(prefixes) * members)
    lengths[:2] = 0, 6
    draw = lambda n: as_ids(rng.integers(0, 61, n))  # noqa: E731
    return SharedRows([draw(n) for n in prefixes], [draw(n) for n in lengths])


# A prefix of one token, prefixes of several lengths, and of one length: the unfused, the masked and the unmasked attention.
PREFIXES = pytest.mark.parametrize("prefixes", [(9, 1, 5), (9, 4, 5), (6, 6, 6)])


@PREFIXES
@pytest.mark.parametrize("build", [tiny_llama, tiny_qwen2])
def test_values_equal_the_plain_forward(build, prefixes: tuple[int, ...]) -> None:
    model, rows = build(torch.float32), example(prefixes=prefixes)
    with torch.no_grad():
        scores = token_logprobs(model, rows, temperature=0.7, entropy=True)
    for b, suffix in enumerate(rows.suffixes):
        prefix = rows.prefixes[b // rows.rows_per_prefix]
        logprobs, entropy = brute_logprobs(model, prefix, suffix, 0.7)
        assert scores.entropy_BT is not None
        np.testing.assert_allclose(scores.logprobs_BT[b, : len(suffix)].numpy(), logprobs, atol=1e-5)
        np.testing.assert_allclose(scores.entropy_BT[b, : len(suffix)].numpy(), entropy, atol=1e-5)
        assert not scores.logprobs_BT[b, len(suffix) :].any()


def whole_rows_loss(model, rows: SharedRows, weights: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for b, suffix in enumerate(rows.suffixes):
        ids = torch.from_numpy(np.concatenate([rows.prefixes[b // rows.rows_per_prefix], suffix])).long()[None]
        logits = model(input_ids=ids).logits[0].log_softmax(-1)
        start = len(ids[0]) - len(suffix)
        for t in range(len(suffix)):
            row = logits[start + t - 1]
            total = total + weights[b, t] * row[suffix[t]] - 0.3 * weights[b, t] * (row.exp() * row).sum()
    return total


@PREFIXES
@pytest.mark.parametrize("chunked", [False, True])
def test_gradients_equal_the_plain_forward(chunked: bool, prefixes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if chunked:
        monkeypatch.setattr("ragen2.engines.prefix.LOGIT_ELEMENTS", 61 * 4)
    model, rows = tiny_llama(torch.float64), example(1, prefixes)
    weights = torch.from_numpy(np.random.default_rng(2).normal(size=(9, 6)))
    scores = token_logprobs(model, rows, entropy=True)
    real = torch.tensor([[t < len(s) for t in range(6)] for s in rows.suffixes])
    ((scores.logprobs_BT + 0.3 * scores.entropy_BT) * weights)[real].sum().backward()  # type: ignore[operator]
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    whole_rows_loss(model, rows, weights).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0, name
        torch.testing.assert_close(found[name], parameter.grad, rtol=0, atol=1e-6)


def test_hidden_states_of_a_bare_backbone() -> None:
    model, rows = tiny_llama(torch.float32), example(3)
    with torch.no_grad():
        hidden, lengths = suffix_hidden(model.model, rows)
        assert lengths.tolist() == [len(s) for s in rows.suffixes]
        for b, suffix in enumerate(rows.suffixes):
            ids = np.concatenate([rows.prefixes[b // 3], suffix])
            plain = model.model(input_ids=torch.from_numpy(ids).long()[None]).last_hidden_state[0, len(ids) - len(suffix) :]
            torch.testing.assert_close(hidden[b, : len(suffix)], plain, rtol=0, atol=1e-5)


def test_only_selected_positions_are_scored_and_prefixes_can_be_kept() -> None:
    model, rows = tiny_llama(torch.float32), example(4)
    with torch.no_grad():
        everything = token_logprobs(model, rows).logprobs_BT
        select = np.random.default_rng(0).random(everything.shape) < 0.4
        select &= everything.numpy() != 0
        kept = compute_prefix(model, without_last(rows.prefixes))
        some = token_logprobs(model, rows, select=select, prefix=kept).logprobs_BT
    np.testing.assert_allclose(some.numpy(), np.where(select, everything.numpy(), 0), atol=1e-6)
    assert select.any()


def test_the_model_stays_what_it_was() -> None:
    model = tiny_llama(torch.float32)
    ids = torch.arange(10)[None]
    before, implementation = model(input_ids=ids).logits, model.config._attn_implementation
    model.train()
    token_logprobs(model, example())
    assert model.training
    assert model.config._attn_implementation == implementation
    torch.testing.assert_close(model.eval()(input_ids=ids).logits, before, rtol=0, atol=0)


def test_peft_model_and_autocast() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny_llama(torch.float32), LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    rows = example(5, (9, 4, 5))
    scores = token_logprobs(model, rows).logprobs_BT
    for b, suffix in enumerate(rows.suffixes):
        expected, _ = brute_logprobs(model, rows.prefixes[b // 3], suffix)
        np.testing.assert_allclose(scores[b, : len(suffix)].detach().numpy(), expected, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        low = token_logprobs(model, rows).logprobs_BT
    low.sum().backward()
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, scores, rtol=0, atol=0.5)
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_scaled_logits_take_the_whole_forward() -> None:
    torch.manual_seed(0)
    sizes = dict(vocab_size=61, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4)
    model = GraniteForCausalLM(GraniteConfig(**sizes, num_key_value_heads=2, logits_scaling=3.0)).eval()  # type: ignore[arg-type]
    rows = example(6)
    with torch.no_grad():
        scores = token_logprobs(model, rows).logprobs_BT
    for b, suffix in enumerate(rows.suffixes):
        np.testing.assert_allclose(scores[b, : len(suffix)], brute_logprobs(model, rows.prefixes[b // 3], suffix)[0], atol=1e-5)


def test_refusals() -> None:
    sizes = dict(vocab_size=61, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=6)
    gemma = Gemma2ForCausalLM(Gemma2Config(**sizes, num_key_value_heads=2))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="engine=plain"):
        token_logprobs(gemma, example())
    model = tiny_llama(torch.float32)
    with pytest.raises(ConfigError, match="temperature"):
        token_logprobs(model, example(), temperature=0)
    with pytest.raises(TokenMismatch, match="empty prefix"):
        token_logprobs(model, SharedRows([as_ids([])], [as_ids([1])]))
    with pytest.raises(TokenMismatch):
        SharedRows([as_ids([1]), as_ids([2])], [as_ids([1])] * 3)
    model.gradient_checkpointing_enable()
    with pytest.raises(ModelError, match="checkpointing"):
        token_logprobs(model.train(), example())


def test_a_window_shorter_than_the_context_is_refused() -> None:
    model = tiny_qwen2(torch.float32, use_sliding_window=True, sliding_window=64, max_window_layers=0)
    token_logprobs(model, example())
    long = SharedRows([as_ids(np.arange(70) % 61)], [as_ids([1, 2])])
    with pytest.raises(ModelError, match="sliding window of 64"):
        token_logprobs(model, long)
