"""Cross-scores equal whole rows through the model, whatever the shapes; sampled columns state their error."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_models import brute_logprobs, tiny_llama, tiny_qwen2
from tiny import tiny_model, tiny_tokenizer
from transformers import Gemma2Config, Gemma2ForCausalLM, GraniteConfig, GraniteForCausalLM

from ragen2.diagnostics import NotMeasurable, cross_score, mutual_information
from ragen2.diagnostics.sampled_scores import SampledScores, draw_columns
from ragen2.engines import scoring
from ragen2.engines.fused import attention_with_sums
from ragen2.engines.hf import HFEngine
from ragen2.engines.model_scorer import ModelScorer, load_scorer
from ragen2.engines.plain import PlainEngine
from ragen2.errors import ConfigError, ModelError, TokenMismatch
from ragen2.trajectory import Ids, as_ids


def ids(rng: np.random.Generator, length: int) -> Ids:
    return as_ids(rng.integers(0, 61, length))


def example(seed: int = 0, common: int = 20) -> tuple[list[Ids], list[Ids]]:
    """Contexts of many lengths that begin alike, and ragged reasonings, an empty one and one of a token among them."""
    rng = np.random.default_rng(seed)
    system = ids(rng, common)
    contexts = [np.concatenate([system, ids(rng, n)]) for n in (1, 9, 4, 30, 9)]
    return contexts, [ids(rng, n) for n in (7, 0, 1, 12, 7, 2)]


def brute(model: Any, contexts: list[Ids], reasonings: list[Ids]) -> np.ndarray:
    return np.array([[brute_logprobs(model, x, z)[0].sum() if len(z) else 0.0 for x in contexts] for z in reasonings])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
@pytest.mark.parametrize("build", [tiny_llama, tiny_qwen2])
@pytest.mark.parametrize("common", [0, 20])
def test_equals_the_plain_forward(build, common: int, dtype: torch.dtype, tolerance: float) -> None:
    model, (contexts, reasonings) = build(dtype), example(common=common)
    found = cross_score(HFEngine(model, ()), contexts, reasonings)
    np.testing.assert_allclose(found, brute(model, contexts, reasonings), rtol=0, atol=tolerance)


@pytest.mark.parametrize("budget", [1, 40, 100_000])
def test_any_token_budget_gives_the_same(budget: int) -> None:
    model, (contexts, reasonings) = tiny_llama(torch.float64), example(1)
    found = cross_score(HFEngine(model, (), token_budget=budget), contexts, reasonings)
    np.testing.assert_allclose(found, brute(model, contexts, reasonings), rtol=0, atol=1e-9)


def test_few_keys_and_values_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (contexts, reasonings) = tiny_llama(torch.float64), example(2)
    monkeypatch.setattr(scoring, "KV_BYTES", 1)
    found = cross_score(HFEngine(model, ()), contexts, reasonings)
    np.testing.assert_allclose(found, brute(model, contexts, reasonings), rtol=0, atol=1e-9)


def test_without_the_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (contexts, reasonings) = tiny_qwen2(torch.float64), example(3)
    monkeypatch.setattr("ragen2.engines.fused.can_fuse", lambda query: False)
    monkeypatch.setattr(scoring, "can_fuse", lambda query: False)
    monkeypatch.setattr(scoring, "SCORE_ELEMENTS", 4 * 40 * 50)
    found = cross_score(HFEngine(model, ()), contexts, reasonings)
    np.testing.assert_allclose(found, brute(model, contexts, reasonings), rtol=0, atol=1e-9)


def test_both_kernels_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, values = (torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(n)) for n in range(3))
    fused = [attention_with_sums(query, keys, values, 0.3, causal=causal) for causal in (True, False)]
    monkeypatch.setattr("ragen2.engines.fused.can_fuse", lambda query: False)
    for causal, (out, sums) in zip((True, False), fused, strict=True):
        plain_out, plain_sums = attention_with_sums(query, keys, values, 0.3, causal=causal)
        torch.testing.assert_close(out, plain_out, rtol=0, atol=1e-5)
        torch.testing.assert_close(sums, plain_sums, rtol=0, atol=1e-5)


def test_scaled_logits_adapters_and_lower_precision() -> None:
    torch.manual_seed(0)
    sizes = dict(vocab_size=61, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4)
    granite = GraniteForCausalLM(GraniteConfig(**sizes, num_key_value_heads=2, logits_scaling=3.0)).double().eval()  # type: ignore[arg-type]
    contexts, reasonings = example(4)
    found = cross_score(HFEngine(granite, ()), contexts, reasonings)
    np.testing.assert_allclose(found, brute(granite, contexts, reasonings), rtol=0, atol=1e-9)
    from peft import LoraConfig, get_peft_model

    llama = tiny_llama(torch.float64, tie_word_embeddings=False)
    adapted = get_peft_model(llama, LoraConfig(r=2, target_modules=["q_proj", "lm_head"], init_lora_weights=False))
    found = cross_score(HFEngine(adapted, ()), contexts, reasonings)
    np.testing.assert_allclose(found, brute(adapted, contexts, reasonings), rtol=0, atol=1e-9)
    low = cross_score(HFEngine(tiny_llama(torch.float32), (), autocast=torch.bfloat16), contexts, reasonings)
    np.testing.assert_allclose(low, brute(tiny_llama(torch.float32), contexts, reasonings), rtol=0, atol=1.0)


def test_the_vocabulary_in_blocks_equals_whole_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    from ragen2.engines import head_logprobs as module

    monkeypatch.setattr(module, "ROWS", 4)
    monkeypatch.setattr(module, "COLUMNS", 7)
    monkeypatch.setattr(module, "TARGETS", 3)
    monkeypatch.setattr(module, "LOGIT_ELEMENTS", 40)
    head = torch.nn.Linear(5, 23).double()
    rng = np.random.default_rng(0)
    hidden, at, targets = torch.from_numpy(rng.normal(size=(9, 5))), np.sort(rng.integers(0, 9, 30)), rng.integers(0, 23, 30)
    expected = head(hidden).log_softmax(-1)[at, targets].detach().numpy()
    np.testing.assert_allclose(module.head_logprobs(head, hidden, at, targets).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(module.head_logprobs(lambda x: head(x), hidden, at, targets).numpy(), expected, atol=1e-12)


def test_the_likeliest_tokens_are_exact_where_logits_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    from ragen2.engines import head_logprobs as module

    rng = np.random.default_rng(0)
    head = torch.nn.Linear(256, 4096)
    common = rng.normal(size=256)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(rng.normal(size=(4096, 256)) * 0.05 + common))
    hidden = torch.from_numpy(rng.normal(size=(64, 256)) * 4 + common).float()
    at, targets = np.arange(64), rng.integers(0, 4096, 64)
    truth = copy.deepcopy(head).double()(hidden.double()).log_softmax(-1)[at, targets].detach()

    def off() -> float:
        return float((module.head_logprobs(head, hidden, at, targets) - truth).square().mean().sqrt())

    mended = off()
    monkeypatch.setattr(module, "_mend_peaks", lambda *_: None)
    assert mended < 0.6 * off()


class Spy(HFEngine):
    """Counts the pairs it is asked for."""

    pairs = 0

    def score_each(self, contexts, continuations):
        self.pairs += sum(len(rows) for rows in continuations)
        yield from super().score_each(contexts, continuations)


def test_duplicates_are_scored_once_and_empty_ones_never() -> None:
    model, (contexts, reasonings) = tiny_llama(torch.float32), example(5)
    spy = Spy(model, ())
    found = cross_score(spy, [*contexts, contexts[1], contexts[1]], [*reasonings, reasonings[3], reasonings[1], reasonings[3]])
    assert spy.pairs == 5 * 5
    np.testing.assert_array_equal(found[:, 1], found[:, 5])
    np.testing.assert_array_equal(found[3], found[6])
    assert not found[[1, 7]].any()
    one = cross_score(spy, [contexts[0]] * 4, reasonings)
    assert spy.pairs == 25 + 5
    np.testing.assert_allclose(one, np.repeat(found[:6, :1], 4, axis=1), atol=1e-4)


def test_the_order_of_contexts_and_reasonings_does_not_matter() -> None:
    model, (contexts, reasonings) = tiny_llama(torch.float64), example(6)
    rng = np.random.default_rng(0)
    columns, rows = rng.permutation(len(contexts)), rng.permutation(len(reasonings))
    found = cross_score(HFEngine(model, ()), contexts, reasonings)
    moved = cross_score(HFEngine(model, ()), [contexts[n] for n in columns], [reasonings[s] for s in rows])
    np.testing.assert_allclose(moved, found[np.ix_(rows, columns)], rtol=0, atol=1e-10)


def test_progress_counts_every_pair() -> None:
    model, (contexts, reasonings) = tiny_llama(torch.float32), example(7)
    seen: list[tuple[int, int]] = []
    cross_score(HFEngine(model, (), token_budget=20), contexts, reasonings, lambda done, total: seen.append((done, total)))
    assert seen == [(n, 25) for n in range(1, 26)]
    many = [as_ids([n % 61, n // 61]) for n in range(250)]
    seen.clear()
    cross_score(HFEngine(model, ()), contexts[:2], many, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (500, 500)
    assert 100 < len(seen) <= 400


def test_gradients_and_training_come_back_between_two_parts() -> None:
    model, (contexts, reasonings) = tiny_llama(torch.float32, attention_dropout=0.5).train(), example(8)
    stream: Any = HFEngine(model, (), token_budget=20).score_each(contexts, [reasonings] * len(contexts))
    next(stream)
    assert model.training
    assert torch.is_grad_enabled()
    stream.close()


@pytest.mark.parametrize("kind", [HFEngine, ModelScorer])
def test_hostile_ids_are_named(kind: Any) -> None:
    engine = kind(tiny_llama(torch.float32), ())
    good = [as_ids([1, 2]), as_ids([3])]
    for wrong in (61, -1, 2**40):
        with pytest.raises(TokenMismatch, match=f"context 1 holds the token id {wrong}, .* 0 to 60"):
            cross_score(engine, [good[0], np.array([3, wrong])], good)
        with pytest.raises(TokenMismatch, match=f"continuation 1 of context 0 holds the token id {wrong}"):
            cross_score(engine, good, [good[0], np.array([wrong])])
    for odd in (np.array([1.5]), np.array(["x"]), np.array([[1, 2]])):
        with pytest.raises(TokenMismatch, match="whole numbers"):
            cross_score(engine, good, [good[0], odd])
    with pytest.raises(TokenMismatch, match="context 0 is empty"):
        cross_score(engine, [as_ids([])], good)
    with pytest.raises(TokenMismatch, match="reads at most 512"):
        cross_score(engine, [as_ids([1] * 510)], [as_ids([1, 2, 3])])


def test_broken_weights_are_not_measurable() -> None:
    model, (contexts, reasonings) = tiny_llama(torch.float32), example(9)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")
    sums = cross_score(HFEngine(model, ()), contexts, reasonings)
    with pytest.raises(NotMeasurable, match="weights are not finite"):
        mutual_information(sums, [len(z) for z in reasonings], [0, 1, 2, 3, 4, 0])
    drawn = cross_score(
        HFEngine(model, ()), contexts, reasonings, columns=2, source_S=[0, 1, 2, 3, 4, 0], rng=np.random.default_rng(0)
    )
    with pytest.raises(NotMeasurable, match="weights are not finite"):
        drawn.information()


def test_a_scorer_that_leaves_out_or_repeats_a_pair_is_refused() -> None:
    class Odd:
        def __init__(self, pairs: list[tuple[int, int]]) -> None:
            self.pairs = pairs

        def score(self, contexts, continuations):
            raise AssertionError("score_each is there")

        def score_each(self, contexts, continuations):
            for i, k in self.pairs:
                yield i, k, np.zeros(len(continuations[i][k]))

    contexts, reasonings = [as_ids([1]), as_ids([2])], [as_ids([3, 4])]
    assert not cross_score(Odd([(1, 0), (0, 0)]), contexts, reasonings).any()
    with pytest.raises(TokenMismatch, match="2 pairs and returned 1"):
        cross_score(Odd([(1, 0)]), contexts, reasonings)
    with pytest.raises(TokenMismatch, match="a second time"):
        cross_score(Odd([(1, 0), (1, 0)]), contexts, reasonings)


# Any model


def test_a_folder_is_loaded_with_its_tokenizer_and_scores(tmp_path: Path) -> None:
    tiny_model(0).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    scorer = load_scorer(str(tmp_path))
    assert scorer.shared
    assert scorer.tokenizer.encode("level 3") == tiny_tokenizer().encode("level 3")
    texts = [as_ids(scorer.tokenizer.encode(text)) for text in ("level 3 Say up", "level 4", "up or down")]
    np.testing.assert_allclose(cross_score(scorer, texts, texts), brute(scorer.model, texts, texts), rtol=0, atol=1e-4)
    with pytest.raises(ModelError, match="no model folder"):
        load_scorer("./nowhere")


def test_a_model_that_cannot_share_prefixes_scores_whole_rows() -> None:
    torch.manual_seed(0)
    sizes = dict(vocab_size=61, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=6)
    model = Gemma2ForCausalLM(Gemma2Config(**sizes, num_key_value_heads=2)).eval()  # type: ignore[arg-type]
    scorer, (contexts, reasonings) = ModelScorer(model), example(10)
    assert not scorer.shared
    assert "soft cap" in scorer.reason
    np.testing.assert_allclose(cross_score(scorer, contexts, reasonings), brute(model, contexts, reasonings), rtol=0, atol=1e-4)


def test_contexts_longer_than_a_sliding_window_go_on_as_whole_rows() -> None:
    model = tiny_qwen2(torch.float32, use_sliding_window=True, sliding_window=32, max_window_layers=0)
    scorer, rng = ModelScorer(model), np.random.default_rng(0)
    assert scorer.shared
    contexts, reasonings = [ids(rng, 8), ids(rng, 40)], [ids(rng, 3), ids(rng, 5)]
    found = cross_score(scorer, contexts, reasonings)
    assert not scorer.shared
    np.testing.assert_allclose(found, brute(model, contexts, reasonings), rtol=0, atol=1e-4)


# Sampled columns


class Table:
    """Scores from a matrix: a context is its number, a reasoning is its number and one more token."""

    def __init__(self, sums_SN: np.ndarray) -> None:
        self.sums_SN, self.pairs = sums_SN, 0

    def score(self, contexts, continuations):
        self.pairs += len(continuations[0])
        return [[np.array([self.sums_SN[int(row[0]), int(contexts[0][0])], 0.0]) for row in continuations[0]]]


def table(kind: str, contexts: int, each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Cross-scores of a policy that ignores its context, reads it, reads only part of it, or half follows it."""
    rng = np.random.default_rng(seed)
    source = np.repeat(np.arange(contexts), each)
    own = np.arange(contexts) == source[:, None]
    if kind == "flat":
        return rng.normal(-30, 0.05, own.shape), source
    if kind == "healthy":
        return np.where(own, -20.0, rng.normal(-60, 5, own.shape)), source
    if kind == "groups":
        alike = np.arange(contexts) // 8 == source[:, None] // 8
        return np.where(alike, rng.normal(-20, 1, own.shape), rng.normal(-90, 5, own.shape)), source
    return rng.normal(-60, 1.5, own.shape) + 1.5 * own, source


def estimate(kind: str, columns: int, seed: int) -> tuple[float, Any]:
    sums, source = table(kind, 64, 1, seed)
    contexts, reasonings = [as_ids([n]) for n in range(64)], [as_ids([s, 0]) for s in range(len(source))]
    scorer, rng = Table(sums), np.random.default_rng([seed, 1])
    drawn = cross_score(scorer, contexts, reasonings, columns=columns, source_S=source, rng=rng)
    assert scorer.pairs == len(source) * (1 + min(columns, 63))
    return mutual_information(sums, [2] * len(source), source)["mi_sequence"], drawn.information()


@pytest.mark.parametrize("kind", ["flat", "healthy", "groups", "half"])
@pytest.mark.parametrize("columns", [12, 32])
def test_the_stated_error_holds_the_true_value(kind: str, columns: int) -> None:
    pairs = [estimate(kind, columns, seed) for seed in range(40)]
    within = [abs(found.mi_sequence - true) <= 2 * found.standard_error + 1e-9 for true, found in pairs]
    assert np.mean(within) >= 0.85
    misses = np.array([found.mi_sequence - true for true, found in pairs])
    stated = np.mean([found.standard_error for _, found in pairs])
    assert stated <= 3 * np.sqrt(np.mean(misses**2)) + 1e-6  # not so wide that it says nothing
    if kind in ("groups", "half"):
        uncorrected = misses + [found.jensen_bias for _, found in pairs]
        assert uncorrected.mean() > 0
        assert abs(misses.mean()) < 0.7 * uncorrected.mean()
    assert pairs[0][1].scored_share == pytest.approx((columns + 1) / 64)


def test_all_columns_are_the_exact_figure() -> None:
    true, found = estimate("half", 63, 0)
    assert found.mi_sequence == pytest.approx(true, abs=1e-12)
    assert found.standard_error == 0.0
    assert found.jensen_bias == 0.0
    assert found.scored_share == 1.0
    sums, source = table("half", 64, 1, 0)
    exact = mutual_information(sums, [2] * len(source), source)
    assert found.conditional_entropy_sequence == pytest.approx(exact["conditional_entropy_sequence"])
    assert found.mi_upper_bound == pytest.approx(exact["mi_upper_bound"])


def test_sampled_pairs_equal_the_whole_matrix_where_scored_and_duplicates_share_their_draw() -> None:
    model, (contexts, reasonings) = tiny_llama(torch.float64), example(11)
    given = [*contexts, contexts[0]]
    said, source = [*reasonings, reasonings[0]], [0, 1, 2, 3, 4, 5, 2]
    whole = cross_score(HFEngine(model, ()), contexts, reasonings)
    spy = Spy(model, ())
    drawn = cross_score(spy, given, said, columns=2, source_S=source, rng=np.random.default_rng(3))
    assert drawn.sum_logprob_UC.shape == (6, 5)
    assert drawn.class_N.tolist() == [0, 1, 2, 3, 4, 0]
    assert drawn.source_S.tolist() == [0, 1, 2, 3, 4, 0, 2]
    assert drawn.reasoning_S.tolist() == [0, 1, 2, 3, 4, 5, 0]
    scored = ~np.isnan(drawn.sum_logprob_UC)
    assert scored.sum(1).tolist() == [4, 5, 3, 3, 3, 3]  # two own columns of the first, all of the empty one
    assert spy.pairs == 4 + 3 * 4
    np.testing.assert_allclose(drawn.sum_logprob_UC[scored], whole[scored], rtol=0, atol=1e-10)
    again = cross_score(spy, given, said, columns=2, source_S=source, rng=np.random.default_rng(3))
    assert drawn.information() == again.information()
    plain = cross_score(PlainEngine(model, ()), given, said, columns=2, source_S=source, rng=np.random.default_rng(3))
    assert plain.information().mi_sequence == pytest.approx(drawn.information().mi_sequence, abs=1e-4)


def test_sampling_refuses_what_it_cannot_do() -> None:
    contexts, rng = [as_ids([0]), as_ids([1])], np.random.default_rng(0)
    scorer: Any = Table(np.zeros((1, 2)))
    with pytest.raises(ConfigError, match="at least 2 columns"):
        cross_score(scorer, contexts, contexts[:1], columns=1, source_S=[0], rng=rng)
    with pytest.raises(ConfigError, match="Generator"):
        cross_score(scorer, contexts, contexts[:1], columns=2, source_S=[0], rng=None)  # type: ignore[call-overload]
    for source in (None, [2], [-1], [0, 1], [0.0]):
        with pytest.raises(ConfigError, match="source_S"):
            cross_score(scorer, contexts, contexts[:1], columns=2, source_S=source, rng=rng)  # type: ignore[call-overload]
    alone = SampledScores(np.zeros((1, 1)), np.ones((1, 1), dtype=bool), np.array([0]), np.array([0]), np.array([0]))
    with pytest.raises(NotMeasurable, match="two different contexts"):
        alone.information()


def test_minus_infinity_in_other_columns_is_allowed() -> None:
    sums = np.array([[-1.0, -np.inf, -np.inf, np.nan], [-np.inf, -2.0, np.nan, -np.inf]])
    own = np.eye(2, 4, dtype=bool)
    found = SampledScores(sums, own, np.arange(2), np.arange(2), np.arange(4)).information()
    assert found.mi_sequence == pytest.approx(np.log(4))
    assert found.standard_error == 0.0


def test_columns_are_drawn_evenly() -> None:
    own = np.eye(6, dtype=bool)
    rng = np.random.default_rng(0)
    drawn = np.mean([draw_columns(own, 2, rng) for _ in range(2000)], axis=0)
    np.testing.assert_allclose(drawn[~own], 2 / 5, atol=0.05)
    assert (drawn[own] == 1).all()
