"""Plays groups of episodes with an engine and returns them as a batch of trajectories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ragen2.engines.base import Engine, Reply, SamplingConfig, Session
from ragen2.errors import ConfigError, ModelError
from ragen2.prompting.chat_format import ChatFormat
from ragen2.rollout.config import RolloutConfig
from ragen2.rollout.env_calls import Played, fault_text, faults_by_cause, play_actions, reset_env
from ragen2.rollout.env_pool import EnvPool
from ragen2.rollout.env_worker import EnvWorker, Job, Outcome
from ragen2.rollout.episode import Episode, Level
from ragen2.rollout.slow_calls import SlowCalls
from ragen2.trajectory import RolloutBatch

__all__ = ["Collector", "Level", "faults_by_cause"]

Progress = Callable[[int, int], None]
"""Called with the episodes done and the episodes in all."""


class Collector:
    """Plays episodes. Environments and the worker thread that calls them are kept between calls; `close` frees them.

    Raises ConfigError when the chat format and the rollout disagree about reasoning.
    """

    def __init__(self, engine: Engine, chat_format: ChatFormat, config: RolloutConfig) -> None:
        if chat_format.think != config.think:
            raise ConfigError(
                f"rollout.think is {config.think}, but the chat format was built with think={chat_format.think}: "
                "build it as ChatFormat(tokenizer, think=config.think)"
            )
        self.engine, self.chat_format, self.config = engine, chat_format, config
        self._pool = EnvPool()
        self._worker = EnvWorker()
        self._slow = SlowCalls()

    def collect(
        self,
        levels: Sequence[Level],
        seeds_R: Sequence[int],
        *,
        policy_version: int = 0,
        temperature: float | None = None,
        most_turns: int | None = None,
        progress: Progress | None = None,
    ) -> RolloutBatch:
        """Play every level once for each of its noise seeds (the same number G for all).

        `seeds_R` (R = P * G, row = group * G + member) are the sampling seeds; `temperature` overrides the configuration's.
        `most_turns` ends episodes earlier than the configuration, without showing that to the policy.
        An environment that raises, hangs or returns nonsense costs its own trajectory (`valid` False, `fault` says why), a level
        whose trajectories do not see the same first observation costs its group. Raises ConfigError for levels and seeds
        that do not fit together, or when no prompt fits `context_tokens`.
        """
        group_size = _group_size(levels, seeds_R)
        if self._slow.pending:  # an earlier call was interrupted: its late results are nobody's
            self._slow.close()
        sampling = SamplingConfig(
            temperature=self.config.temperature if temperature is None else temperature,
            turn_tokens=self.config.turn_tokens,
            context_tokens=self.config.context_tokens,
        )
        episodes = [
            Episode(level, noise, self._pool.take(level.environment, level.make), self.chat_format, self.config, most_turns)
            for level in levels
            for noise in level.noise_seeds
        ]
        groups = [episodes[i : i + group_size] for i in range(0, len(episodes), group_size)]
        self._start(episodes, groups)
        self._play(groups, sampling, seeds_R, progress or (lambda done, total: None))
        for episode in episodes:
            if episode.fault is None:
                self._pool.give_back(episode.level.environment, episode.level.make, episode.env)
        return RolloutBatch(
            trajectories=tuple(episode.trajectory() for episode in episodes),
            group_index=tuple(index for index, group in enumerate(groups) for _ in group),
            policy_version=policy_version,
            sampling={
                "temperature": sampling.temperature,
                "turn_tokens": sampling.turn_tokens,
                "context_tokens": sampling.context_tokens,
                "context": self.config.context,
                "chat_format": self.chat_format.mode,
                "surplus_actions": sum(episode.surplus_actions for episode in episodes),
            },
        )

    def close(self) -> None:
        """Close the environments and let the threads end."""
        self._pool.close()
        self._worker.close()
        self._slow.close()

    def _start(self, episodes: Sequence[Episode], groups: Sequence[Sequence[Episode]]) -> None:
        """Reset all environments and show each group its prompt."""
        outcomes = self._reset_all(episodes)
        size = len(groups[0])
        for index, group in enumerate(groups):
            results = zip(group, outcomes[index * size : (index + 1) * size], strict=True)
            sound = [(episode, outcome.value) for episode, outcome in results if episode.fault is None]
            shown = {started.observation for _, started in sound}
            for episode, started in sound:
                if len(shown) > 1:
                    episode.break_off(
                        f"first observations differ ({episode.level.environment}, level seed {episode.level.level_seed}): "
                        f"{len(shown)} different ones in a group of {len(group)}; they may depend on the level seed only"
                    )
                else:
                    episode.start(started)
        self._check_lengths([episode for episode in episodes if episode.fault is None])

    def _check_lengths(self, episodes: Sequence[Episode]) -> None:
        limit = self.config.context_tokens
        too_long = [episode for episode in episodes if len(episode.context_ids) >= limit]
        if episodes and len(too_long) == len(episodes):
            raise ConfigError(
                f"rollout.context_tokens is {limit}, but the shortest prompt has "
                f"{min(len(episode.context_ids) for episode in episodes)} tokens: raise it above the prompt and the replies"
            )
        for episode in too_long:
            episode.break_off(f"prompt too long ({len(episode.context_ids)} tokens of {limit})", "overflow")

    def _play(
        self, groups: Sequence[Sequence[Episode]], sampling: SamplingConfig, seeds_R: Sequence[int], progress: Progress
    ) -> None:
        """Sample and step until every episode has ended. Groups without a sound member are not opened."""
        total = sum(len(group) for group in groups)
        open_groups = [index for index, group in enumerate(groups) if any(episode.fault is None for episode in group)]
        rows = [episode for index in open_groups for episode in groups[index]]
        left = sum(episode.fault is None for episode in rows)
        progress(total - left, total)
        if not rows:
            return
        size = len(groups[0])
        prompts_P = [next(item.context_ids for item in groups[index] if item.fault is None) for index in open_groups]
        seeds = [int(seeds_R[index * size + member]) for index in open_groups for member in range(size)]
        session = self.engine.open(prompts_P, size, sampling, seeds)
        for row, episode in enumerate(rows):
            if episode.fault is not None:
                session.close(row)
        while left:
            replies = session.advance()
            if not replies and not self._slow.pending:
                raise ModelError(f"the engine stopped sampling with {left} episodes unfinished")
            left -= self._take_turns(session, rows, [reply for reply in replies if rows[reply.row].stop_reason is None])
            for row, outcome in self._slow.ended(wait=not replies):
                self._break_failed([rows[row]], [outcome], self.config.step_timeout_s)
                left -= self._go_on(session, rows[row], row, outcome.value)
            progress(total - left, total)

    def _take_turns(self, session: Session, rows: Sequence[Episode], replies: Sequence[Reply]) -> int:
        """Do what the replies say and let their rows go on; how many episodes ended. Slow environments are only set going."""
        acting: list[int] = []
        jobs: list[Job] = []
        waiting: set[int] = set()
        for reply in replies:
            episode = rows[reply.row]
            if not (actions := episode.read(reply)):
                continue
            job = partial(play_actions, episode.env, actions)
            if episode.env.concurrency > 1:
                self._submit(reply.row, episode, job, self.config.step_timeout_s)
                waiting.add(reply.row)
            else:
                acting.append(reply.row)
                jobs.append(job)
        outcomes = self._worker.run(jobs, self.config.step_timeout_s)
        self._break_failed([rows[row] for row in acting], outcomes, self.config.step_timeout_s)
        played = {row: outcome.value for row, outcome in zip(acting, outcomes, strict=True)}
        return sum(self._go_on(session, rows[r.row], r.row, played.get(r.row)) for r in replies if r.row not in waiting)

    def _go_on(self, session: Session, episode: Episode, row: int, played: Played | None) -> int:
        """Record a turn and let its row sample again, or close it: 1 when the episode ended, else 0."""
        if episode.fault is None:
            episode.finish(played)
        if episode.stop_reason is None:
            session.resume(row, episode.context_ids)
            return 0
        session.close(row)
        return 1

    def _reset_all(self, episodes: Sequence[Episode]) -> list[Outcome]:
        """Reset every environment, the slow ones several at a time; outcomes in order."""
        limit = self.config.reset_timeout_s
        jobs = [partial(reset_env, item.env, item.level.level_seed, item.noise_seed) for item in episodes]
        slow = [index for index, item in enumerate(episodes) if item.env.concurrency > 1]
        for index in slow:
            self._submit(index, episodes[index], jobs[index], limit)
        fast = [index for index in range(len(jobs)) if index not in set(slow)]
        outcomes = dict(zip(fast, self._worker.run([jobs[index] for index in fast], limit), strict=True))
        while self._slow.pending:
            outcomes |= dict(self._slow.ended(wait=True))
        found = [outcomes[index] for index in range(len(jobs))]
        self._break_failed(episodes, found, limit)
        return found

    def _submit(self, key: int, episode: Episode, job: Job, timeout_s: float) -> None:
        name, limit = episode.level.environment, episode.env.concurrency
        self._slow.submit(key, job, kind=name, limit=limit, timeout_s=timeout_s)

    def _break_failed(self, episodes: Sequence[Episode], outcomes: Sequence[Outcome], timeout_s: float) -> None:
        """Break off the episodes whose call raised or hung."""
        for episode, outcome in zip(episodes, outcomes, strict=True):
            if outcome.hung or outcome.error is not None:
                episode.break_off(fault_text(outcome, timeout_s, episode.level.level_seed, episode.noise_seed))


def _group_size(levels: Sequence[Level], seeds_R: Sequence[int]) -> int:
    """G. Raises ConfigError when the levels have different numbers of noise seeds, or the sampling seeds another number."""
    sizes = {len(level.noise_seeds) for level in levels}
    if len(sizes) != 1 or 0 in sizes:
        raise ConfigError(f"levels have {sorted(sizes)} noise seeds; every level needs the same number, at least one")
    (size,) = sizes
    if len(seeds_R) != len(levels) * size:
        raise ConfigError(
            f"{len(seeds_R)} sampling seeds for {len(levels)} levels of {size} trajectories; one a trajectory is needed"
        )
    return size
