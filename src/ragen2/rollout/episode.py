"""One episode while it is played: what was shown and sampled, what is left of its budgets, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ragen2.engines.base import Reply
from ragen2.envs.base import TextEnv
from ragen2.errors import TokenMismatch
from ragen2.prompting.chat_format import ChatFormat
from ragen2.prompting.messages import SEPARATOR, notice_text, system_text, turn_text
from ragen2.prompting.reply import ParsedReply, parse_reply, reasoning_span
from ragen2.rollout.config import RolloutConfig
from ragen2.rollout.context import Exchange, next_context
from ragen2.rollout.env_calls import Played, Started
from ragen2.trajectory import Ids, Trajectory, Turn, as_ids


@dataclass(frozen=True)
class Level:
    """What one group plays. `make` builds its environment (the same object for the same split and configuration, so that
    environments are kept between iterations); `level_seed` is shared, `noise_seeds` has one entry a trajectory."""

    environment: str
    make: Callable[[], TextEnv]
    level_seed: int
    noise_seeds: tuple[int, ...]
    prompt_id: str


class Episode:
    """The state of one trajectory. In order: `start`, then `read` and `finish` for each reply while `stop_reason` is None."""

    def __init__(
        self,
        level: Level,
        noise_seed: int,
        env: TextEnv,
        chat_format: ChatFormat,
        config: RolloutConfig,
        most_turns: int | None = None,
    ) -> None:
        self.level, self.noise_seed, self.env = level, noise_seed, env
        self.stop_reason: str | None = None
        self.fault: str | None = None
        self.context_ids: Ids = as_ids([])
        self.observation = ""
        self.surplus_actions = 0
        self._chat, self._config = chat_format, config
        self._most_turns = config.max_turns if most_turns is None else min(most_turns, config.max_turns)
        self._system = ""
        self._past: list[Exchange] = []
        self._turns: list[Turn] = []
        self._text = ""
        self._actions_used = 0
        self._success = False
        self._reply: Reply | None = None
        self._reply_text = ""
        self._parsed = ParsedReply("ok")

    def start(self, started: Started) -> None:
        """Show the first observation. The first context is then `context_ids`."""
        config = self._config
        self._system = system_text(
            started.instructions,
            multi_action=self.env.multi_action,
            actions_per_turn=config.actions_per_turn,
            think=config.think,
            word_limit=config.word_limit,
        )
        self.observation = started.observation
        self._text = turn_text(1, config.max_turns, config.max_actions, started.observation)
        self.context_ids = self._chat.initial_ids(self._system, self._text)

    def read(self, reply: Reply) -> tuple[str, ...]:
        """Parse a reply; the actions to do, none where it does not parse."""
        if reply.ended and not (len(reply.ids) and int(reply.ids[-1]) in self._chat.end_ids):
            raise TokenMismatch(
                f"row {reply.row}: the engine says the reply ended, but its last id is none of the end ids "
                f"{sorted(self._chat.end_ids)}: give the engine ChatFormat.end_ids"
            )
        self._reply = reply
        left = self._config.max_actions - self._actions_used
        per_turn = self._config.actions_per_turn if self.env.multi_action else 1
        self._reply_text = self._chat.decode(self._own_ids(reply))
        self._parsed = parse_reply(
            self._reply_text,
            multi_action=self.env.multi_action,
            separator=SEPARATOR,
            max_actions=min(per_turn, left),
            think=self._config.think,
            ended=reply.ended,
        )
        self.surplus_actions += self._parsed.surplus_actions
        return self._parsed.actions

    def finish(self, played: Played | None) -> None:
        """Record the turn of the reply just read: `played` is what its actions led to, None when it had none. Then either
        `stop_reason` is set or `context_ids` is the next context."""
        if self._reply is not None and not len(self._reply.ids):
            self._stop_full()
            return
        valid_action = played is not None and self._parsed.valid_think and played.legal > 0
        self._record(0.0 if played is None else played.reward, valid_action)
        if played is not None:
            self.observation = played.observation
            self._actions_used += len(self._parsed.actions)
        self.stop_reason = self._stop(played)
        if self.stop_reason is None:
            self._show_next()

    def break_off(self, fault: str, stop_reason: str = "fault") -> None:
        """The episode broke for reasons outside the policy. A reply already read becomes a turn without reward or penalty."""
        if self._reply is not None:
            self._record(0.0, None)
        self.fault, self.stop_reason = fault, stop_reason

    def _stop_full(self) -> None:
        """The engine had no room for a single token (the model's own context may be shorter than `context_tokens`): no turn."""
        self._reply = None
        if self._turns:
            self.stop_reason = "overflow"
        else:
            self.break_off(f"prompt too long ({len(self.context_ids)} tokens leave the model no room)", "overflow")

    def trajectory(self) -> Trajectory:
        """The finished episode."""
        assert self.stop_reason is not None, "the episode has not ended"
        return Trajectory(
            prompt_id=self.level.prompt_id,
            level_seed=self.level.level_seed,
            noise_seed=self.noise_seed,
            environment=self.level.environment,
            turns=tuple(self._turns),
            success=self._success and self.fault is None,
            valid=self.fault is None,
            stop_reason=self.stop_reason,
            fault=self.fault,
            final_observation=self.observation,
        )

    def _own_ids(self, reply: Reply) -> Ids:
        return self._chat.without_end(reply.ids) if reply.ended else reply.ids

    def _record(self, reward: float, valid_action: bool | None) -> None:
        """Append the turn of the reply just read; `valid_action` None: it could not be judged, no penalty."""
        reply, parsed, text = self._reply, self._parsed, self._reply_text
        assert reply is not None, "no reply has been read"
        self._reply = None
        span = None
        if parsed.reasoning_end is not None:
            span = reasoning_span(self._own_ids(reply), self._chat.decode, parsed.reasoning_end)
        turn = Turn(
            index=len(self._turns),
            context_ids=self.context_ids,
            sampled_ids=as_ids(reply.ids),
            logprobs=reply.logprobs,
            observation=self.observation,
            reply=text,
            reasoning_span=span,
            actions=parsed.actions,
            reward=reward,
            penalty=self._config.format_penalty if valid_action is False else 0.0,
            parse_status=parsed.status,
            valid_action=bool(valid_action),
            truncated=not reply.ended,
        )
        self._turns.append(turn)
        self._past.append(Exchange(self._text, turn.sampled_ids, text, reply.ended))

    def _stop(self, played: Played | None) -> str | None:
        """Why the episode ends now, if it does: its own end first, then the budgets."""
        if played is not None and (played.terminated or played.truncated):
            self._success = played.success
            return "terminated" if played.terminated else "truncated"
        if len(self._turns) >= self._most_turns:
            return "turns"
        if self._actions_used >= self._config.max_actions:
            return "actions"
        return None

    def _show_next(self) -> None:
        last = self._turns[-1]
        self._text = turn_text(
            len(self._turns) + 1,
            self._config.max_turns,
            self._config.max_actions - self._actions_used,
            self.observation,
            last_reward=last.reward,
            last_notice=notice_text(last.parse_status, last.valid_action),
        )
        context = next_context(self._chat, self._system, self._past, self.context_ids, self._text, self._config.window)
        if len(context) >= self._config.context_tokens:
            self.stop_reason = "overflow"
        else:
            self.context_ids = context
