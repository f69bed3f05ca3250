"""What other trainers call our metrics. The one table of names; the readers know none of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ragen2.diagnostics.readers.metric_names import is_ours

Convert = Literal["same", "complement", "if a rate", "unless whole sequences"]


@dataclass(frozen=True)
class Alias:
    """One name of another trainer.

    `theirs` is the name of a column, where `*` stands for one part of a path and `**` for several; `ours` is our name, where
    {0} is what the first star stood for. Of several aliases of the same `ours` the first in the table that has readings counts.
    `convert`: same; complement (1 - value); if a rate (only when every reading lies in 0..1: a guess, noted); unless whole
    sequences (lengths that count prompt and reply together, told by a prompt length of about 0, are left out).
    """

    theirs: str
    ours: str
    convert: Convert = "same"
    trainer: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """`theirs` as an expression."""
        parts = re.split(r"(\*\*|\*)", self.theirs)
        stars = {"*": r"([^/]*)", "**": r"(.+)"}
        return re.compile("".join(stars.get(part, re.escape(part)) for part in parts))


@dataclass(frozen=True)
class Match:
    """A column that stands for one of our metrics. `rank` is the place of its alias in the table (-1: it has our own name),
    `family` the alias' `ours` with its {0}."""

    ours: str
    family: str
    rank: int
    convert: Convert = "same"


def _view(theirs: str, ours: str) -> tuple[Alias, ...]:
    """Figures of a view of mutual information as the public RAGEN-2 code logs them."""
    parts = {
        "mi_seq_estimate": "mi_sequence",
        "mi_upper_bound": "mi_upper_bound",
        "mi_estimate": "mi_token",
        "conditional_entropy_est": "conditional_entropy_token",
        "conditional_entropy_seq_est": "conditional_entropy_sequence",
        "retrieval_accuracy": "retrieval_accuracy",
        "retrieval_chance_level": "retrieval_chance",
    }
    return tuple(Alias(f"{theirs}/{name}", f"collapse/{ours}/{ours_name}", trainer="verl") for name, ours_name in parts.items())


ALIASES: tuple[Alias, ...] = (
    # Success on held-out levels
    Alias("val-env/*/success", "validation/{0}/success", trainer="verl"),
    Alias("val_success", "validation/log/success", trainer="verl csv"),
    Alias("val-core/**/acc/mean@*", "validation/{0}/success", trainer="verl"),
    Alias("val-core/**/reward/mean@*", "validation/{0}/success", "if a rate", "verl"),
    Alias("val/test_score/**", "validation/{0}/success", "if a rate", "verl"),
    Alias("eval/eval_*_pass1", "validation/{0}/success", trainer="openrlhf"),
    Alias("eval/*/pass@1", "validation/{0}/success", trainer="verifiers"),
    Alias("eval/*/avg@*", "validation/{0}/success", "if a rate", "verifiers"),
    Alias("eval/*/success_rate", "validation/{0}/success"),
    Alias("eval/*/accuracy", "validation/{0}/success"),
    *(
        Alias(f"{split}{between}{name}", "validation/log/success")
        for name in ("success_rate", "success", "accuracy", "acc", "pass@1", "solve_rate", "win_rate")
        for split in ("eval", "val", "validation", "test")
        for between in ("/", "_")
    ),
    Alias("eval_rewards/*acc*/mean", "validation/{0}/success", "if a rate", "trl"),
    Alias("eval_reward", "validation/log/return", trainer="trl"),
    Alias("eval/reward", "validation/log/return", trainer="trl"),
    # Success in training
    Alias("train/*/success", "train/success", trainer="verl"),
    Alias("train_success", "train/success", trainer="verl csv"),
    Alias("rewards/*accuracy*/mean", "train/success", "if a rate", "trl"),
    Alias("rewards/*correct*/mean", "train/success", "if a rate", "trl"),
    *(Alias(name, "train/success") for name in ("success_rate", "success", "train/success_rate", "solve_rate", "accuracy")),
    # Return in training
    Alias("critic/score/mean", "train/return", trainer="verl"),
    Alias("critic/rewards/mean", "train/return", trainer="verl"),
    Alias("reward_mean", "train/return", trainer="verl csv"),
    Alias("reward", "train/return", trainer="trl"),
    Alias("reward/mean", "train/return", trainer="verifiers"),
    Alias("train/reward", "train/return", trainer="openrlhf"),
    Alias("mean_reward", "train/return"),
    Alias("objective/scores", "train/return", trainer="trl"),
    # Form of the replies
    Alias("collapse/valid_thinking_rate", "collapse/valid_think_rate", trainer="verl"),
    Alias("valid_think_rate", "collapse/valid_think_rate", trainer="verl csv"),
    Alias("valid_thinking_rate", "collapse/valid_think_rate"),
    Alias("rewards/*format*/mean", "collapse/valid_think_rate", "if a rate", "trl"),
    Alias("metrics/*format*", "collapse/valid_think_rate", "if a rate", "verifiers"),
    *(Alias(name, "collapse/valid_think_rate", "if a rate") for name in ("format_rate", "format_accuracy", "format_valid")),
    Alias("train/*/manager_invalid_action", "collapse/valid_action_rate", "complement", "verl"),
    Alias("train/*/action_is_valid", "collapse/valid_action_rate", trainer="verl"),
    *(Alias(name, "collapse/valid_action_rate") for name in ("valid_action_rate", "action_valid_rate")),
    Alias("invalid_action_rate", "collapse/valid_action_rate", "complement"),
    # Mutual information
    *_view("collapse_first_turn_sample", "first_turn"),
    *_view("collapse_trajectory_sample", "trajectory"),
    Alias("MI_firstturn", "collapse/first_turn/mi_token", trainer="verl csv"),
    Alias("MI_traj", "collapse/trajectory/mi_token", trainer="verl csv"),
    Alias("Hcond_traj", "collapse/trajectory/conditional_entropy_token", trainer="verl csv"),
    # Entropy
    Alias("actor/entropy", "policy/entropy", trainer="verl"),
    Alias("actor/entropy_loss", "policy/entropy", trainer="verl"),
    Alias("actor_entropy", "policy/entropy", trainer="verl csv"),
    Alias("entropy", "policy/entropy", trainer="trl"),
    Alias("entropy/all/mean", "policy/entropy", trainer="verifiers"),
    Alias("entropy/mean", "policy/entropy", trainer="verifiers"),
    Alias("objective/entropy", "policy/entropy", trainer="trl"),
    Alias("policy/policy_entropy", "policy/entropy"),
    Alias("policy_entropy", "policy/entropy"),
    # Spread of returns within groups
    Alias("rollout/in_group_reward_std", "collapse/reward_spread", trainer="verl"),
    Alias("reward_std", "collapse/reward_spread", trainer="trl"),
    Alias("frac_reward_zero_std", "collapse/zero_variance_groups", trainer="trl"),
    # Length and truncation
    Alias("response_length/mean", "train/response_length", "unless whole sequences", "verl"),
    Alias("completions/mean_length", "train/response_length", trainer="trl"),
    Alias("completion_length", "train/response_length", trainer="trl"),
    Alias("decode_len/mean", "train/response_length", trainer="verifiers"),
    Alias("completion_len/mean", "train/response_length", trainer="verifiers"),
    Alias("response_length", "train/response_length", trainer="openrlhf"),
    Alias("response_length/clip_ratio", "train/truncated_rate", "unless whole sequences", "verl"),
    Alias("completions/clipped_ratio", "train/truncated_rate", trainer="trl"),
    Alias("is_truncated/mean", "train/truncated_rate", trainer="verifiers"),
    Alias("truncated", "train/truncated_rate", "if a rate", "openrlhf"),
    # Update
    *(Alias(name, "policy/loss") for name in ("actor/pg_loss", "pg_loss", "policy_loss", "train/policy_loss", "loss")),
    *(Alias(name, "policy/gradient_norm") for name in ("actor/grad_norm", "actor_grad_norm", "optim/grad_norm", "grad_norm")),
    *(Alias(name, "policy/kl_from_start") for name in ("actor/kl_loss", "kl", "train/kl", "objective/kl")),
    Alias("actor/ppo_kl", "policy/kl", trainer="verl"),
)
STOP_PREFIX = "early_stopped/"
"""A column early_stopped/<reason> above 0 says why a run ended."""

_PLAIN = {alias.theirs: rank for rank, alias in reversed(list(enumerate(ALIASES))) if "*" not in alias.theirs}
_PATTERNS = tuple((rank, alias) for rank, alias in enumerate(ALIASES) if "*" in alias.theirs)
_PREFIXES = ("train/", "train_")


def match(column: str) -> Match | None:
    """What a column stands for, None for nothing we know. Trainers that put their names under train/ are understood too."""
    if is_ours(column):
        return Match(column, re.sub(r"^validation/[^/]+/", "validation/{0}/", column), -1)
    found = _lookup(column)
    for prefix in _PREFIXES:
        if found is None and column.startswith(prefix):
            found = _lookup(column.removeprefix(prefix))
    return found


def _lookup(column: str) -> Match | None:
    rank = _PLAIN.get(column)
    if rank is not None:
        alias = ALIASES[rank]
        return Match(alias.ours, alias.ours.replace("/log/", "/{0}/"), rank, alias.convert)
    for rank, alias in _PATTERNS:
        found = alias.pattern.fullmatch(column)
        if found is not None:
            return Match(alias.ours.format(found[1].replace("/", "-")), alias.ours, rank, alias.convert)
    return None


def their_names(ours: str, source: str | None = None) -> tuple[str, ...]:
    """What a metric of ours is called in logs like `source`, most usual first (… stands for any name); empty when they have none.
    Of logs that no one trainer writes, and for None, the names of all trainers."""
    trainer = {"verl console": "verl", "verl csv": "verl csv", "trl trainer_state": "trl"}.get(source or "")
    wanted = ours.replace("<env>", "{0}")
    found = [alias for alias in ALIASES if alias.trainer and alias.ours.replace("/log/", "/{0}/") == wanted]
    fitting = [alias for alias in found if trainer is None or alias.trainer == trainer]
    firsts: dict[str, str] = {}
    for alias in fitting:
        firsts.setdefault(alias.trainer, alias.theirs.replace("**", "…").replace("*", "…"))
    return tuple(firsts.values())
