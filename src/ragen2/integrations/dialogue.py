"""An episode as a chat: what the policy is told, and what its replies do. The words and rules are those of our own rollouts."""

from __future__ import annotations

import math

from ragen2.envs.base import TextEnv
from ragen2.errors import EnvironmentFault
from ragen2.prompting.messages import SEPARATOR, notice_text, system_text, turn_text
from ragen2.prompting.reply import parse_reply
from ragen2.rollout.config import RolloutConfig


class Dialogue:
    """Plays one episode of `env` for a policy behind a chat interface. In order: `start`, then `answer` until it gives None.

    `stop_reason` is then terminated, truncated, turns or actions. `reasoning_apart`: the model's reasoning does not stand in its
    reply (a server took it out), so a reply is the answer block alone. Of `config` the budgets, `think` and `word_limit` count.
    """

    def __init__(self, env: TextEnv, config: RolloutConfig | None = None) -> None:
        self.env, self.config = env, config or RolloutConfig()
        self.stop_reason: str | None = None
        self.success = False
        self.turns = self.valid_thinks = self.valid_actions = 0
        self._rewards: list[float] = []
        self._observation = ""
        self._actions = 0

    @property
    def task_return(self) -> float:
        """Sum of the task's rewards so far."""
        return math.fsum(self._rewards)

    def start(self, level_seed: int, noise_seed: int) -> tuple[str, str]:
        """The system message and the first user message. Raises what `TextEnv.reset` raises."""
        self._observation = self.env.reset(level_seed, noise_seed).text
        system = system_text(
            self.env.instructions,
            multi_action=self.env.multi_action,
            actions_per_turn=self.config.actions_per_turn,
            think=self.config.think,
            word_limit=self.config.word_limit,
        )
        return system, turn_text(1, self.config.max_turns, self.config.max_actions, self._observation)

    def answer(self, reply: str, *, reasoning_apart: bool = False, ended: bool = True) -> str | None:
        """The next user message after `reply`, or None where the episode is over. `ended` False: the reply was cut off.

        Raises EnvironmentFault where the environment fails or pays what is no finite number.
        """
        if self.stop_reason is not None:
            return None
        self.turns += 1
        per_turn = self.config.actions_per_turn if self.env.multi_action else 1
        parsed = parse_reply(
            reply,
            multi_action=self.env.multi_action,
            separator=SEPARATOR,
            max_actions=min(per_turn, self.config.max_actions - self._actions),
            think_prefilled=not reply.lstrip()[:7].lower().startswith("<think>"),
            think=self.config.think and not reasoning_apart,
            ended=ended,
        )
        reward, legal = self._play(parsed.actions)
        self._rewards.append(reward)
        self.valid_thinks += parsed.valid_think
        self.valid_actions += legal > 0
        if self.stop_reason is None and self.turns >= self.config.max_turns:
            self.stop_reason = "turns"
        elif self.stop_reason is None and self._actions >= self.config.max_actions:
            self.stop_reason = "actions"
        if self.stop_reason is not None:
            return None
        left = self.config.max_actions - self._actions
        notice = notice_text(parsed.status, legal > 0)
        return turn_text(self.turns + 1, self.config.max_turns, left, self._observation, last_reward=reward, last_notice=notice)

    def _play(self, actions: tuple[str, ...]) -> tuple[float, int]:
        """Reward and number of legal actions of one reply."""
        rewards: list[float] = []
        legal = 0
        self._actions += len(actions)
        for action in actions:
            result = self.env.step(action)
            if not math.isfinite(result.reward):
                raise EnvironmentFault(f"the environment gave the reward {result.reward}; a reward must be finite")
            rewards.append(float(result.reward))
            legal += bool(result.info["legal"])
            self._observation = result.observation.text
            if result.done:
                self.stop_reason = "terminated" if result.terminated else "truncated"
                self.success = bool(result.info["success"])
                break
        return math.fsum(rewards), legal
