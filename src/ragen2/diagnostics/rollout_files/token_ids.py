"""Texts and token ids as the ids a scorer reads, checked against what it knows."""

from __future__ import annotations

from typing import Any

from ragen2.diagnostics.cross_score import Scorer
from ragen2.diagnostics.rollout_files.sample import ReadReport, Sample, TextOrIds
from ragen2.diagnostics.rollout_files.token_turns import TokenizerCheck, decode_of
from ragen2.errors import NotMeasurable, TokenMismatch
from ragen2.trajectory import Ids, as_ids

LONGEST = 32_768
"""Most tokens of a context and a reasoning together where the scorer names no limit of its own."""

MAX_TEXT_CHARS = 400_000
"""Longer texts are not tokenised."""


class TokenIds:
    """Makes ids for one scorer. `longest` bounds a context and a reasoning together."""

    def __init__(self, scorer: Scorer, tokenizer: Any, report: ReadReport) -> None:
        self.tokenizer = getattr(scorer, "tokenizer", None) if tokenizer is None else tokenizer
        config = getattr(getattr(scorer, "model", None), "config", None)
        positions, vocabulary = (getattr(config, name, None) for name in ("max_position_embeddings", "vocab_size"))
        self.longest = positions if isinstance(positions, int) else LONGEST
        self.vocabulary = vocabulary if isinstance(vocabulary, int) else self._tokens_of_tokenizer()
        self._report, self._check = report, TokenizerCheck()
        self._start = self._start_ids()

    def check(self, sample: Sample) -> None:
        """Whether the tokenizer made the ids of a turn. Raises TokenMismatch when that holds for none of the first turns."""
        if isinstance(sample.reasoning, str) or sample.reasoning is None or not len(sample.reasoning) or self._check.settled:
            return
        if self.tokenizer is None:
            self._report.assume("no tokenizer to check with: the file's token ids are taken for those of the scorer's vocabulary")
            return
        self._bounded(sample.reasoning)
        said = decode_of(self.tokenizer)(sample.reasoning)
        self._check.agrees(sample.reply, said, f"{sample.episode.trajectory} turn {sample.turn}")

    def context(self, value: TextOrIds) -> Ids | None:
        """Ids of a context, with the start token a tokenizer puts first; None where the text is too long."""
        return self._encoded(value, self._start)

    def reasoning(self, value: TextOrIds) -> Ids | None:
        """Ids of a reasoning; None where the text is too long."""
        return self._encoded(value, [])

    def _encoded(self, value: TextOrIds, start: list[int]) -> Ids | None:
        if not isinstance(value, str):
            return self._bounded(value)
        if self.tokenizer is None:
            raise NotMeasurable("the file holds text, not token ids: give a tokenizer with the scorer")
        if len(value) > MAX_TEXT_CHARS:
            return None
        self._report.assume(
            "texts were tokenised anew, context and reasoning apart: the ids may differ from the sampled ones, mostly at borders"
        )
        ids = [int(token) for token in self.tokenizer.encode(value, add_special_tokens=False)]
        return self._bounded(as_ids(ids if ids[: len(start)] == start else [*start, *ids]))

    def _bounded(self, ids: Ids) -> Ids:
        if len(ids) and self.vocabulary is not None and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocabulary:
            raise TokenMismatch(
                f"the file holds token ids from {int(ids.min())} to {int(ids.max())}, but the scorer's vocabulary has "
                f"{self.vocabulary} tokens. Give the scorer of the model that sampled them."
            )
        return ids

    def _tokens_of_tokenizer(self) -> int | None:
        tokenizer: Any = self.tokenizer
        return len(tokenizer) if hasattr(tokenizer, "__len__") else None

    def _start_ids(self) -> list[int]:
        """The ids a tokenizer puts in front of a text, where it does."""
        start = getattr(self.tokenizer, "bos_token_id", None)
        if self.tokenizer is None or start is None:
            return []
        ids = [int(token) for token in self.tokenizer.encode("a", add_special_tokens=True)]
        return [int(start)] if ids[:1] == [int(start)] else []
