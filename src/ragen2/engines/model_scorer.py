"""A scorer from any Hugging Face model: the prefix-sharing engine where the model allows it, whole rows where not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ragen2.engines.hf import HFEngine
from ragen2.engines.loading import load_model
from ragen2.engines.plain import PlainEngine
from ragen2.engines.scored import Scored, gathered
from ragen2.engines.scoring import check_tokens
from ragen2.errors import ModelError
from ragen2.trajectory import Ids


class ModelScorer:
    """Scores with a transformers causal model. `tokenizer` goes with it, `shared` says whether prefixes are shared."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        name: str = "",
        autocast: torch.dtype | None = None,
        token_budget: int = 16384,
    ) -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name or type(model).__name__
        self._plain = PlainEngine(model, (), autocast=autocast, token_budget=token_budget)
        try:
            self._sharing: HFEngine | None = HFEngine(model, (), autocast=autocast, token_budget=token_budget)
        except ModelError as error:
            self._sharing, self.reason = None, str(error)
        else:
            self.reason = ""

    @property
    def shared(self) -> bool:
        """Whether prefixes are shared between rows; `reason` says why not."""
        return self._sharing is not None

    def score(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> list[list[np.ndarray]]:
        """See `engines.base.Engine.score`. Raises TokenMismatch naming what this model cannot read."""
        return gathered(continuations, self.score_each(contexts, continuations))

    def score_each(self, contexts: Sequence[Ids], continuations: Sequence[Sequence[Ids]]) -> Iterator[Scored]:
        """`(i, k, log-probabilities)` of every continuation once. Raises TokenMismatch like `score`."""
        check_tokens(self.model, contexts, continuations)
        done: set[tuple[int, int]] = set()
        if self._sharing is not None:
            try:
                for i, k, values in self._sharing.score_each(contexts, continuations):
                    done.add((i, k))
                    yield i, k, values
                return
            except ModelError as error:
                # A sliding window shows itself only when a context is longer than it.
                self._sharing, self.reason = None, str(error)
        for i, (context, rows) in enumerate(zip(contexts, continuations, strict=True)):
            for k, row in enumerate(rows):
                if (i, k) not in done:
                    yield i, k, self._plain.score([context], [[row]])[0][0]


def load_scorer(
    name: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    autocast: torch.dtype | None = None,
    token_budget: int = 16384,
) -> ModelScorer:
    """A scorer from a model folder (nothing is fetched then) or a hub id.

    Raises ModelError saying which file a folder lacks, or why a hub id cannot be had.
    """
    loaded = load_model(str(name), dtype=dtype, device=device)
    return ModelScorer(loaded.model, loaded.tokenizer, name=loaded.name, autocast=autocast, token_budget=token_budget)
