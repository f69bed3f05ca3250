"""The update: gradients do not depend on how the work is split, dropped groups leave no trace, NaN touches no weight."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from tiny import one_thread, random_batch, tiny_config, tiny_parts  # noqa: F401
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from ragen2.algorithms import aggregate_loss
from ragen2.engines.prefix import SharedRows
from ragen2.errors import NonFiniteLoss
from ragen2.training.config import RunConfig
from ragen2.training.credit import rows_for_update
from ragen2.training.critic import explained_variance
from ragen2.training.levels import LevelCursor
from ragen2.training.loop import load_reference
from ragen2.training.policy import score_rows
from ragen2.training.setup import Parts
from ragen2.training.update import update
from ragen2.training.update_rows import UpdateRow, aggregation_weights, micro_batches
from ragen2.trajectory import RolloutBatch, as_ids

NO_MOVE = {"learning_rate": 1e-30, "critic_learning_rate": 1e-30, "clip_norm": 1e9, "steps_per_iteration": 1}
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")


def learn(
    parts: Parts,
    batch: RolloutBatch,
    kept: list[bool],
    config: RunConfig,
    *,
    iteration: int = 1,
    reference: Any = None,
    measure: bool = False,
) -> dict[str, float]:
    rng = np.random.default_rng(0)
    return update(
        parts, batch, np.array(kept), config, rng, scale=1.0, iteration=iteration, reference=reference,
        progress=lambda done, total: None, measure_mismatch=measure,
    )  # fmt: skip


def gradient(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten().double() for p in module.parameters() if p.grad is not None])


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


def filled_rows(batch: RolloutBatch, seed: int = 5, kept: list[bool] | None = None) -> list[UpdateRow]:
    """Rows with random advantages, returns, values and reference log-probabilities at their trained tokens."""
    rng = np.random.default_rng(seed)
    rows = rows_for_update(batch, np.array(kept or [True] * len(batch.groups)))
    for row in rows:
        for name in ("advantages_T", "returns_T", "values_T"):
            setattr(row, name, np.where(row.mask_T, rng.normal(size=len(row.suffix)), 0.0).astype(np.float32))
        drift = rng.normal(size=len(row.suffix)) * 0.3
        row.reference_logprobs_T = np.where(row.mask_T, row.old_logprobs_T + drift, 0.0).astype(np.float32)
    return rows


def step_gradient(parts: Parts, rows: list[UpdateRow], budget: int) -> torch.Tensor:
    policy = dataclasses.replace(parts.policy, config=dataclasses.replace(parts.policy.config, token_budget=budget))
    policy.step(rows)
    return gradient(parts.model)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("afresh", [False, True], ids=["one-row", "row-a-turn"])
def test_the_gradient_does_not_depend_on_split_order_or_padding(mode, afresh):
    config = tiny_config(optimizer=NO_MOVE, algorithm={"name": "grpo", "aggregation": mode, "entropy_coef": 0.01, "kl_coef": 0.1})
    parts = tiny_parts(config)
    rows = filled_rows(random_batch(1, afresh=afresh))
    assert len(micro_batches(rows, 1)) == len(rows)  # every row alone: no padding anywhere
    alone = step_gradient(parts, rows, 1)
    assert alone.abs().max() > 1e-4
    for budget in (60, 200, 10**6):
        together = step_gradient(parts, rows, budget)
        assert (together - alone).abs().max() <= 1e-6 * max(1.0, float(alone.abs().max()))
    mixed = [rows[int(i)] for i in np.random.default_rng(3).permutation(len(rows))]
    assert (step_gradient(parts, mixed, 200) - alone).abs().max() <= 1e-6 * max(1.0, float(alone.abs().max()))


def test_the_gradient_is_independent_of_the_split_to_the_last_digits_in_float64(monkeypatch):
    def forward(self, hidden):  # the library's own rounds to float32 inside
        return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    monkeypatch.setattr(LlamaRMSNorm, "forward", forward)
    config = tiny_config(optimizer=NO_MOVE, algorithm={"name": "grpo", "entropy_coef": 0.01, "kl_coef": 0.1})
    parts = tiny_parts(config)
    parts.model.double()
    rows = filled_rows(random_batch(1))
    alone = step_gradient(parts, rows, 1)
    for budget in (60, 10**6):
        assert (step_gradient(parts, rows, budget) - alone).abs().max() <= 1e-11 * float(alone.abs().max())


def test_the_critic_gradient_is_independent_of_the_split():
    config = tiny_config(optimizer=NO_MOVE, algorithm="ppo")
    parts = tiny_parts(config)
    assert parts.critic is not None
    torch.nn.init.normal_(parts.critic.critic.head.weight, std=0.3)
    rows = filled_rows(random_batch(2))
    found = []
    for budget in (1, 70, 10**6):
        critic = dataclasses.replace(parts.critic, config=dataclasses.replace(parts.critic.config, token_budget=budget))
        critic.step(rows)
        found.append(gradient(critic.critic))
    assert found[0].abs().max() > 1e-4
    assert all((other - found[0]).abs().max() <= 1e-6 * max(1.0, float(found[0].abs().max())) for other in found[1:])


@pytest.mark.parametrize(("entropy_coef", "temperature"), [(0.0, 1.0), (0.1, 0.7)])
def test_the_first_gradient_is_that_of_the_plain_forward(entropy_coef, temperature):
    """REINFORCE and entropy bonus by hand on whole sequences, with the model's own forward: on policy, ratio 1."""
    config = tiny_config(
        optimizer={**NO_MOVE, "old_logprobs": "recompute"}, filter="none", rollout={"temperature": temperature},
        algorithm={"name": "grpo", "entropy_coef": entropy_coef, "aggregation": "token-mean"},
    )  # fmt: skip
    parts = tiny_parts(config)
    batch = random_batch(4)
    metrics = learn(parts, batch, [True] * 3, config)
    found = gradient(parts.model)
    assert metrics["policy/clip_fraction"] == 0
    rows = rows_for_update(batch, np.array([True] * 3))
    parts.model.zero_grad()
    total, spread, tokens = torch.zeros(()), torch.zeros(()), sum(row.tokens for row in rows)
    for row in rows:
        group = [t.return_ for t, g in zip(batch.trajectories, batch.group_index, strict=True)
                 if g == batch.group_index[row.trajectory]]  # fmt: skip
        advantage = (batch.trajectories[row.trajectory].return_ - np.mean(group)) / np.std(group, ddof=1)
        ids = torch.from_numpy(np.concatenate([row.prefix, row.suffix]).astype(np.int64))
        logprobs = (parts.model(input_ids=ids[None, :-1]).logits[0] / temperature).log_softmax(-1)[len(row.prefix) - 1 :]
        mask = torch.from_numpy(row.mask_T)
        own = logprobs.gather(-1, ids[len(row.prefix) :, None]).squeeze(-1)
        total = total - float(advantage) * own[mask].sum() / tokens
        spread = spread - (logprobs.exp() * logprobs).sum(-1)[mask].sum() / tokens
    assert metrics["policy/entropy"] == pytest.approx(float(spread), rel=1e-5)
    assert metrics["policy/loss"] == pytest.approx(surrogate_on_policy(batch, rows) - entropy_coef * float(spread), abs=1e-5)
    (total - entropy_coef * spread).backward()
    assert (gradient(parts.model) - found).abs().max() <= 1e-5 * float(found.abs().max())


def surrogate_on_policy(batch: RolloutBatch, rows: list[UpdateRow]) -> float:
    """The surrogate at ratio 1: minus the token mean of the advantages."""
    returns_PG = np.array([[t.return_ for t in group] for group in batch.groups])
    advantages = ((returns_PG - returns_PG.mean(1, keepdims=True)) / returns_PG.std(1, ddof=1, keepdims=True)).flatten()
    return -sum(advantages[row.trajectory] * row.tokens for row in rows) / sum(row.tokens for row in rows)


@pytest.mark.parametrize("algorithm", ["ppo", "grpo", "dr_grpo", "dapo", "rloo"])
def test_dropped_groups_leave_no_trace(algorithm):
    settings = {"name": algorithm, "entropy_coef": 0.02, "kl_coef": 0.1}
    config = tiny_config(algorithm=settings)
    whole, alone = tiny_parts(config), tiny_parts(config)
    batch = random_batch(6, groups=3)
    poison = [
        dataclasses.replace(t, turns=tuple(dataclasses.replace(u, reward=1e9, logprobs=u.logprobs * np.nan) for u in t.turns))
        for t in batch.trajectories[4:8]
    ]
    poisoned = RolloutBatch((*batch.trajectories[:4], *poison, *batch.trajectories[8:]), batch.group_index, 0)
    small = RolloutBatch(batch.trajectories[:4] + batch.trajectories[8:], (0,) * 4 + (1,) * 4, 0)
    before = weights(whole.model)
    reference = load_reference(config.model, whole)
    with_it = learn(whole, poisoned, [True, False, True], config, reference=reference)
    without = learn(alone, small, [True, True], config, reference=reference)
    assert not torch.equal(weights(whole.model), before)
    assert torch.equal(weights(whole.model), weights(alone.model))
    assert with_it == without
    if whole.critic is not None and alone.critic is not None:
        assert torch.equal(weights(whole.critic.critic), weights(alone.critic.critic))


@pytest.mark.parametrize("mode", MODES)
def test_weights_of_one_row_a_trajectory_are_the_aggregation(mode):
    rows = filled_rows(random_batch(7))
    rows[2].mask_T = np.zeros_like(rows[2].mask_T)
    width, horizon = max(len(row.suffix) for row in rows), 17
    loss_BT, mask_BT = np.zeros((len(rows), width)), np.zeros((len(rows), width))
    rng = np.random.default_rng(0)
    for place, row in enumerate(rows):
        loss_BT[place, : len(row.suffix)] = rng.normal(size=len(row.suffix))
        mask_BT[place, : len(row.suffix)] = row.mask_T
    ours = float((aggregation_weights(rows, mode, horizon) * (loss_BT * mask_BT).sum(1)).sum())
    assert ours == pytest.approx(float(aggregate_loss(loss_BT, mask_BT, mode, horizon)), rel=1e-12)


def test_weights_count_trajectories_where_a_trajectory_has_several_rows():
    batch = random_batch(8, groups=1, size=3, afresh=True)
    rows = rows_for_update(batch, np.array([True]))
    assert [row.trajectory for row in rows] == [0, 0, 1, 1, 2, 2]
    tokens = [row.tokens for row in rows]
    per = [tokens[0] + tokens[1], tokens[2] + tokens[3], tokens[4] + tokens[5]]
    assert aggregation_weights(rows, "token-mean", 24) == pytest.approx([1 / sum(tokens)] * 6)
    assert aggregation_weights(rows, "seq-mean-token-mean", 24) == pytest.approx([1 / (3 * per[i // 2]) for i in range(6)])
    assert aggregation_weights(rows, "seq-mean-token-sum", 24) == pytest.approx([1 / (3 * 24)] * 6)


@pytest.mark.parametrize("kept", [[True, True, True, True], [True, False, False, True], [False, False, True, False]])
def test_the_number_of_optimiser_steps_is_fixed_or_shrinks_when_told(kept):
    batch = random_batch(9, groups=4)
    fixed = tiny_config(rollout={"groups": 4}, optimizer={"steps_per_iteration": 4, "epochs": 2})
    assert learn(tiny_parts(fixed), batch, kept, fixed)["policy/optimizer_steps"] == 8
    shrink = tiny_config(rollout={"groups": 4}, optimizer={"steps_per_iteration": 4, "epochs": 2}, filter={"updates": "shrink"})
    assert learn(tiny_parts(shrink), batch, kept, shrink)["policy/optimizer_steps"] == 2 * sum(kept)


def test_shrinking_counts_kept_groups_against_the_iteration_not_against_what_refilling_added():
    """Two groups an iteration: two kept of the four that a refill left are a full batch."""
    config = tiny_config(optimizer={"steps_per_iteration": 4}, filter={"updates": "shrink"})
    batch = random_batch(9, groups=4)
    assert learn(tiny_parts(config), batch, [True, False, True, False], config)["policy/optimizer_steps"] == 4


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_a_loss_that_is_not_finite_changes_no_weight(algorithm):
    config = tiny_config(algorithm=algorithm, optimizer={"steps_per_iteration": 1})
    parts = tiny_parts(config)
    batch = random_batch(10, groups=1)
    broken = dataclasses.replace(batch.trajectories[1].turns[0], logprobs=batch.trajectories[1].turns[0].logprobs * np.nan)
    turns = (broken, *batch.trajectories[1].turns[1:])
    bad = dataclasses.replace(batch.trajectories[1], turns=turns)
    batch = RolloutBatch((batch.trajectories[0], bad, *batch.trajectories[2:]), batch.group_index, 0)
    before, moments = weights(parts.model), copy.deepcopy(parts.policy.optimizer.state_dict())
    with pytest.raises(NonFiniteLoss, match="weights are unchanged"):
        learn(parts, batch, [True], config)
    assert torch.equal(weights(parts.model), before)
    assert parts.policy.optimizer.state_dict()["state"] == moments["state"] == {}


def test_a_gradient_that_is_not_finite_changes_no_weight():
    config = tiny_config(optimizer={"steps_per_iteration": 1})
    parts = tiny_parts(config)
    before = weights(parts.model)
    next(parts.model.parameters()).register_hook(lambda grad: grad * math.inf)
    with pytest.raises(NonFiniteLoss, match="gradient norm"):
        learn(parts, random_batch(10), [True] * 3, config)
    assert torch.equal(weights(parts.model), before)


def played(parts: Parts, config: RunConfig, groups: int = 3) -> RolloutBatch:
    levels = LevelCursor(config.environments, np.random.default_rng(0)).take(groups, config.rollout.group_size)
    return parts.collector.collect(levels, list(range(groups * config.rollout.group_size)))


@pytest.mark.parametrize("context", ["full", "single-turn"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_recomputed_log_probabilities_are_the_samplers(context, temperature):
    rollout = {"context": context, "temperature": temperature}
    config = tiny_config(optimizer={**NO_MOVE, "old_logprobs": "recompute"}, rollout=rollout)
    parts = tiny_parts(config)
    batch = played(parts, config)
    rows = rows_for_update(batch, np.ones(3, dtype=bool))
    assert sum(row.tokens for row in rows) == sum(len(u.sampled_ids) for t in batch.trajectories for u in t.turns)
    sampled = [row.old_logprobs_T.copy() for row in rows]
    assert min(float(values[row.mask_T].min()) for values, row in zip(sampled, rows, strict=True)) < -0.1
    score_rows(parts.model, rows, "old_logprobs_T", temperature, 10**6, parts.arithmetic)
    for values, row in zip(sampled, rows, strict=True):
        assert np.abs(values - row.old_logprobs_T).max() <= 1e-5
    metrics = learn(parts, batch, [True] * 3, config)
    assert metrics["policy/mismatch_max_abs"] <= 1e-5


def test_measuring_the_mismatch_does_not_change_the_update():
    found = []
    for measure in (False, True):
        config = tiny_config(optimizer={"old_logprobs": "sampler"})
        parts = tiny_parts(config)
        metrics = learn(parts, random_batch(4), [True] * 3, config, measure=measure)
        assert ("policy/mismatch_max_abs" in metrics) == measure
        found.append(weights(parts.model))
    assert torch.equal(*found)


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_the_first_step_clips_nothing_and_later_ones_may(algorithm):
    settings = {"name": algorithm, "entropy_coef": 0.0}
    config = tiny_config(optimizer={**NO_MOVE}, algorithm=settings)
    parts = tiny_parts(config)
    metrics = learn(parts, played(parts, config), [True] * 3, config)
    assert metrics["policy/clip_fraction"] == 0
    assert 0 < metrics["policy/entropy"] < math.log(len(parts.tokenizer))
    assert metrics["policy/gradient_norm"] > 0
    moving = tiny_config(optimizer={"learning_rate": 0.05, "steps_per_iteration": 2, "epochs": 3}, algorithm=settings)
    parts = tiny_parts(moving)
    assert learn(parts, played(parts, moving), [True] * 3, moving)["policy/clip_fraction"] > 0


def test_ppo_with_an_untaught_critic_has_equal_returns_to_the_trajectorys_return():
    config = tiny_config(optimizer=NO_MOVE, algorithm={"name": "ppo", "whiten": False, "gamma": 1.0, "lam": 1.0})
    parts = tiny_parts(config)
    batch = played(parts, config, 1)
    metrics = learn(parts, batch, [True], config)
    assert metrics["critic/explained_variance"] == pytest.approx(0.0, abs=1e-6)  # values are all 0 at first
    assert metrics["critic/loss"] > 0


def test_the_value_of_a_token_is_read_before_the_token():
    config = tiny_config(algorithm="ppo")
    parts = tiny_parts(config)
    assert parts.critic is not None
    critic = parts.critic.critic
    torch.nn.init.normal_(critic.head.weight, std=0.5)
    rng = np.random.default_rng(2)
    prefix, suffix = as_ids(rng.integers(300, size=9)), as_ids(rng.integers(300, size=8))
    changed = suffix.copy()
    changed[5:] = rng.integers(300, size=3)
    with torch.no_grad():
        values_BT = critic(SharedRows([prefix], [suffix, changed]))
        whole = torch.from_numpy(np.concatenate([prefix, suffix]).astype(np.int64))
        plain = critic.head(critic.backbone(input_ids=whole[None]).last_hidden_state).squeeze(-1)[0]
    assert values_BT.shape == (2, 8)
    assert torch.allclose(values_BT[0, :6], values_BT[1, :6], atol=1e-6)  # value 5 does not know token 5
    assert not torch.allclose(values_BT[0, 6:], values_BT[1, 6:], atol=1e-3)
    assert torch.allclose(values_BT[0], plain[len(prefix) - 1 : -1], atol=1e-5)


def test_explained_variance_by_hand():
    rows = filled_rows(random_batch(11, groups=1, size=2))
    returns = np.concatenate([row.returns_T[row.mask_T] for row in rows])
    for row in rows:
        row.values_T = row.returns_T.copy()
    assert explained_variance(rows) == pytest.approx(1.0)
    for row in rows:
        row.values_T = np.where(row.mask_T, np.float32(returns.mean()), 0).astype(np.float32)
    assert explained_variance(rows) == pytest.approx(0.0, abs=1e-6)
    for row in rows:
        row.values_T = (-row.returns_T).astype(np.float32)
    assert explained_variance(rows) == pytest.approx(-3.0, rel=1e-5)
    for row in rows:
        row.returns_T = row.mask_T.astype(np.float32)
    assert math.isnan(explained_variance(rows))


def test_critic_warm_up_leaves_the_policy_alone():
    config = tiny_config(algorithm="ppo", optimizer={"critic_warmup_iterations": 2})
    parts = tiny_parts(config)
    assert parts.critic is not None
    policy, critic = weights(parts.model), weights(parts.critic.critic)
    metrics = learn(parts, random_batch(12), [True] * 3, config, iteration=2)
    assert torch.equal(weights(parts.model), policy)
    assert not torch.equal(weights(parts.critic.critic), critic)
    assert metrics["policy/optimizer_steps"] == 0
    learn(parts, random_batch(12), [True] * 3, config, iteration=3)
    assert not torch.equal(weights(parts.model), policy)


def test_divergence_in_the_loss_pulls_back_to_the_reference():
    """With equal returns the divergence is the only term, and a step lowers it."""
    config = tiny_config(optimizer={"learning_rate": 1e-3, "steps_per_iteration": 1}, algorithm={
        "name": "grpo", "kl_coef": 1.0, "entropy_coef": 0.0})  # fmt: skip
    parts = tiny_parts(config)
    reference = load_reference(config.model, parts)
    with torch.no_grad():
        for parameter in parts.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    batch = played(parts, config)
    equal = RolloutBatch(
        tuple(dataclasses.replace(t, turns=tuple(dataclasses.replace(u, reward=0.0, penalty=0.0) for u in t.turns))
              for t in batch.trajectories), batch.group_index, 0)  # fmt: skip
    config_again = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, old_logprobs="recompute"))
    first = learn(parts, equal, [True] * 3, config_again, reference=reference)
    last = [learn(parts, equal, [True] * 3, config_again, reference=reference) for _ in range(8)][-1]
    assert first["policy/kl_from_start"] > 1e-3
    assert last["policy/kl_from_start"] < 0.7 * first["policy/kl_from_start"]


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_lora_trains_adapters_only_and_the_reference_is_the_model_without_them(algorithm, tmp_path):
    pytest.importorskip("peft")
    config = tiny_config(
        model={"lora": {"r": 4, "alpha": 8}}, algorithm={"name": algorithm, "kl_coef": 0.01}, optimizer={"learning_rate": 0.05}
    )
    parts = tiny_parts(config)
    before = {name: p.detach().clone() for name, p in parts.model.named_parameters()}
    reference = load_reference(config.model, parts)
    assert reference is parts.model
    batch = played(parts, config)
    first = learn(parts, batch, [True] * 3, config, reference=reference)
    assert first["policy/kl_from_start"] == pytest.approx(0.0, abs=1e-6)
    changed = {name for name, p in parts.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert all(p.requires_grad == ("lora_" in name) for name, p in parts.model.named_parameters())
    again = played(parts, config)
    later = learn(parts, again, [True] * 3, config, reference=reference)
    assert later["policy/kl_from_start"] > 1e-6
    start = tiny_parts(tiny_config())
    rows = rows_for_update(again, np.ones(3, dtype=bool))
    with parts.model.disable_adapter():  # pyright: ignore[reportCallIssue]
        score_rows(parts.model, rows, "old_logprobs_T", 1.0, 10**6, parts.arithmetic)
    score_rows(start.model, rows, "reference_logprobs_T", 1.0, 10**6, start.arithmetic)
    assert all(np.abs(row.old_logprobs_T - row.reference_logprobs_T).max() <= 1e-5 for row in rows)
    parts.save_merged(tmp_path / "merged")
    merged = tiny_parts(tiny_config(model={"name": str(tmp_path / "merged")}))
    score_rows(parts.model, rows, "old_logprobs_T", 1.0, 10**6, parts.arithmetic)
    score_rows(merged.model, rows, "reference_logprobs_T", 1.0, 10**6, merged.arithmetic)
    assert all(np.abs(row.old_logprobs_T - row.reference_logprobs_T).max() <= 1e-4 for row in rows)
