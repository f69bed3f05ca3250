"""Sessions of the fast engine say what the plain engine says, over turns, resumes, divergences, closings and compaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from engine_models import brute_logprobs, tiny_llama, tiny_qwen2

from ragen2.engines.base import Engine, Reply, SamplingConfig
from ragen2.engines.hf import HFEngine
from ragen2.engines.plain import PlainEngine
from ragen2.engines.prefix import SharedRows, token_logprobs
from ragen2.errors import ConfigError, NonFiniteLoss, TokenMismatch
from ragen2.trajectory import Ids, as_ids

END = frozenset({0, 7})
PROMPTS = [as_ids([5, 9, 11, 40, 2, 33]), as_ids([8]), as_ids([20, 21, 22, 23, 24, 25, 26, 27, 28])]


def conversation(
    engine: Engine, sampling: SamplingConfig, seeds: list[int], follow: Callable[[int, int, Ids], Ids | None], group: int = 4
) -> dict[int, list[tuple[Ids, Reply]]]:
    """Run all rows to their end; `follow(row, turn, held)` gives the next context, None to close."""
    session = engine.open(PROMPTS, group, sampling, seeds)
    context = {row: PROMPTS[row // group] for row in range(len(PROMPTS) * group)}
    told: dict[int, list[tuple[Ids, Reply]]] = {row: [] for row in context}
    while replies := session.advance():
        assert [reply.row for reply in replies] == sorted(reply.row for reply in replies)
        for reply in replies:
            row = reply.row
            told[row].append((context[row], reply))
            after = follow(row, len(told[row]), np.concatenate([context[row], reply.ids]))
            if after is None:
                session.close(row)
            else:
                context[row] = after
                session.resume(row, after)
    return told


def append(row: int, turn: int, held: Ids) -> Ids | None:
    rng = np.random.default_rng([row, turn])
    return None if turn == 1 + row % 5 else np.concatenate([held, as_ids(rng.integers(1, 61, 1 + (row * turn) % 6))])


def diverge(row: int, turn: int, held: Ids) -> Ids | None:
    """Contexts that drop tokens in the middle, leave the prompt early, shrink, or stay exactly what was shown."""
    if turn == 4:
        return None
    kind = (row + turn) % 5
    tail = as_ids(np.random.default_rng([7, row, turn]).integers(1, 61, 3))
    cut = [held, held[: len(held) // 2], held[2:], held[:1], np.concatenate([held[:4], tail, held[6:]])][kind]
    return np.concatenate([cut, tail]) if kind % 2 else (cut if len(cut) else tail)


def same(left: dict[int, list[tuple[Ids, Reply]]], right: dict[int, list[tuple[Ids, Reply]]], tolerance: float) -> None:
    assert left.keys() == right.keys()
    for row in left:
        assert len(left[row]) == len(right[row])
        for (_, one), (_, two) in zip(left[row], right[row], strict=True):
            assert one.ids.tolist() == two.ids.tolist(), row
            assert one.ended == two.ended
            np.testing.assert_allclose(one.logprobs, two.logprobs, atol=tolerance)


@pytest.mark.parametrize("follow", [append, diverge])
@pytest.mark.parametrize("build", [tiny_llama, tiny_qwen2])
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_equals_the_plain_engine(build: Any, follow: Any, temperature: float) -> None:
    model, seeds = build(torch.float64), list(range(12))
    sampling = SamplingConfig(temperature=temperature, turn_tokens=9, context_tokens=120)
    fast = conversation(HFEngine(model, END, token_budget=40), sampling, seeds, follow)
    slow = conversation(PlainEngine(model, END), sampling, seeds, follow)
    same(fast, slow, 1e-5)
    replies = [reply for turns in fast.values() for _, reply in turns]
    assert {reply.ended for reply in replies} == {True, False} or temperature == 0
    assert all(reply.ended == (reply.ids[-1] in END) for reply in replies)


def test_sampled_logprobs_are_those_of_the_trainer() -> None:
    model = tiny_llama(torch.float32)
    sampling = SamplingConfig(temperature=0.8, turn_tokens=9)
    for turns in conversation(HFEngine(model, END), sampling, list(range(12)), append).values():
        for context, reply in turns:
            with torch.no_grad():
                scores = token_logprobs(model, SharedRows([context], [reply.ids]), temperature=0.8)
            np.testing.assert_allclose(scores.logprobs_BT[0].numpy(), reply.logprobs, atol=1e-5)


def test_same_seeds_same_bits_and_rows_are_independent() -> None:
    model = tiny_llama(torch.float64)
    sampling = SamplingConfig(turn_tokens=9)
    first = conversation(HFEngine(model, END), sampling, list(range(12)), append)
    same(first, conversation(HFEngine(model, END), sampling, list(range(12)), append), 0.0)
    seeds = [row if row % 3 == 0 else 1000 + row for row in range(12)]
    others = conversation(HFEngine(model, END), sampling, seeds, lambda r, t, h: append(r, t, h) if r % 3 == 0 else None)
    mine = {row: turns for row, turns in first.items() if row % 3 == 0}
    same(mine, {row: turns for row, turns in others.items() if row % 3 == 0}, 1e-6)
    assert any(first[row][0][1].ids.tolist() != others[row][0][1].ids.tolist() for row in range(12) if row % 3)


def test_compaction_keeps_rows_whole() -> None:
    model, engine = tiny_llama(torch.float64), HFEngine(tiny_llama(torch.float64), END)
    sampling = SamplingConfig(turn_tokens=6, context_tokens=400)
    sizes: set[int] = set()
    lasting = {0, 1, 2, 3, 9}

    def follow(row: int, turn: int, held: Ids) -> Ids | None:
        return np.concatenate([held, as_ids([3, 4])]) if turn < (12 if row in lasting else 2) else None

    original = engine.open

    def watched(*args: Any) -> Any:
        session = original(*args)
        step = session._step
        session._step = lambda running: (sizes.add(session.slots.count), step(running))[1]  # type: ignore[method-assign]
        return session

    engine.open = watched  # type: ignore[method-assign]
    fast = conversation(engine, sampling, list(range(12)), follow)
    assert min(sizes) <= 6 < max(sizes)
    assert len(sizes) >= 2
    same(fast, conversation(PlainEngine(model, END), sampling, list(range(12)), follow), 1e-5)


@pytest.mark.parametrize("kind", [HFEngine, PlainEngine])
def test_limits(kind: Any) -> None:
    engine = kind(tiny_llama(torch.float32), frozenset())
    session = engine.open(PROMPTS[:1], 2, SamplingConfig(turn_tokens=5, context_tokens=9), [1, 2])
    replies: list[Reply] = []
    while len(replies) < 2:
        replies += session.advance()
    assert [len(reply.ids) for reply in replies] == [3, 3]
    assert not replies[0].ended
    session.resume(0, as_ids([1] * 9))
    (full,) = session.advance()
    assert (len(full.ids), len(full.logprobs), full.ended) == (0, 0, False)
    session.close(0)
    session.close(1)
    assert session.advance() == []
    with pytest.raises(TokenMismatch, match="row 0"):
        session.resume(0, as_ids([1]))
    exact = engine.open(PROMPTS[:1], 1, SamplingConfig(context_tokens=6), [1])
    assert [len(reply.ids) for reply in exact.advance()] == [0]
    with pytest.raises(ConfigError, match="seeds"):
        engine.open(PROMPTS, 2, SamplingConfig(), [1])
    with pytest.raises(ConfigError, match="empty"):
        engine.open([as_ids([])], 1, SamplingConfig(), [1])


@pytest.mark.parametrize("kind", [HFEngine, PlainEngine])
def test_nan_logits_stop_with_the_reason(kind: Any) -> None:
    model = tiny_llama(torch.float32)
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    with pytest.raises(NonFiniteLoss, match="logits are NaN"):
        kind(model, END).open(PROMPTS, 2, SamplingConfig(), list(range(6))).advance()


def test_training_flags_and_gradients_are_left_alone() -> None:
    model = tiny_llama(torch.float32, attention_dropout=0.5).train()
    model.model.layers[0].eval()
    session = HFEngine(model, END).open(PROMPTS, 2, SamplingConfig(temperature=0, turn_tokens=4), list(range(6)))
    session.advance()
    assert model.training
    assert not model.model.layers[0].training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("kind", [HFEngine, PlainEngine])
@pytest.mark.parametrize("budget", [1, 30, 16384])
def test_score_equals_brute_force(kind: Any, budget: int) -> None:
    model, rng = tiny_qwen2(torch.float32), np.random.default_rng(5)
    contexts = [*PROMPTS, PROMPTS[0]]
    shared = [as_ids(rng.integers(0, 61, n)) for n in (4, 0, 1, 7, 2)]
    continuations = [[*shared, shared[0]], shared[:2], [], shared[3:]]
    found = kind(model, END, token_budget=budget).score(contexts, continuations)
    assert [len(rows) for rows in found] == [6, 2, 0, 2]
    for context, rows, scores in zip(contexts, continuations, found, strict=True):
        for row, logprobs in zip(rows, scores, strict=True):
            np.testing.assert_allclose(logprobs, brute_logprobs(model, context, row)[0] if len(row) else [], atol=1e-5)
    with pytest.raises(TokenMismatch):
        kind(model, END).score(contexts, continuations[:1])


def test_bfloat16_and_autocast_run() -> None:
    sampling = SamplingConfig(turn_tokens=5)
    for engine in (HFEngine(tiny_llama(torch.bfloat16), END), HFEngine(tiny_llama(torch.float32), END, autocast=torch.bfloat16)):
        told = conversation(engine, sampling, list(range(12)), append)
        assert all(np.isfinite(reply.logprobs).all() for turns in told.values() for _, reply in turns)
        assert engine.score(PROMPTS[:1], [[as_ids([3, 4])]])[0][0].shape == (2,)
