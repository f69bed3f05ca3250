"""How SearchQA's demonstrations talk: what is asked, what the passages say, what to look up. Short, in varied words, and true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ragen2.envs.searchqa_questions import Hop, Question

MAX_PART = 120

_LOOK_UP = {
    "field": (
        "need the {wanted} of {about}. search it.",
        "the question asks {about} for its {wanted}. search.",
        "look up the {wanted} of {about}.",
    ),
    "inverse": (
        "need the country with {about}. search it.",
        "which country has {about} ? search.",
        "look up {about}.",
    ),
    "bridge": (
        "first find the country with {about}. search it.",
        "which country has {about} ? search that first.",
        "the country comes first. look up {about}.",
    ),
    "file": ("need to read about {about}. search it.", "look up {about}.", "search {about} first."),
}
_GO_ON = {
    "bridge": (
        "{before} is of {about}. now its {wanted}.",
        "it is {about} that has {before}. search its {wanted}.",
        "found {about} for {before}. look up the {wanted}.",
    ),
    "file": ("{before} is read. now {about}.", "next search {about}.", "look up {about} too."),
}
_ANSWER = {
    "field": ("the {wanted} of {about} is {answer}.", "{about} has the {wanted} {answer}.", "it says {wanted} {answer}."),
    "inverse": ("{about} is of {answer}.", "{answer} has {about}.", "it is {answer} that has {about}."),
    "file": ("all is read, the answer is {answer}.", "so it is {answer}.", "answer {answer}."),
}
_ANSWER["bridge"] = _ANSWER["field"]
_ASKED = {
    "field": ("{wanted} of {about} ?", "the {wanted} of {about} is asked.", "want {about}, its {wanted}."),
    "inverse": ("who has {about} ?", "the country with {about} is asked.", "want {about}, its country."),
    "bridge": ("who has {about} ?", "first the country with {about}.", "want {about}, its country first."),
    "file": ("about {about} ?", "{about} is asked.", "want {about}."),
}
_TRY_SEARCH = ("maybe search {guess}.", "try {guess}.", "perhaps {guess} helps.")
_TRY_ANSWER = ("maybe it is {guess}.", "guess {guess}.", "perhaps {guess} is right.")


def tell_search(question: Question, place: int, rng: np.random.Generator) -> str:
    """Reasoning before the look-up at `place` of the question's hops."""
    hop = question.hops[place]
    if place == 0:
        return _pick(_LOOK_UP[question.form], rng).format(**_parts(hop))
    return _pick(_GO_ON[question.form], rng).format(before=question.hops[place - 1].about[:MAX_PART], **_parts(hop))


def tell_answer(question: Question, rng: np.random.Generator) -> str:
    """Reasoning before the right answer."""
    answer = question.golds[0][:MAX_PART]
    if not question.hops:
        return _pick(_ANSWER["file"], rng).format(answer=answer)
    return _pick(_ANSWER[question.form], rng).format(answer=answer, **_parts(question.hops[-1]))


def tell_guess(question: Question, guess: str, search: bool, rng: np.random.Generator) -> str:
    """Reasoning before a random query or answer: what is asked, then the guess."""
    tried = _pick(_TRY_SEARCH if search else _TRY_ANSWER, rng).format(guess=guess[:MAX_PART])
    if not question.hops:
        return tried
    return f"{_pick(_ASKED[question.form], rng).format(**_parts(question.hops[0]))} {tried}"


def _parts(hop: Hop) -> dict[str, str]:
    return {"about": hop.about[:MAX_PART], "wanted": hop.wanted[:MAX_PART]}


def _pick(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
