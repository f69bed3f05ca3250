"""Warm-up: rows equal rollouts, batches, optimisers, the loop and the gate."""

from __future__ import annotations

import dataclasses
import os
import signal
from contextlib import nullcontext

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from fakes import STRIPPING, ScriptedEngine, byte_tokenizer

from ragen2.envs import make
from ragen2.errors import ConfigError, NonFiniteLoss, WarmupFailed
from ragen2.prompting.chat_format import ChatFormat
from ragen2.rollout.collector import Collector, Level
from ragen2.rollout.config import RolloutConfig
from ragen2.training import petri, warmup_gate
from ragen2.training.demonstrations import DemoRow, DemoStream, episode_rows, play_episode, to_text
from ragen2.training.petri import PetriConfig, new_petri, petri_tokenizer
from ragen2.training.settings import EnvironmentConfig
from ragen2.training.warmup import (
    WarmupConfig,
    demonstration_batches,
    make_optimizers,
    rate_factor,
    train_on_batches,
    warmup,
)
from ragen2.training.warmup_batches import batch_loss, batch_rows, shared_prefix
from ragen2.training.warmup_gate import EnvironmentMeasures, check_gate, gate_levels

LAKE, BANDIT = EnvironmentConfig("frozen-lake"), EnvironmentConfig("bandit")
ROLLOUT = RolloutConfig()
TINY = PetriConfig(hidden=24, layers=2, heads=2, key_value_heads=1, feed_forward=32)


@pytest.fixture(scope="module")
def tokenizer():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(petri, "SERVED", ())
        patch.setattr(petri, "VOCABULARY_EPISODES", 12)
        return petri_tokenizer([LAKE, BANDIT], ROLLOUT, 1200)


@pytest.fixture(scope="module")
def chat(tokenizer):
    return ChatFormat(tokenizer)


def lake_episode(seed: int = 4, rollout: RolloutConfig = ROLLOUT, expertise: float = 0.2):
    return play_episode(make("frozen-lake"), rollout, seed, 7, np.random.default_rng(seed), expertise)


def some_rows(chat: ChatFormat, count: int, *environments: EnvironmentConfig, most_turns: int | None = None) -> list[DemoRow]:
    stream = DemoStream(environments or (LAKE,), chat, ROLLOUT, seed=1)
    return [row for row, _ in zip(stream.rows(most_turns), range(count), strict=False)]


# -- rows -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [None, 2, 1])
@pytest.mark.parametrize("template", ["append", "strips"])
def test_rows_are_the_contexts_and_replies_of_a_rollout(chat, window, template):
    if template == "strips":
        chat = ChatFormat(byte_tokenizer(STRIPPING))
        assert chat.mode == "row-a-turn"
    rollout = RolloutConfig(
        context="full" if window is None else "limited", context_turns=window or 2, turn_tokens=512, context_tokens=8192
    )
    episode = lake_episode(rollout=rollout)
    assert len(episode.turns) > 2
    engine = ScriptedEngine(chat, lambda row, turn, text: episode.turns[turn].reply)
    collector = Collector(engine, chat, rollout)
    batch = collector.collect([Level("frozen-lake", lambda: make("frozen-lake"), 4, (7,), "level")], [0])
    collector.close()
    played = batch.trajectories[0]
    assert played.task_return == episode.task_return and played.success == episode.success
    expected = [np.concatenate([turn.context_ids, turn.sampled_ids]) for turn in played.turns]
    rows = episode_rows(episode, chat, window=rollout.window)
    if template == "append" and window is None:
        expected = expected[-1:]
    assert [row.ids.tolist() for row in rows] == [ids.tolist() for ids in expected]


def test_weights_single_out_replies_and_spare_the_system_text(chat):
    episode = lake_episode()
    (row,) = episode_rows(episode, chat, observation_weight=0.25, system_weight=0.0)
    assert len(row.ids) == len(row.weights)
    replies = "".join(f"{turn.reply}<|im_end|>" for turn in episode.turns)
    assert chat.decode(row.ids[row.weights == 1.0]) == replies
    assert chat.decode(row.ids[row.weights == 0.0]).startswith(f"<|im_start|>system\n{episode.system}<|im_end|>")
    shown = chat.decode(row.ids[row.weights == 0.25])
    assert all(turn.user in shown for turn in episode.turns) and episode.system not in shown
    assert (row.weights[: row.prefix] == 0).all()
    assert to_text(episode, chat) == chat.decode(row.ids)


def test_rendered_rows_weigh_their_last_reply_only(chat):
    episode = lake_episode()
    rows = episode_rows(episode, chat, window=2)
    assert [chat.decode(row.ids[row.weights == 1.0]) for row in rows] == [f"{turn.reply}<|im_end|>" for turn in episode.turns]


def test_an_episode_can_stop_early_without_saying_so(chat):
    whole, first = lake_episode(), play_episode(make("frozen-lake"), ROLLOUT, 4, 7, np.random.default_rng(4), 0.2, most_turns=1)
    assert first.turns == whole.turns[:1]


def test_expertise_decides_how_good_the_demonstrations_are():
    def rate(expertise: float) -> float:
        return float(np.mean([lake_episode(seed, expertise=expertise).success for seed in range(40)]))

    assert rate(1.0) > 0.9 > 0.6 > rate(0.0)


def test_stream_repeats_with_its_seed_and_takes_turns(chat):
    first, again = (some_rows(chat, 6, LAKE, BANDIT) for _ in range(2))
    assert all(np.array_equal(a.ids, b.ids) for a, b in zip(first, again, strict=True))
    assert ["frozen lake" in chat.decode(row.ids) for row in first] == [True, False] * 3


def test_rows_too_long_for_the_rollout_are_left_out(chat):
    stream = DemoStream([LAKE], chat, dataclasses.replace(ROLLOUT, context_tokens=300), seed=1)
    lengths = [len(row.ids) for row, _ in zip(stream.rows(), range(20), strict=False)]
    assert max(lengths) <= 300


# -- batches ----------------------------------------------------------------------------------------------------------------


def test_batches_hold_every_row_once_within_the_budget(chat):
    rows = some_rows(chat, 60, LAKE, BANDIT)
    batches = list(batch_rows(iter(rows), 1500, 25, np.random.default_rng(0)))
    assert sorted(id(row) for batch in batches for row in batch) == sorted(id(row) for row in rows)
    for batch in batches:
        start, longest = shared_prefix(batch), max(len(row.ids) for row in batch)
        assert start + len(batch) * (longest - start) <= 1500
        assert len({row.ids[: row.prefix].tobytes() for row in batch}) == 1


def test_a_row_longer_than_the_budget_goes_alone(chat):
    rows = some_rows(chat, 5)
    batches = list(batch_rows(iter(rows), 10, 256, np.random.default_rng(0)))
    assert [len(batch) for batch in batches] == [1] * 5


def test_first_turns_have_their_share_of_the_batches(chat):
    config = WarmupConfig(first_turn_share=0.25, block_rows=16)
    batches = demonstration_batches(DemoStream([LAKE], chat, ROLLOUT, seed=0), config, 0)
    turns = [max(chat.decode(row.ids).count("<|im_start|>user") for row in next(batches)) for _ in range(8)]
    assert [most == 1 for most in turns] == [False, False, False, True] * 2


def test_shared_prefix_gives_the_loss_and_gradient_of_whole_rows(tokenizer, chat, monkeypatch):
    model = new_petri(TINY, tokenizer, 0)
    rows = some_rows(chat, 7, most_turns=1)
    assert shared_prefix(rows) > 50
    shared, shared_reply = batch_loss(model, rows, nullcontext())
    shared.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    monkeypatch.setattr("ragen2.training.warmup_batches.shared_prefix", lambda batch: 1)
    whole, whole_reply = batch_loss(model, rows, nullcontext())
    whole.backward()
    assert shared.item() == pytest.approx(whole.item(), rel=1e-5)
    assert shared_reply == pytest.approx(whole_reply, rel=1e-5)
    for left, right in zip(gradients, [p.grad for p in model.parameters()], strict=True):
        assert right is not None
        assert torch.allclose(left, right, atol=1e-5)


def test_loss_is_the_weighted_mean_over_the_batch_and_ignores_padding(tokenizer, chat):
    model = new_petri(TINY, tokenizer, 0)
    rows = sorted(some_rows(chat, 4), key=lambda row: len(row.ids))
    assert len(rows[0].ids) < len(rows[-1].ids)
    total = weight = 0.0
    for row in rows:
        ids = torch.from_numpy(row.ids.astype(np.int64))[None]
        logprobs = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), -1)
        losses = -logprobs.gather(-1, ids[0, 1:, None])[:, 0]
        total += float((losses.detach() * torch.from_numpy(row.weights[1:])).sum())
        weight += float(row.weights[1:].sum())
    loss, _ = batch_loss(model, rows, nullcontext())
    assert loss.item() == pytest.approx(total / weight, rel=1e-5)


# -- optimisers and loop -----------------------------------------------------------------------------------------------------


def test_rate_rises_then_falls_to_its_final_fraction():
    config = WarmupConfig(steps=100, ramp_steps=20, final_fraction=0.1)
    assert [rate_factor(step, config) for step in (1, 10, 20)] == pytest.approx([0.05, 0.5, 1.0])
    assert rate_factor(60, config) == pytest.approx(0.55)
    assert rate_factor(100, config) == pytest.approx(0.1)


def test_muon_takes_the_matrices_of_the_layers_and_adamw_the_rest(tokenizer):
    model = new_petri(TINY, tokenizer, 0)
    muon, adamw = make_optimizers(model, WarmupConfig())
    in_muon = {id(p) for group in muon.param_groups for p in group["params"]}
    in_adamw = {id(p) for group in adamw.param_groups for p in group["params"]}
    assert isinstance(muon, torch.optim.Muon) and isinstance(adamw, torch.optim.AdamW)
    assert in_muon == {id(p) for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name}
    assert in_muon | in_adamw == {id(p) for p in model.parameters()} and not in_muon & in_adamw
    (only,) = make_optimizers(model, WarmupConfig.pretrained())
    assert isinstance(only, torch.optim.AdamW)
    assert sum(len(group["params"]) for group in only.param_groups) == len(list(model.parameters()))


def test_frozen_parameters_stay_out(tokenizer):
    model = new_petri(TINY, tokenizer, 0)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    (muon,) = make_optimizers(model, WarmupConfig())
    assert sum(len(group["params"]) for group in muon.param_groups) == TINY.layers


def run(tokenizer, chat, config: WarmupConfig, report=None):
    model = new_petri(TINY, tokenizer, 0)
    batches = demonstration_batches(DemoStream([BANDIT], chat, ROLLOUT, seed=0), config, 0)
    return model, train_on_batches(model, batches, config, report=report)


def test_training_lowers_the_loss_and_repeats(tokenizer, chat):
    config = WarmupConfig(steps=20, batch_tokens=400, block_rows=24, ramp_steps=2, learning_rate=0.02, autocast="none")
    losses: list[float] = []
    model, result = run(tokenizer, chat, config, lambda step, total, figures: losses.append(figures["reply_loss"]))
    assert result.stopped == "steps" and result.steps == len(losses) == 20 and result.tokens > 20 * 200
    assert losses[-1] < 0.9 * losses[0]
    assert result.reply_loss == pytest.approx(np.mean(losses[-20:]))
    assert not model.training
    again, _ = run(tokenizer, chat, config)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_stops_at_its_loss(tokenizer, chat):
    _, result = run(tokenizer, chat, WarmupConfig(steps=40, batch_tokens=300, block_rows=8, stop_loss=100.0))
    assert (result.steps, result.stopped) == (20, "loss")


def test_first_interrupt_ends_after_the_running_step(tokenizer, chat):
    before = signal.getsignal(signal.SIGINT)

    def report(step: int, total: int, figures: dict[str, float]) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    _, result = run(tokenizer, chat, WarmupConfig(steps=40, batch_tokens=300, block_rows=8), report)
    assert (result.steps, result.stopped) == (3, "interrupted")
    assert signal.getsignal(signal.SIGINT) is before


def test_non_finite_loss_keeps_the_weights(tokenizer, chat):
    model = new_petri(TINY, tokenizer, 0)
    with torch.no_grad():
        model.model.norm.weight[0] = float("inf")
    before = [p.clone() for p in model.parameters()]
    config = WarmupConfig(steps=3, batch_tokens=300, block_rows=8)
    with pytest.raises(NonFiniteLoss, match="learning_rate"):
        train_on_batches(model, demonstration_batches(DemoStream([BANDIT], chat, ROLLOUT, seed=0), config, 0), config)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_batches_that_run_out_say_so(tokenizer, chat):
    model = new_petri(TINY, tokenizer, 0)
    with pytest.raises(WarmupFailed, match="step 2 of 400"):
        train_on_batches(model, iter([some_rows(chat, 1)]), WarmupConfig())


@pytest.mark.parametrize(
    ("field", "value"), [("steps", 0), ("learning_rate", 0.0), ("expertise", 1.5), ("min_information", 2.0), ("batch_tokens", -1)]
)
def test_settings_that_make_no_sense_are_refused(field, value):
    with pytest.raises(ConfigError, match=f"warmup {field} is {value}"):
        WarmupConfig(**{field: value})


# -- the gate ----------------------------------------------------------------------------------------------------------------


def measures(**changes) -> EnvironmentMeasures:
    base = EnvironmentMeasures("frozen-lake", "validation", 64, 0.4, 0.4, 0.99, 0.98, 8, 2.0, 2.08, 20.0)
    return dataclasses.replace(base, **changes)


def test_gate_passes_what_reads_and_keeps_the_format():
    check_gate([measures()], min_information=0.8, min_valid_think=0.95, advice="")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"information": 0.1}, "does not read its prompt: frozen-lake: mutual information 0.10 of 2.08 nats (5%)"),
        ({"valid_think": 0.9}, "breaks the format of replies: frozen-lake: mutual information 2.00"),
        ({"information": None, "why_not": "no reasoning"}, "not measured (no reasoning)"),
        ({"information": 0.1, "valid_think": 0.0}, "does not read its prompt and breaks the format"),
    ],
)
def test_gate_says_what_is_wrong_with_the_figures(changes, fault):
    with pytest.raises(WarmupFailed) as caught:
        check_gate([measures(**changes)], min_information=0.8, min_valid_think=0.95, advice="Try more steps.")
    assert fault in str(caught.value) and "Try more steps." in str(caught.value)


def test_gate_plays_held_out_levels_where_there_are_enough():
    lake = gate_levels(LAKE, 20)
    assert lake.split == "validation" and len(set(lake.seeds)) == 20 and lake.distinct == lake.seeds[:8]
    bandit = gate_levels(BANDIT, 20)
    assert bandit.split == "train" and len(bandit.seeds) == 20 and len(set(bandit.distinct)) == 8


def test_warmup_measures_a_model_from_end_to_end(tokenizer, monkeypatch):
    monkeypatch.setattr(warmup_gate, "REASONINGS", 2)
    model = new_petri(TINY, tokenizer, 0)
    config = WarmupConfig(steps=2, batch_tokens=300, block_rows=8, gate_levels=3, min_information=0.0, min_valid_think=0.0)
    rollout = RolloutConfig(max_turns=1, max_actions=1, turn_tokens=6)
    result = warmup(model, tokenizer, [BANDIT], config, rollout=rollout)
    found = result.measures["bandit"]
    assert found.levels == 3 and found.valid_think == 0.0 and found.information is None and found.why_not
    strict = dataclasses.replace(config, min_valid_think=0.5)
    with pytest.raises(WarmupFailed, match="breaks the format"):
        warmup(model, tokenizer, [BANDIT], strict, rollout=rollout)
