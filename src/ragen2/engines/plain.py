"""The plain engine: Hugging Face `generate` afresh on every whole context. Slow; serves any causal model, and is the
measure the fast engine is tested against.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from ragen2.engines.attention import bare
from ragen2.engines.base import Reply, SamplingConfig
from ragen2.engines.hf import CLOSED, FINISHED, RUNNING, check_rows
from ragen2.engines.sampling import RowUniforms, sample_tokens
from ragen2.errors import TokenMismatch
from ragen2.trajectory import Ids, as_ids


class PlainEngine:
    """Samples and scores with a transformers causal model by its own `generate` and `forward`, nothing shared or kept."""

    def __init__(
        self,
        model: nn.Module,
        end_ids: Iterable[int],
        *,
        autocast: torch.dtype | None = None,
        token_budget: int = 16384,
    ) -> None:
        self.model: Any = model
        self.end_ids = frozenset(int(token) for token in end_ids)
        self.autocast = autocast
        self.token_budget = token_budget

    def open(self, prompts_P: Sequence[Ids], group_size: int, sampling: SamplingConfig, seeds_R: Sequence[int]) -> PlainSession:
        """See `engines.base.Engine.open`. Raises ConfigError when the seeds do not match the rows, or a prompt is empty."""
        check_rows(prompts_P, group_size, sampling, seeds_R)
        return PlainSession(self, [as_ids(ids) for ids in prompts_P for _ in range(group_size)], sampling, seeds_R)

    def score(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> list[list[np.ndarray]]:
        """Log-probability (nats, temperature 1) of every token of each continuation, one forward pass a whole row."""
        if len(contexts) != len(continuations) or any(len(ids) == 0 for ids in contexts):
            raise TokenMismatch(f"{len(contexts)} contexts for {len(continuations)} lists of continuations, or an empty context")
        with self.evaluating():
            return [
                [self._score(as_ids(context), as_ids(row)) for row in rows]
                for context, rows in zip(contexts, continuations, strict=True)
            ]

    def _score(self, context: Ids, continuation: Ids) -> np.ndarray:
        if not len(continuation):
            return np.zeros(0, dtype=np.float32)
        whole = torch.from_numpy(np.concatenate([context, continuation]).astype(np.int64)).to(self.model.device)[None]
        logits = self.model(input_ids=whole, use_cache=False).logits[0, len(context) - 1 : -1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        # Not log_softmax: its sum over a large vocabulary is 1e-5 nats off where it is peaked.
        logprobs = logits.gather(-1, whole[0, len(context) :, None])[:, 0] - logits.logsumexp(-1)
        return logprobs.float().cpu().numpy()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """No gradients, no dropout, the engine's precision, none of the model's own sampling settings."""
        base = bare(self.model)
        trained, settings = [module for module in self.model.modules() if module.training], base.generation_config
        for module in trained:
            module.training = False
        base.generation_config = GenerationConfig()
        device = next(self.model.parameters()).device.type
        try:
            with torch.no_grad(), torch.autocast(device, self.autocast, enabled=self.autocast is not None):
                yield
        finally:
            base.generation_config = settings
            for module in trained:
                module.training = True


class _Draw(LogitsProcessor):
    """Draws each row's token itself and leaves `generate` only that one."""

    def __init__(self, rows_A: np.ndarray, uniforms: RowUniforms, temperature: float) -> None:
        self._rows_A, self._uniforms, self._temperature = rows_A, uniforms, temperature
        self.steps: list[tuple[np.ndarray, np.ndarray]] = []
        self.active_A = np.ones(len(rows_A), dtype=bool)

    def __call__(self, input_ids: torch.LongTensor, scores: Any) -> Any:
        """Scores [A, V] with 0 for the drawn token and minus infinity for the rest; a stopped row draws nothing."""
        active = np.flatnonzero(self.active_A)
        uniforms = self._uniforms.draw(self._rows_A[active]) if self._temperature > 0 else None
        drawn, drawn_logprobs = sample_tokens(scores[torch.from_numpy(active)], uniforms, self._temperature)
        ids_A = np.zeros(len(scores), dtype=np.int64)
        logprobs_A = np.zeros(len(scores), dtype=np.float32)
        ids_A[active], logprobs_A[active] = drawn, drawn_logprobs
        self.steps.append((ids_A, logprobs_A))
        only: Any = torch.full_like(scores, float("-inf"))
        return only.scatter_(1, torch.from_numpy(ids_A).to(scores.device)[:, None], 0.0)


class PlainSession:
    """Whole contexts a row; each `advance` brings every running row to the end of its reply."""

    def __init__(self, engine: PlainEngine, contexts_R: list[Ids], sampling: SamplingConfig, seeds_R: Sequence[int]) -> None:
        self._engine, self._contexts_R, self._sampling = engine, contexts_R, sampling
        self._uniforms = RowUniforms(seeds_R)
        self._status_R = np.full(len(contexts_R), RUNNING)
        longest = getattr(bare(engine.model).config, "max_position_embeddings", None)
        self._limit = min(sampling.context_tokens, longest or sampling.context_tokens)

    def advance(self) -> list[Reply]:
        """See `engines.base.Session.advance`. Raises NonFiniteLoss when the model's logits are NaN."""
        running = np.flatnonzero(self._status_R == RUNNING)
        if not len(running):
            return []
        self._status_R[running] = FINISHED
        room_A = self._limit - np.array([len(self._contexts_R[row]) for row in running])
        empty = Reply(-1, as_ids([]), np.zeros(0, dtype=np.float32), False)
        replies = {int(row): Reply(int(row), empty.ids, empty.logprobs, False) for row in running[room_A <= 0]}
        begin, rows, room_A = 0, running[room_A > 0], np.minimum(room_A[room_A > 0], self._sampling.turn_tokens)
        size = max(1, self._engine.token_budget // self._limit)
        with self._engine.evaluating():
            while begin < len(rows):
                chunk = slice(begin, begin + size)
                replies |= {reply.row: reply for reply in self._generate(rows[chunk], room_A[chunk])}
                begin = chunk.stop
        return [replies[row] for row in sorted(replies)]

    def resume(self, row: int, context_ids: Ids) -> None:
        """See `engines.base.Session.resume`. Raises TokenMismatch when the row is running or closed, or the context is empty."""
        if self._status_R[row] != FINISHED or not len(context_ids):
            raise TokenMismatch(f"row {row}: only a finished row resumes, from a context of at least one token")
        self._contexts_R[row] = as_ids(context_ids)
        self._status_R[row] = RUNNING

    def close(self, row: int) -> None:
        """See `engines.base.Session.close`."""
        self._status_R[row] = CLOSED

    def _generate(self, rows_A: np.ndarray, room_A: np.ndarray) -> list[Reply]:
        model = self._engine.model
        contexts = [self._contexts_R[row] for row in rows_A]
        width = max(len(ids) for ids in contexts)
        ids_AT = np.zeros((len(rows_A), width), dtype=np.int64)
        for a, ids in enumerate(contexts):
            ids_AT[a, width - len(ids) :] = ids
        mask_AT = np.arange(width) >= width - np.array([len(ids) for ids in contexts])[:, None]
        draw = _Draw(rows_A, self._uniforms, self._sampling.temperature)

        def stop(ids: Tensor, scores: Any, **_: Any) -> Tensor:
            last = draw.steps[-1][0]
            draw.active_A &= ~np.isin(last, list(self._engine.end_ids)) & (len(draw.steps) < room_A)
            return torch.from_numpy(~draw.active_A).to(ids.device)

        model.generate(
            input_ids=torch.from_numpy(ids_AT).to(model.device),
            attention_mask=torch.from_numpy(mask_AT.astype(np.int64)).to(model.device),
            max_new_tokens=int(room_A.max()),
            do_sample=False,
            pad_token_id=0,
            logits_processor=LogitsProcessorList([draw]),
            stopping_criteria=[stop],
        )
        return [self._reply(draw, a, int(row), int(room_A[a])) for a, row in enumerate(rows_A)]

    def _reply(self, draw: _Draw, a: int, row: int, room: int) -> Reply:
        ids = as_ids([int(ids_A[a]) for ids_A, _ in draw.steps[:room]])
        ends = np.flatnonzero(np.isin(ids, list(self._engine.end_ids)))
        count = int(ends[0]) + 1 if len(ends) else len(ids)
        logprobs = np.array([logprobs_A[a] for _, logprobs_A in draw.steps[:count]], dtype=np.float32)
        return Reply(row, ids[:count], logprobs, bool(len(ends)))
