"""Theorem proving: formulas and the search for proofs, problems, rewards, demonstrations."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ragen2
from ragen2.envs import check_env
from ragen2.envs.splits import SPLITS, split_of
from ragen2.envs.theorem import TheoremProving, content_of
from ragen2.envs.theorem_files import theorems_of_file
from ragen2.envs.theorem_formula import FALSE, Formula, NotPropositional, read_formula, read_goal
from ragen2.envs.theorem_search import prove
from ragen2.errors import ConfigError, MissingProgram, UnknownName
from ragen2.provers import Theorem, make_prover

needs_coq = pytest.mark.skipif(shutil.which("coqtop") is None, reason="needs coqtop (package coq)")

# Formulas and goals

FORMULAS = st.recursive(
    st.sampled_from("pqrs").map(Formula) | st.just(FALSE),
    lambda inner: (
        st.builds(lambda a: Formula("~", (a,)), inner)
        | st.builds(lambda kind, a, b: Formula(kind, (a, b)), st.sampled_from(("->", "/\\", "\\/", "<->")), inner, inner)
    ),
    max_leaves=12,
)


@given(FORMULAS)
def test_a_printed_formula_reads_as_itself(formula: Formula) -> None:
    assert read_formula(str(formula)) == formula


@given(st.text(alphabet="pq ()~/\\<->∧", max_size=40) | st.text(max_size=40))
def test_reading_a_formula_never_fails_in_another_way(text: str) -> None:
    with contextlib.suppress(NotPropositional):
        assert read_formula(str(read_formula(text))) == read_formula(text)


def test_a_deep_formula_is_refused() -> None:
    with pytest.raises(NotPropositional):
        read_formula("(" * 900 + "p" + ")" * 900)
    with pytest.raises(NotPropositional):
        read_formula("~" * 1500 + "p")


def test_a_goal_is_read_with_grouped_and_wrapped_hypotheses() -> None:
    goal = read_goal("p, q : Prop\nH, H0 : p ->\nq\n|- q /\\\np")
    assert goal.hypotheses == (("H", read_formula("p -> q")), ("H0", read_formula("p -> q")))
    assert goal.conclusion == read_formula("q /\\ p") and goal.atoms == ("p", "q")


@pytest.mark.parametrize("text", ["n : nat\n|- n = n", "|- forall n : nat, n = n", "no goal left", "p : Prop\n|- q", "|- "])
def test_other_goals_are_not_propositional(text: str) -> None:
    with pytest.raises(NotPropositional):
        read_goal(text)


def holds(formula: Formula, values: dict[str, bool]) -> bool:
    """Truth of a formula, by the truth tables: shares nothing with the search."""
    if not formula.parts:
        return {"True": True, "False": False, **values}[formula.kind]
    first = holds(formula.parts[0], values)
    if formula.kind == "~":
        return not first
    second = holds(formula.parts[1], values)
    return {"->": not first or second, "/\\": first and second, "\\/": first or second, "<->": first == second}[formula.kind]


@given(FORMULAS)
@settings(max_examples=200)
def test_only_tautologies_are_proven(formula: Formula) -> None:
    atoms = tuple(dict.fromkeys(formula.atoms()))
    if prove(read_goal(f"{', '.join(atoms) or 'p'} : Prop\n|- {formula}"), budget=60) is not None:
        for bits in range(2 ** len(atoms)):
            assert holds(formula, {atom: bool(bits >> place & 1) for place, atom in enumerate(atoms)})


def test_what_is_classical_only_is_not_proven() -> None:
    for text in ("((p -> q) -> p) -> p", "p \\/ ~ p", "~ ~ p -> p", "(p -> q) \\/ (q -> p)"):
        assert prove(read_goal(f"p, q : Prop\n|- {text}")) is None
    assert prove(read_goal("p : Prop\n|- ~ ~ (p \\/ ~ p)")) is not None


# The environment


@needs_coq
@pytest.mark.parametrize("options", [{}, {"problems": "library"}, {"problems": "both", "error_penalty": 0.1}])
def test_the_contract_holds(options: dict[str, Any]) -> None:
    report = check_env(ragen2.make("theorem", **options), seeds=range(6))
    assert report.ok, str(report)


@needs_coq
@pytest.mark.parametrize("problems", ["tautology", "library"])
def test_demonstrations_of_an_expert_succeed(problems: str) -> None:
    env = ragen2.make("theorem", problems=problems)
    for seed in range(25):
        env.reset(seed, 0)
        rng = np.random.default_rng(seed)
        result = env.step(env.demonstrate(rng, 1.0, 1).actions[0])
        while not result.done:
            result = env.step(env.demonstrate(rng, 1.0, 1).actions[0])
        assert result.info["success"] and result.reward == 1.0 and result.observation.text == "proven"


@needs_coq
def test_an_expert_goes_on_from_random_tactics() -> None:
    env = TheoremProving(max_steps=40)
    solved = 0
    for seed in range(20):
        env.reset(seed, 0)
        rng = np.random.default_rng(seed)
        result = env.step(env.demonstrate(rng, 0.0, 1).actions[0])
        while not result.done:
            result = env.step(env.demonstrate(rng, 0.0 if env._steps < 2 else 1.0, 1).actions[0])
            assert result.info["legal"]
        solved += result.info["success"]
    assert solved >= 12


@needs_coq
def test_rejected_tactics_cost_and_end_at_the_limit() -> None:
    env = ragen2.make("theorem", max_steps=3, error_penalty=0.25)
    first = env.reset(0, 0).text
    results = [env.step("exact I.") for _ in range(3)]
    assert [result.reward for result in results] == [-0.25] * 3
    assert first in results[0].observation.text and "rejected" in results[0].observation.text
    assert results[-1].truncated and results[-1].info == {"legal": False, "success": False}
    assert env.step("exact I.").reward == 0.0


@needs_coq
def test_splits_share_no_theorem() -> None:
    found: dict[str, set[str]] = {}
    for split in SPLITS:
        env = ragen2.make("theorem", split=split, problems="both")
        found[split] = set()
        for seed in range(40):
            env.reset(seed, 0)
            found[split].add(env.content())
        assert all(split_of(content) == split for content in found[split])
    assert not found["train"] & found["validation"] and not found["train"] & found["test"]


def test_names_of_propositions_do_not_make_another_theorem() -> None:
    one = content_of(Theorem("a", "forall p q : Prop, p /\\ q -> q"))
    assert one == content_of(Theorem("b", "forall s  a : Prop, s /\\ a -> a"))
    assert one != content_of(Theorem("c", "forall p q : Prop, p /\\ q -> p"))


@needs_coq
def test_prompts_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "import ragen2; e = ragen2.make('theorem', problems='both');"
        "print([e.reset(s, 0).text for s in range(6)]);"
        "import numpy as np; print(e.demonstrate(np.random.default_rng(1), .5, 1))"
    )
    outputs = set()
    for hash_seed in ("0", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        outputs.add(subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout)
    assert len(outputs) == 1 and outputs != {b""}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"problems": "hard"}, UnknownName),
        ({"prover": "isabelle"}, UnknownName),
        ({"problems": "file"}, ConfigError),
        ({"prover": "kimina"}, ConfigError),
        ({"automation": "yes"}, ConfigError),
        ({"max_steps": 0}, ConfigError),
        ({"shortest": 5, "longest": 3}, ConfigError),
        ({"error_penalty": float("nan")}, ConfigError),
        ({"problems": "file", "path": "absent.jsonl"}, ConfigError),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ragen2.make("theorem", **options)


def test_without_coqtop_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    make_prover.cache_clear()
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingProgram, match="apt-get install coq"):
        ragen2.make("theorem")


@needs_coq
def test_theorems_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(
        "".join(f'{{"name": "n{n}", "statement": "{n} + 1 = {n + 1}", "proof": ["reflexivity."]}}\n' for n in range(40))
    )
    env = ragen2.make("theorem", problems="file", path=str(file))
    env.reset(3, 0)
    assert env.step("reflexivity").info["success"]


@pytest.mark.parametrize(
    "text",
    ["", "not json\n", "[1]\n", '{"name": "a"}\n', '{"name": "a", "statement": 3}\n', '{"statement": "True", "proof": 5}\n'],
)
def test_files_that_are_no_theorems_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError):
        theorems_of_file(str(file))
