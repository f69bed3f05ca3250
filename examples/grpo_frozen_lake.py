"""Multi-turn GRPO with the SNR-aware filter on FrozenLake: one file that reads top to bottom and runs on a CPU.

    python examples/grpo_frozen_lake.py                      # builds the small petri model once, then trains it
    python examples/grpo_frozen_lake.py --model FOLDER       # any causal language model in a local folder

`ragen2 train frozen-lake algorithm=grpo` is the same grown up, with checkpoints, monitoring and a report. Here all that happens
between the library's parts is in sight: `play` samples episodes, `take_turn` is one turn of one of them, `learn` is the update,
`train` puts filter and advantages in between. Change what you like.

Letters on arrays: P groups (one prompt each), G trajectories a group, R = P * G rows that sample, B rows of a forward pass,
T tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

import ragen2
from ragen2.algorithms import aggregate_loss, grpo_advantages, policy_loss
from ragen2.engines.base import Reply, SamplingConfig
from ragen2.engines.hf import HFEngine
from ragen2.engines.prefix import SharedRows, token_logprobs
from ragen2.envs import TextEnv
from ragen2.errors import ConfigError
from ragen2.filtering import FilterConfig, select_groups
from ragen2.prompting.chat_format import ChatFormat
from ragen2.prompting.messages import notice_text, system_text, turn_text
from ragen2.prompting.reply import parse_reply, reasoning_span
from ragen2.prompting.template import Message
from ragen2.rollout.config import RolloutConfig
from ragen2.rollout.rows import TrainingRow, rows_of
from ragen2.training.petri import build_petri
from ragen2.training.settings import EnvironmentConfig
from ragen2.trajectory import Ids, Trajectory, Turn

ENVIRONMENT = "frozen-lake"
CLIP_LOW, CLIP_HIGH = 0.2, 0.28  # More room upwards keeps rare tokens alive.
OPTIMIZER_STEPS = 2  # An iteration. Fixed: the filter changes what is learned from, not how often.


@dataclass
class Episode:
    """One trajectory while it is played."""

    env: TextEnv
    level_seed: int
    noise_seed: int
    system: str
    observation: str
    context_ids: Ids  # Exactly what the next reply is sampled after.
    messages: list[Message]  # The same as text, for chat templates that rewrite earlier turns.
    actions_left: int
    turns: list[Turn] = field(default_factory=list)
    success: bool = False
    stop_reason: str = ""

    def trajectory(self) -> Trajectory:
        name, seeds = ENVIRONMENT, (self.level_seed, self.noise_seed)
        return Trajectory(f"{name}/{seeds[0]}", *seeds, name, tuple(self.turns), self.success, True, self.stop_reason)


def start(env: TextEnv, level_seed: int, noise_seed: int, chat: ChatFormat, config: RolloutConfig) -> Episode:
    """Reset the environment and put its first observation into the first context, the prompt."""
    observation = env.reset(level_seed, noise_seed).text
    system = system_text(env.instructions, multi_action=env.multi_action, actions_per_turn=config.actions_per_turn)
    text = turn_text(1, config.max_turns, config.max_actions, observation)
    prompt_ids = chat.initial_ids(system, text)
    if len(prompt_ids) >= config.context_tokens:
        raise ConfigError(f"the prompt has {len(prompt_ids)} tokens, this model takes {config.context_tokens}: choose another")
    return Episode(env, level_seed, noise_seed, system, observation, prompt_ids, [("user", text)], config.max_actions)


def play(
    engine: HFEngine, chat: ChatFormat, envs_R: Sequence[TextEnv], config: RolloutConfig, rng: np.random.Generator
) -> list[list[Trajectory]]:
    """`config.groups` levels, each played `config.group_size` times; the trajectories by group."""
    # A group shares its level, so that its returns differ by what the policy did. Chance (slipping) differs in each trajectory.
    level_seeds_R = np.repeat(rng.integers(2**62, size=config.groups), config.group_size).tolist()
    noise_seeds_R = rng.integers(2**62, size=len(envs_R)).tolist()
    sampling_seeds_R = rng.integers(2**62, size=len(envs_R)).tolist()
    rows = zip(envs_R, level_seeds_R, noise_seeds_R, strict=True)
    episodes_R = [start(env, level_seed, noise_seed, chat, config) for env, level_seed, noise_seed in rows]

    # The engine runs each prompt once for its whole group. Rows sample together but finish their replies one by one, and no
    # episode waits for another: a row goes on as soon as its environment has answered.
    prompts_P = [episode.context_ids for episode in episodes_R[:: config.group_size]]
    sampling = SamplingConfig(config.temperature, config.turn_tokens, config.context_tokens)
    session = engine.open(prompts_P, config.group_size, sampling, sampling_seeds_R)
    while replies := session.advance():
        for reply in replies:
            episode = episodes_R[reply.row]
            take_turn(episode, reply, chat, config)
            if episode.stop_reason:
                session.close(reply.row)
            else:
                session.resume(reply.row, episode.context_ids)

    trajectories_R = [episode.trajectory() for episode in episodes_R]
    return [trajectories_R[row : row + config.group_size] for row in range(0, len(envs_R), config.group_size)]


def take_turn(episode: Episode, reply: Reply, chat: ChatFormat, config: RolloutConfig) -> None:
    """Read a reply, do its actions, record the turn; then set the episode's stop reason or its next context."""
    # Text is decoded for the parser only. What is trained are the sampled ids themselves: text is never encoded back.
    own_ids = chat.without_end(reply.ids)
    text = chat.decode(own_ids)
    most = min(config.actions_per_turn, episode.actions_left)
    parsed = parse_reply(text, multi_action=episode.env.multi_action, max_actions=most, ended=reply.ended)

    result, reward, legal = None, 0.0, False
    for action in parsed.actions:
        result = episode.env.step(action)
        reward += result.reward
        legal = legal or bool(result.info["legal"])
        if result.done:
            break

    turn = Turn(
        index=len(episode.turns),
        context_ids=episode.context_ids,
        sampled_ids=reply.ids,
        logprobs=reply.logprobs,
        observation=episode.observation,
        reply=text,
        reasoning_span=None if parsed.reasoning_end is None else reasoning_span(own_ids, chat.decode, parsed.reasoning_end),
        actions=parsed.actions,
        reward=reward,
        penalty=0.0 if legal else config.format_penalty,
        parse_status=parsed.status,
        valid_action=legal,
        truncated=not reply.ended,
    )
    episode.turns.append(turn)
    episode.actions_left -= len(parsed.actions)
    if result is not None:
        episode.observation = result.observation.text

    if result is not None and result.done:
        episode.success = bool(result.info["success"])
        episode.stop_reason = "terminated" if result.terminated else "truncated"
    elif len(episode.turns) == config.max_turns:
        episode.stop_reason = "turns"
    elif episode.actions_left == 0:
        episode.stop_reason = "actions"
    else:
        show_next(episode, turn, chat, config)


def show_next(episode: Episode, turn: Turn, chat: ChatFormat, config: RolloutConfig) -> None:
    """Extend the context by what was sampled and by the environment's answer to it."""
    text = turn_text(
        len(episode.turns) + 1,
        config.max_turns,
        episode.actions_left,
        episode.observation,
        last_reward=turn.reward,
        last_notice=notice_text(turn.parse_status, turn.valid_action),
    )
    episode.messages.extend([("assistant", turn.reply), ("user", text)])
    if chat.mode == "append":
        bridge_ids = chat.bridge_ids(text, ended=not turn.truncated)
        episode.context_ids = np.concatenate([turn.context_ids, turn.sampled_ids, bridge_ids])
    else:  # The template strips earlier reasoning: render afresh, and every turn becomes a training row of its own.
        episode.context_ids = chat.rerender_ids(episode.system, episode.messages)
    if len(episode.context_ids) >= config.context_tokens:
        episode.stop_reason = "overflow"


def learn(
    model: Any,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Sequence[Trajectory]],
    advantages_PG: np.ndarray,
    temperature: float,
) -> None:
    """The optimiser steps of one iteration, each on a share of every group."""
    for step in range(OPTIMIZER_STEPS):
        # A row is a prompt and all that followed it, with a mask that is True on sampled tokens alone: what the environment
        # said is context, not something to learn.
        rows_P = [[row for g in range(step, len(group), OPTIMIZER_STEPS) for row in rows_of(group[g], g)] for group in groups]
        tokens = sum(int(row.mask.sum()) for rows in rows_P for row in rows)
        if not tokens:
            continue
        optimizer.zero_grad()
        for rows, advantages_G in zip(rows_P, advantages_PG, strict=True):
            group_loss(model, rows, advantages_G, temperature, tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()


def group_loss(
    model: Any, rows: Sequence[TrainingRow], advantages_G: np.ndarray, temperature: float, tokens: int
) -> torch.Tensor:
    """One group's part of the loss of an optimiser step that has `tokens` sampled tokens in all."""
    # Rows that share their prompt run it once.
    shared = len({row.prompt_ids.tobytes() for row in rows}) == 1
    prefixes = [row.prompt_ids for row in (rows[:1] if shared else rows)]
    mask_BT = pad_sequence([torch.from_numpy(row.mask) for row in rows], batch_first=True)
    sampler_BT = pad_sequence([torch.from_numpy(row.logprobs) for row in rows], batch_first=True)
    # GRPO has no critic: every token of a trajectory gets the advantage of the whole trajectory.
    advantages_B1 = torch.tensor([[advantages_G[row.trajectory]] for row in rows])

    shared_rows = SharedRows(prefixes, [row.suffix_ids for row in rows])
    now_BT = token_logprobs(model, shared_rows, temperature=temperature, select=mask_BT).logprobs_BT
    loss = policy_loss(now_BT, sampler_BT, advantages_B1, mask_BT, clip_low=CLIP_LOW, clip_high=CLIP_HIGH)
    # A mean over tokens, so that it does not matter in how many rows a trajectory came. The denominator is the step's, not the
    # group's: a token weighs the same in whatever group it stands, and dropped groups are neither above nor below the line.
    return aggregate_loss(loss.token_loss_BT, mask_BT, "token-mean", denominator=tokens)


def train(model: Any, tokenizer: Any, args: argparse.Namespace) -> list[dict[str, float]]:
    """Train `model` in place; the numbers of every iteration."""
    room = min(RolloutConfig.context_tokens, getattr(model.config, "max_position_embeddings", None) or 1 << 30)
    config = RolloutConfig(groups=args.groups, group_size=args.group_size, context_tokens=room)
    chat = ChatFormat(tokenizer)
    engine = HFEngine(model, chat.end_ids)  # Shares its weights with the trainer: every rollout is on policy.
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.0)
    rng = np.random.default_rng(args.seed)  # The one source of randomness: levels, chance and sampling are seeded from it.
    envs_R = [ragen2.make(ENVIRONMENT, split="train") for _ in range(config.groups * config.group_size)]

    history = []
    for iteration in range(args.iterations):
        groups = play(engine, chat, envs_R, config, rng)
        # The filter looks at how far the task's returns of one prompt spread. Where they are all equal there is nothing to
        # compare, and training on such prompts is noise that teaches the policy to ignore what it is shown.
        decision = select_groups(np.array([[each.task_return for each in group] for group in groups]), FilterConfig())
        # Advantages use the returns with the format penalty in them.
        advantages_PG = grpo_advantages(np.array([[each.return_ for each in group] for group in groups]))
        # Dropped groups are left out whole. When none is kept there is no update at all.
        kept_groups = [group for group, kept in zip(groups, decision.kept_P, strict=True) if kept]
        learn(model, optimizer, kept_groups, advantages_PG[decision.kept_P], config.temperature)

        trajectories = [trajectory for group in groups for trajectory in group]
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        numbers = {
            "success": float(np.mean([trajectory.success for trajectory in trajectories])),
            "return": float(np.mean([trajectory.return_ for trajectory in trajectories])),
            "kept_groups": float(decision.kept_groups),
            "valid_think": float(np.mean([turn.valid_think for turn in turns])),
            # Nats a token: the mean of -log p over all that was sampled estimates it at no cost.
            "entropy": -float(np.mean(np.concatenate([turn.logprobs for turn in turns]))),
        }
        print(f"{iteration + 1:4d}  " + "  ".join(f"{name} {value:.3f}" for name, value in numbers.items()), flush=True)
        history.append(numbers)
    return history


def main(argv: Sequence[str] | None = None) -> list[dict[str, float]]:
    """Read the options, load the model, train."""
    parser = argparse.ArgumentParser(description="Multi-turn GRPO with the SNR-aware filter on FrozenLake.")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--groups", type=int, default=8, help="prompts an iteration")
    parser.add_argument("--group-size", type=int, default=16, help="trajectories of each prompt")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", help="folder of a causal language model (default: petri, built once and cached)")
    args = parser.parse_args(argv)
    # GRPO compares successes with failures, so the model must succeed now and then: petri has learned format and words from
    # imperfect demonstrations. Another model must keep the reply format; `ragen2 warmup` teaches it.
    folder = args.model or build_petri([EnvironmentConfig(ENVIRONMENT)], note=print)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return train(model, AutoTokenizer.from_pretrained(folder), args)


if __name__ == "__main__":
    main()
