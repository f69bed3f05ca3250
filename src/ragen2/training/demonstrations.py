"""Whole episodes played by the environments' demonstrators, as token rows with loss weights.

A row is built from the same texts and the same ids that the rollout builds: what the warm-up trains on is, token for token, a
context that the policy meets later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ragen2.envs import make
from ragen2.envs.base import Demonstration, TextEnv
from ragen2.prompting.chat_format import ChatFormat
from ragen2.prompting.messages import SEPARATOR, system_text, turn_text
from ragen2.rollout.context import Exchange, next_context
from ragen2.trajectory import Ids, common_prefix

if TYPE_CHECKING:
    from ragen2.rollout.config import RolloutConfig
    from ragen2.training.settings import EnvironmentConfig

REPLY_WEIGHT = 1.0

EXPERTISE = {"frozen-lake": 0.5, "sokoban": 0.5, "countdown": 0.5, "bandit": 0.5}
"""Default chance that a demonstrated turn is the solver's: half of the turns random leaves reinforcement learning room."""

DEFAULT_EXPERTISE = 0.5
"""For environments that are not in `EXPERTISE`."""


@dataclass(frozen=True)
class DemoRow:
    """Token ids of one episode (or of one turn, for chat templates that render every turn afresh) and each token's loss weight.

    `weights[t]` weighs the prediction of `ids[t]`: 1 on replies with their end token, less on what the model is shown.
    The first `prefix` ids are the system's, the same in every row of an environment.
    """

    ids: Ids
    weights: np.ndarray
    prefix: int = 0


@dataclass(frozen=True)
class DemoTurn:
    """One demonstrated turn as text: what was shown, what was replied."""

    observation: str
    user: str
    reply: str
    actions: tuple[str, ...]


@dataclass(frozen=True)
class DemoEpisode:
    """One demonstrated episode as text, its summed task reward and whether it succeeded."""

    system: str
    turns: tuple[DemoTurn, ...]
    task_return: float
    success: bool


def reply_text(demonstration: Demonstration, think: bool = True) -> str:
    """The reply after the prefilled opening tag; without `think` the answer alone."""
    answer = f"<answer>{f' {SEPARATOR} '.join(demonstration.actions)}</answer>"
    return f"{demonstration.reasoning}</think>{answer}" if think else answer


def play_episode(
    env: TextEnv,
    rollout: RolloutConfig,
    level_seed: int,
    noise_seed: int,
    rng: np.random.Generator,
    expertise: float,
    *,
    most_turns: int | None = None,
) -> DemoEpisode:
    """Play one episode with the environment's demonstrator; every turn is the solver's with chance `expertise`, else random.

    `most_turns` breaks the episode off early without telling the model, whose texts still name the rollout's budgets.
    Raises NotImplementedError for an environment without demonstrations.
    """
    observation = env.reset(level_seed, noise_seed).text
    left = rollout.max_actions
    turns: list[DemoTurn] = []
    rewards: list[float] = []
    success, done, last_reward = False, False, None
    per_turn = rollout.actions_per_turn if env.multi_action else 1
    most_turns = rollout.max_turns if most_turns is None else min(most_turns, rollout.max_turns)
    while not done and len(turns) < most_turns and left > 0:
        user = turn_text(len(turns) + 1, rollout.max_turns, left, observation, last_reward=last_reward)
        shown = env.demonstrate(rng, expertise, min(per_turn, left))
        turns.append(DemoTurn(observation, user, reply_text(shown, rollout.think), shown.actions))
        last_reward = 0.0
        for action in shown.actions:
            result = env.step(action)
            left -= 1
            last_reward += result.reward
            rewards.append(result.reward)
            observation = result.observation.text
            if result.done:
                success, done = bool(result.info.get("success")), True
                break
    return DemoEpisode(_system(env, rollout), tuple(turns), float(sum(rewards)), success)


def _system(env: TextEnv, rollout: RolloutConfig) -> str:
    return system_text(
        env.instructions,
        multi_action=env.multi_action,
        actions_per_turn=rollout.actions_per_turn,
        think=rollout.think,
        word_limit=rollout.word_limit,
    )


def episode_rows(
    episode: DemoEpisode,
    chat: ChatFormat,
    *,
    window: int | None = None,
    observation_weight: float = 0.3,
    system_weight: float = 0.0,
) -> list[DemoRow]:
    """An episode as rows: one where the context goes on by appending ids, else one a turn, in which only the last reply weighs.

    `window` is the number of turns a context shows (`RolloutConfig.window`).
    """
    whole = chat.mode == "append" and window is None
    system_ids = chat.initial_ids(episode.system, "")
    rows: list[DemoRow] = []
    past: list[Exchange] = []
    ids, weights, prefix = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32), 0
    for turn in episode.turns:
        if past:
            context = next_context(chat, episode.system, past, ids, turn.user, window)
        else:
            context = chat.initial_ids(episode.system, turn.user)
        if not whole or not past:
            prefix = common_prefix(context, system_ids)
            weights = _filled(prefix, system_weight)
        weights = np.concatenate([weights, _filled(len(context) - len(weights), observation_weight)])
        reply = chat.reply_ids(turn.reply)
        past.append(Exchange(turn.user, reply, turn.reply, True))
        ids, weights = context, np.concatenate([weights, _filled(len(reply), REPLY_WEIGHT)])
        if not whole or turn is episode.turns[-1]:
            rows.append(DemoRow(np.concatenate([ids, reply]), weights, prefix))
    return rows


def _filled(length: int, weight: float) -> np.ndarray:
    return np.full(length, weight, dtype=np.float32)


def to_text(episode: DemoEpisode, chat: ChatFormat) -> str:
    """The episode as the model meets it, control tokens shown: for reading, never for training."""
    return chat.decode(episode_rows(episode, chat)[-1].ids)


class DemoStream:
    """Endless rows of demonstrations of one or more environments, in turns; the same seed gives the same rows.

    Training levels only. `expertise` overrides the default of every environment when it is not None. Raises NotImplementedError
    at the first row of an environment without demonstrations.
    """

    def __init__(
        self,
        environments: Sequence[EnvironmentConfig],
        chat: ChatFormat,
        rollout: RolloutConfig,
        *,
        seed: int,
        expertise: float | None = None,
        observation_weight: float = 0.3,
        system_weight: float = 0.0,
    ) -> None:
        self.environments, self.chat, self.rollout = tuple(environments), chat, rollout
        self.expertise = expertise
        self._weights = {"observation_weight": observation_weight, "system_weight": system_weight}
        self._rng = np.random.default_rng([seed, 0xDE30])

    def episodes(self, most_turns: int | None = None) -> Iterator[DemoEpisode]:
        """Endless episodes, one environment after the other, of at most `most_turns` turns."""
        envs = [(config, make(config.id, split="train", **config.options)) for config in self.environments]
        try:
            while True:
                for config, env in envs:
                    level, noise = (int(x) for x in self._rng.integers(2**31, size=2))
                    expertise = default_expertise(config.id) if self.expertise is None else self.expertise
                    yield play_episode(env, self.rollout, level, noise, self._rng, expertise, most_turns=most_turns)
        finally:
            for _, env in envs:
                env.close()

    def rows(self, most_turns: int | None = None) -> Iterator[DemoRow]:
        """Endless rows. An episode that would pass the rollout's `context_tokens` is left out, as the rollout would cut it."""
        for episode in self.episodes(most_turns):
            for row in episode_rows(episode, self.chat, window=self.rollout.window, **self._weights):
                if len(row.ids) <= self.rollout.context_tokens:
                    yield row


def default_expertise(environment: str) -> float:
    """The share of the solver's turns in an environment's demonstrations."""
    return EXPERTISE.get(environment, DEFAULT_EXPERTISE)
