"""The Hugging Face engine: one prefill per group, keys and values kept across turns, every row at its own pace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ragen2.engines.attention import bare, decoder_of, run_causal_model, run_decoder
from ragen2.engines.base import Reply, SamplingConfig
from ragen2.engines.prefix import LOGIT_ELEMENTS, check_model, compute_prefix, without_last
from ragen2.engines.sampling import RowUniforms, sample_tokens
from ragen2.engines.scored import Scored, gathered
from ragen2.engines.scoring import score_stream
from ragen2.engines.slots import Slots, StepAttention, StepRows
from ragen2.errors import ConfigError, TokenMismatch
from ragen2.trajectory import Ids, as_ids, common_prefix

RUNNING, FINISHED, CLOSED = 0, 1, 2


class HFEngine:
    """Samples and scores with a transformers causal model, which it shares with the trainer and never changes.

    `end_ids` end a reply. `autocast` (for example torch.bfloat16) computes in that precision over float32 weights.
    `token_budget` bounds the tokens of one forward pass. Raises ModelError at once for a model that cannot share prefixes.
    """

    def __init__(
        self,
        model: nn.Module,
        end_ids: Iterable[int],
        *,
        autocast: torch.dtype | None = None,
        token_budget: int = 16384,
    ) -> None:
        self.model = model
        self.end_ids = frozenset(int(token) for token in end_ids)
        self.autocast = autocast
        self.token_budget = token_budget
        check_model(model)

    def open(self, prompts_P: Sequence[Ids], group_size: int, sampling: SamplingConfig, seeds_R: Sequence[int]) -> HFSession:
        """Rows begin after their group's prompt. Raises ConfigError when the seeds do not match the rows, or a prompt is empty.

        A row also stops at the model's own longest context when that is shorter than `sampling.context_tokens`.
        """
        check_rows(prompts_P, group_size, sampling, seeds_R)
        with self.evaluating():
            return HFSession(self, prompts_P, group_size, sampling, seeds_R)

    def score(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> list[list[np.ndarray]]:
        """Log-probability (nats, temperature 1) of every token of each continuation after its context."""
        return gathered(continuations, self.score_each(contexts, continuations))

    def score_each(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> Iterator[Scored]:
        """`(i, k, log-probabilities)` of every continuation once, in the order in which they are done.

        Raises TokenMismatch when the lists differ in length, a context is empty, or ids lie outside the vocabulary.
        """
        stream = score_stream(self.model, contexts, continuations, self.token_budget)
        while True:
            # Entered for each part anew: between two of them the caller has its gradients and training flags back.
            with self.evaluating():
                part = next(stream, None)
            if part is None:
                return
            yield from part

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """No gradients, no dropout, the engine's precision; the modules' training flags come back afterwards."""
        trained = [module for module in self.model.modules() if module.training]
        for module in trained:
            module.training = False
        device = next(self.model.parameters()).device.type
        try:
            with torch.no_grad(), torch.autocast(device, self.autocast, enabled=self.autocast is not None):
                yield
        finally:
            for module in trained:
                module.training = True


def check_rows(prompts_P: Sequence[Ids], group_size: int, sampling: SamplingConfig, seeds_R: Sequence[int]) -> None:
    """Raises ConfigError for what no session can be opened with."""
    if not prompts_P or group_size < 1 or any(len(ids) == 0 for ids in prompts_P):
        raise ConfigError("a session needs at least one prompt, none of them empty, and a group size of at least 1")
    if len(seeds_R) != len(prompts_P) * group_size:
        raise ConfigError(f"{len(seeds_R)} seeds for {len(prompts_P)} groups of {group_size}: give one a row")
    if sampling.temperature < 0 or sampling.turn_tokens < 1:
        raise ConfigError(f"temperature {sampling.temperature} must be >= 0 and turn_tokens {sampling.turn_tokens} >= 1")


class HFSession:
    """What every row holds and how far it is computed; see `engines.base.Session`.

    A row's tokens are `held_RC[row, :length_R[row]]`. Keys and values exist for the first `cached_R[row]` of them: the first
    `visible_R[row]` in its group's prefix, the rest in its own region. `turn_limit_R[row]`, at first `turn_tokens` for all, may
    be lowered for a row before it samples.
    """

    def __init__(
        self,
        engine: HFEngine,
        prompts_P: Sequence[Ids],
        group_size: int,
        sampling: SamplingConfig,
        seeds_R: Sequence[int],
    ) -> None:
        self._engine, self._sampling = engine, sampling
        self._decoder = decoder_of(engine.model)
        self._plain_head = check_model(engine.model)
        config = self._decoder.config
        self._limit = min(sampling.context_tokens, getattr(config, "max_position_embeddings", None) or sampling.context_tokens)
        vocabulary: int = config.vocab_size
        self._ends_V = np.zeros(vocabulary, dtype=bool)
        self._ends_V[[token for token in engine.end_ids if token < vocabulary]] = True
        rows = len(prompts_P) * group_size
        group_R = np.repeat(np.arange(len(prompts_P)), group_size)
        self.length_R = np.array([len(ids) for ids in prompts_P])[group_R]
        self.held_RC = np.zeros((rows, int(self.length_R.max()) + sampling.turn_tokens), dtype=np.int32)
        for row, group in enumerate(group_R):
            self.held_RC[row, : self.length_R[row]] = prompts_P[int(group)]
        self.cached_R = self.length_R - 1
        self.visible_R = self.cached_R.copy()
        self.status_R = np.full(rows, RUNNING)
        self.sampled_R = np.zeros(rows, dtype=np.int64)
        self.turn_limit_R = np.full(rows, sampling.turn_tokens)
        self._logprobs_RT = np.zeros((rows, sampling.turn_tokens), dtype=np.float32)
        self._uniforms = RowUniforms(seeds_R)
        prefix = compute_prefix(engine.model, without_last(prompts_P))
        keys = prefix.layers[0][0]
        self._key_heads, self._device = keys.shape[1], keys.device
        self.slots = Slots(prefix, group_R)

    def advance(self) -> list[Reply]:
        """See `engines.base.Session.advance`. Raises NonFiniteLoss when the model's logits are NaN."""
        with self._engine.evaluating():
            while True:
                running = np.flatnonzero(self.status_R == RUNNING)
                if not len(running):
                    return []
                full = running[np.asarray(self.length_R[running]) >= self._limit]
                if len(full):
                    return self._finish(full, np.zeros(len(full), dtype=bool))
                self._compact()
                replies = self._step(running)
                if replies:
                    return replies

    def resume(self, row: int, context_ids: Ids) -> None:
        """See `engines.base.Session.resume`. A context that differs from what the row has seen is computed again from there.

        Raises TokenMismatch when the row is still sampling or closed, or the context is empty.
        """
        if self.status_R[row] != FINISHED or not len(context_ids):
            state = ("is still sampling", "has finished", "is closed")[self.status_R[row]]
            raise TokenMismatch(f"row {row} {state}; only a finished row resumes, from a context of at least one token")
        context = as_ids(context_ids)
        known = common_prefix(self.held_RC[row, : self.cached_R[row]], context[:-1])
        if len(context) + self._sampling.turn_tokens > self.held_RC.shape[1]:
            more = max(len(context) + self._sampling.turn_tokens, self.held_RC.shape[1] * 3 // 2) - self.held_RC.shape[1]
            self.held_RC = np.pad(self.held_RC, ((0, 0), (0, more)))
        self.held_RC[row, : len(context)] = context
        self.length_R[row], self.cached_R[row] = len(context), known
        self.visible_R[row] = min(self.visible_R[row], known)
        self.sampled_R[row] = 0
        self.status_R[row] = RUNNING

    def close(self, row: int) -> None:
        """See `engines.base.Session.close`. Closing a closed row changes nothing."""
        self.status_R[row] = CLOSED

    def _compact(self) -> None:
        """Give up the places of closed rows once they are a quarter: the copy then costs less than the steps save."""
        alive = np.flatnonzero(self.status_R != CLOSED)
        if 4 * len(alive) <= 3 * self.slots.count and self.slots.fewest(alive) < self.slots.count:
            self.slots.compact(alive)

    def _step(self, running: np.ndarray) -> list[Reply]:
        """Feed what the running rows have not computed yet, sample one token each."""
        step = self._choose(running)
        rows_A, ends_A = step.rows_A, np.cumsum(step.feeds_A) - 1
        starts_N = np.repeat(ends_A + 1 - step.feeds_A, step.feeds_A)
        positions_N = np.repeat(self.cached_R[rows_A], step.feeds_A) + np.arange(len(starts_N)) - starts_N
        ids_N = self.held_RC[np.repeat(rows_A, step.feeds_A), positions_N]
        state = StepAttention(self.slots, step, self._key_heads, int(self.length_R[rows_A].max()), self._device)
        tokens_A, logprobs_A = self._sample(rows_A, ids_N, positions_N, ends_A, state)
        self.held_RC[rows_A, self.length_R[rows_A]] = tokens_A
        self._logprobs_RT[rows_A, self.sampled_R[rows_A]] = logprobs_A
        self.cached_R[rows_A] = self.length_R[rows_A]
        self.length_R[rows_A] += 1
        self.sampled_R[rows_A] += 1
        ended_A = self._ends_V[tokens_A]
        cut_A = (self.sampled_R[rows_A] >= self.turn_limit_R[rows_A]) | (self.length_R[rows_A] >= self._limit)
        done_A = ended_A | cut_A
        return self._finish(rows_A[done_A], ended_A[done_A]) if done_A.any() else []

    def _choose(self, running: np.ndarray) -> StepRows:
        """Rows that feed one token, in slot order, then extensions up to the token budget, the shortest first."""
        feeds = self.length_R[running] - self.cached_R[running]
        singles, extensions = running[feeds == 1], running[feeds > 1]
        if len(extensions):
            extensions = extensions[np.argsort(feeds[feeds > 1], kind="stable")]
            totals = np.cumsum(self.length_R[extensions] - self.cached_R[extensions])
            extensions = extensions[: max(1, int(np.searchsorted(totals, self._engine.token_budget, side="right")))]
        rows_A = np.concatenate([singles[np.argsort(self.slots.slot_R[singles])], extensions])
        visible_A = self.visible_R[rows_A]
        return StepRows(rows_A, self.length_R[rows_A] - self.cached_R[rows_A], visible_A, self.cached_R[rows_A] - visible_A)

    def _sample(
        self, rows_A: np.ndarray, ids_N: np.ndarray, positions_N: np.ndarray, ends_A: np.ndarray, state: StepAttention
    ) -> tuple[np.ndarray, np.ndarray]:
        ids = torch.from_numpy(ids_N.astype(np.int64)).to(self._device)[None]
        positions = torch.from_numpy(positions_N).to(self._device)[None]
        ends = torch.from_numpy(ends_A).to(self._device)
        model, temperature = self._engine.model, self._sampling.temperature
        uniforms_A = self._uniforms.draw(rows_A) if temperature > 0 else None
        if not self._plain_head:
            return sample_tokens(run_causal_model(model, ids, positions, state)[0, ends], uniforms_A, temperature)
        hidden_AD: Tensor = run_decoder(self._decoder, ids, positions, state)[0]
        if len(ends_A) < len(hidden_AD):
            hidden_AD = hidden_AD[ends]
        head = bare(model).get_output_embeddings()
        size = max(1, LOGIT_ELEMENTS // len(self._ends_V))
        parts = [
            sample_tokens(
                head(hidden_AD[at : at + size]), None if uniforms_A is None else uniforms_A[at : at + size], temperature
            )
            for at in range(0, len(rows_A), size)
        ]
        return np.concatenate([ids for ids, _ in parts]), np.concatenate([logprobs for _, logprobs in parts])

    def _finish(self, rows: np.ndarray, ended: np.ndarray) -> list[Reply]:
        self.status_R[rows] = FINISHED
        order = np.argsort(rows)
        replies = []
        for row, end in zip(rows[order].tolist(), ended[order].tolist(), strict=True):
            count, length = self.sampled_R[row], self.length_R[row]
            ids, logprobs = self.held_RC[row, length - count : length].copy(), self._logprobs_RT[row, :count].copy()
            replies.append(Reply(row, ids, logprobs, end))
        return replies
