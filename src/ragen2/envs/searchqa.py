"""SearchQA: answer a question by searching passages (RAGEN-2, arXiv 2604.06268, 4.1), over the CIA World Factbook or HotpotQA."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ragen2.envs.answer_match import f1, score_answer
from ragen2.envs.base import Demonstration, Observation, StepResult, TextEnv
from ragen2.envs.factbook_fields import FIELDS
from ragen2.envs.options import number, one_of, whole_number
from ragen2.envs.retriever import MAX_TOPK, Passage, Retriever, ask, open_retriever
from ragen2.envs.retriever_bm25 import Bm25Retriever
from ragen2.envs.searchqa_action import read_action
from ragen2.envs.searchqa_files import read_hotpotqa
from ragen2.envs.searchqa_questions import Hop, Question, QuestionSet, factbook_questions
from ragen2.envs.searchqa_words import tell_answer, tell_guess, tell_search
from ragen2.envs.splits import check_seed, draw_level
from ragen2.errors import ConfigError, EnvironmentFault

CORPORA = ("full", "facts")
MAX_TITLE_CHARS = 120
_WORD_CHARS = 40
"""A passage is shown with at most so many characters for each word it may have."""
_REMOTE_CALLS = 8
_GUESS_ANSWER = 0.25


class SearchQA(TextEnv):
    """Search for passages, then answer. `search[query]` shows the best `topk` passages, `finish[answer]` ends the episode.

    Anything else is illegal, changes nothing and goes on. An answer earns 1 for an exact match with an accepted answer, else F1
    over words where it is at least 0.3, else 0 (see `answer_match`). Success is an exact match. An episode ends without success
    after `max_steps` actions.

    Questions are generated from the factbook: of `hops` 1 or 2 (0: both), about `countries` countries (0: all) and the `fields`
    named in `factbook_fields.FIELDS` (none: all). `corpus` "full" searches the whole factbook, "facts" one short passage a fact.
    Or questions are read from `hotpot_file`, whose contexts are the corpus. `retriever` is the address of a retrieval server or
    a "package.module:Name"; None searches by BM25 in this process. A passage is shown with at most `passage_words` words.
    Raises ConfigError for a value that cannot be used, MissingDependency without bm25s or the factbook.
    """

    multi_action = False

    def __init__(
        self,
        split: str = "train",
        hops: int = 0,
        countries: int = 0,
        fields: Sequence[str] = (),
        corpus: str = "full",
        topk: int = 3,
        passage_words: int = 60,
        max_steps: int = 10,
        hotpot_file: str | Path | None = None,
        retriever: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        super().__init__(split)
        self.topk = whole_number("searchqa topk", topk, 1, MAX_TOPK)
        self.passage_words = whole_number("searchqa passage_words", passage_words, 1, 1000)
        self.max_steps = whole_number("searchqa max_steps", max_steps, 1, 10_000)
        timeout = number("searchqa timeout_s", timeout_s, 0.01, 3600)
        if hotpot_file is None:
            whole_number("searchqa hops", hops, 0, 2)
            whole_number("searchqa countries", countries, 0, 10_000)
            one_of("searchqa corpus", corpus, CORPORA)
            self._set = factbook_questions(corpus, countries, _known_fields(fields), hops)
        else:
            if (hops, countries, tuple(fields), corpus) != (0, 0, (), "full"):
                raise ConfigError(
                    "searchqa: hops, countries, fields and corpus shape generated questions; leave them out with hotpot_file"
                )
            self._set = read_hotpotqa(str(hotpot_file)).questions
        if retriever is None:
            self._retriever: Retriever = _shared_index(self._set)
        else:
            self._retriever = open_retriever(retriever, timeout)
            self.concurrency = _REMOTE_CALLS
        self._forms = sorted(self._set.questions)
        self._question: Question | None = None
        self._shown: list[Passage] | None = None
        self._seen: list[Passage] = []
        self._asked: list[str] = []
        self._steps = 0
        self._last: StepResult | None = None

    @property
    def questions(self) -> QuestionSet:
        """All questions and passages: read-only, shared with other environments of the same options."""
        return self._set

    @property
    def instructions(self) -> str:
        return "\n".join(
            [
                "Answer the question from passages that you search.",
                f"Actions: search[words] shows {self.topk} passages, finish[answer] gives the answer in a few words and ends.",
                "Reward 1 for the right answer, less for a part of it.",
            ]
        )

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        check_seed("noise_seed", noise_seed)
        self._question = draw_level(level_seed, self.split, self._draw, lambda question: question.content, attempts=1000)
        self._shown, self._seen, self._asked, self._steps, self._last = None, [], [], 0, None
        return Observation(self._text())

    def step(self, action: str) -> StepResult:
        """Do one action. Raises EnvironmentFault where the retriever fails: the episode is invalid then."""
        question = self._current()
        if self._last is not None:
            return self._last.again()
        verb, argument = read_action(action)
        if verb == "search":
            found = ask(self._retriever, argument, self.topk)
            self._shown = [self._clipped(passage) for passage in found]
            self._seen += self._shown
            self._asked.append(argument)
        self._steps += 1
        if verb == "finish":
            return self._finished(question, argument)
        truncated = self._steps >= self.max_steps
        info = {"legal": verb == "search", **({"success": False, "searches": len(self._asked)} if truncated else {})}
        result = StepResult(Observation(self._text()), 0.0, False, truncated, info)
        self._last = result if truncated else None
        return result

    def content(self) -> str:
        return self._current().content

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        """The next look-up or the answer, or (with chance 1 - expertise) a random query or answer. One action.

        Raises EnvironmentFault after the end.
        """
        question = self._current()
        if self._last is not None:
            raise EnvironmentFault("searchqa: no demonstration after the end of an episode; reset first")
        whole_number("max_actions", max_actions, 1, 1000)
        if rng.random() >= expertise:
            return self._guess(question, rng)
        for place, hop in enumerate(question.hops):
            if not self.looked_up(hop) and hop.query not in self._asked:
                return Demonstration(tell_search(question, place, rng), (f"search[{hop.query}]",))
        return Demonstration(tell_answer(question, rng), (f"finish[{question.golds[0]}]",))

    def looked_up(self, hop: Hop) -> bool:
        """Whether a passage that was shown in this episode says what the hop looks for."""
        return any(
            (passage.title == hop.title or passage.title.startswith(f"{hop.title} (")) and hop.value in passage.text
            for passage in self._seen
        )

    def _draw(self, rng: np.random.Generator) -> Question:
        """Forms are drawn evenly: there are many more questions of two hops than of one."""
        questions = self._set.questions[self._forms[int(rng.integers(len(self._forms)))]]
        return questions[int(rng.integers(len(questions)))]

    def _guess(self, question: Question, rng: np.random.Generator) -> Demonstration:
        titles = self._seen or self._set.passages
        passage = titles[int(rng.integers(len(titles)))]
        if self._seen and rng.random() < _GUESS_ANSWER:
            guess = _plain(" ".join(passage.text.split()[:4]) or passage.title)
            return Demonstration(tell_guess(question, guess, False, rng), (f"finish[{guess}]",))
        other = self._set.passages[int(rng.integers(len(self._set.passages)))]
        guess = _plain(f"{passage.title.partition(':')[0]} {other.title.rpartition(': ')[2].lower()}"[:MAX_TITLE_CHARS])
        return Demonstration(tell_guess(question, guess, True, rng), (f"search[{guess}]",))

    def _finished(self, question: Question, answer: str) -> StepResult:
        reward, exact = score_answer(answer, question.golds)
        info = {
            "legal": True,
            "success": exact,
            "f1": max(f1(answer, gold) for gold in question.golds),
            "searches": len(self._asked),
            "looked_up": sum(self.looked_up(hop) for hop in question.hops),
            "form": question.form,
        }
        self._last = StepResult(Observation(f"{self._text()}\n{'right' if exact else 'wrong'}"), reward, True, False, info)
        return self._last

    def _clipped(self, passage: Passage) -> Passage:
        text = " ".join(passage.text[: self.passage_words * _WORD_CHARS].split()[: self.passage_words])
        title = " ".join(passage.title[:MAX_TITLE_CHARS].split())
        return Passage(*(part.encode("utf-8", "ignore").decode() for part in (title, text)))

    def _text(self) -> str:
        lines = [f"question: {self._current().text}"]
        if self._shown is not None:
            lines += [f"{place}. {passage.title} | {passage.text}" for place, passage in enumerate(self._shown, start=1)]
            lines += [] if self._shown else ["nothing found"]
        return "\n".join(lines)

    def _current(self) -> Question:
        if self._question is None:
            raise EnvironmentFault("searchqa has no level yet; call reset(level_seed, noise_seed) first")
        return self._question


_building = threading.Lock()


@functools.lru_cache(maxsize=4)
def _index_of(passages: tuple[Passage, ...]) -> Bm25Retriever:
    return Bm25Retriever(passages)


def _shared_index(questions: QuestionSet) -> Bm25Retriever:
    """The index of these passages, built once a process, by the first thread that needs it."""
    with _building:
        return _index_of(questions.passages)


def _known_fields(fields: Sequence[str]) -> tuple[str, ...]:
    """The fields in their fixed order; all where none is named. Raises UnknownName, which names the nearest."""
    chosen = {one_of("searchqa field", field, FIELDS) for field in ([fields] if isinstance(fields, str) else fields)}
    return tuple(key for key in FIELDS if key in chosen or not chosen)


def _plain(text: str) -> str:
    """Text that can stand in brackets."""
    return text.replace("[", "(").replace("]", ")")
