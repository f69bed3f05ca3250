"""Advantages and losses: pure functions on arrays, numpy or torch in, same out. Importing this loads numpy only."""

from ragen2.algorithms.aggregation import aggregate_loss, loss_denominator
from ragen2.algorithms.algorithm import Algorithm
from ragen2.algorithms.bi_level_gae import bi_level_gae_advantages
from ragen2.algorithms.config import AlgorithmConfig, ResolvedAlgorithm
from ragen2.algorithms.dapo import overlong_penalty
from ragen2.algorithms.dr_grpo import dr_grpo_advantages
from ragen2.algorithms.entropy import mean_entropy, token_entropy
from ragen2.algorithms.gae import gae_advantages
from ragen2.algorithms.grpo import grpo_advantages
from ragen2.algorithms.kl import kl_penalty, rewards_less_kl
from ragen2.algorithms.pass_at_k import pass_at_k
from ragen2.algorithms.policy_loss import PolicyLoss, policy_loss
from ragen2.algorithms.ppo import ppo_advantages
from ragen2.algorithms.registry import get_algorithm, list_algorithms, register_algorithm, resolve
from ragen2.algorithms.rloo import rloo_advantages
from ragen2.algorithms.value_loss import value_loss
from ragen2.algorithms.whitening import whiten

__all__ = [
    "Algorithm",
    "AlgorithmConfig",
    "PolicyLoss",
    "ResolvedAlgorithm",
    "aggregate_loss",
    "bi_level_gae_advantages",
    "dr_grpo_advantages",
    "gae_advantages",
    "get_algorithm",
    "grpo_advantages",
    "kl_penalty",
    "list_algorithms",
    "loss_denominator",
    "mean_entropy",
    "overlong_penalty",
    "pass_at_k",
    "policy_loss",
    "ppo_advantages",
    "register_algorithm",
    "resolve",
    "rewards_less_kl",
    "rloo_advantages",
    "token_entropy",
    "value_loss",
    "whiten",
]
