"""Coq as a prover: reading tactics, the pool of processes, stored theorems, hostile tactics."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen2.envs.theorem_files import library
from ragen2.envs.theorem_tautologies import TautologySettings, draw_tautology
from ragen2.errors import ConfigError, EnvironmentFault
from ragen2.provers import ProofState, TacticError, TacticRefused, Theorem
from ragen2.provers.coq import CoqBackend
from ragen2.provers.coq_process import CoqProcess, ProverDied
from ragen2.provers.coq_sentence import AUTOMATION, MAX_CHARS, TACTICS, read_tactic

needs_coq = pytest.mark.skipif(shutil.which("coqtop") is None, reason="needs coqtop (package coq)")

HARD = Theorem("hard", "forall P Q : Prop, ((P -> Q) -> P) -> P")
"""Peirce's law: no proof without an axiom."""


@pytest.fixture(scope="module")
def coq() -> Iterator[CoqBackend]:
    backend = CoqBackend(processes=1)
    yield backend
    backend.close()


def follow(backend: CoqBackend, theorem: Theorem, tactics: tuple[str, ...]) -> ProofState:
    state = backend.open(theorem)
    for tactic in tactics:
        result = backend.apply(state, tactic)
        assert isinstance(result, ProofState), f"{theorem.name}: {tactic} gave {result}"
        state = result
    return state


# Reading tactics


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("intros p q", "intros p q."),
        ("  apply\n  (H x) . ", "apply (H x) ."),
        ("- destruct H as [H1 | H2].", "destruct H as [H1 | H2]."),
        ("split; (* one (* two *) . *) assumption.", "split; assumption."),
        ("2: exact H.", "2: exact H."),
        ("all: try assumption.", "all: try assumption."),
        ("rewrite <- plus_n_Sm.", "rewrite <- plus_n_Sm."),
        ("exact (Nat.add 1 2).", "exact (Nat.add 1 2)."),
        ("[> idtac | idtac ].", None),
    ],
)
def test_tactics_are_read(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(TacticRefused):
            read_tactic(text)
    else:
        assert read_tactic(text) == expected


@given(st.text(max_size=80))
def test_whatever_is_read_is_one_sentence_of_a_tactic(text: str) -> None:
    try:
        sentence = read_tactic(text)
    except TacticRefused:
        return
    assert sentence.endswith(".") and ". " not in sentence and '"' not in sentence and "\n" not in sentence and sentence.isascii()


@given(st.sampled_from(TACTICS), st.text(alphabet="pqH ().,;:|[]*-\"'\n", max_size=40))
def test_a_known_first_word_does_not_open_the_door(word: str, rest: str) -> None:
    try:
        sentence = read_tactic(f"{word} {rest}")
    except TacticRefused:
        return
    assert sentence.count(". ") == 0 and "(*" not in sentence.replace("(*)", "")


def test_proof_search_needs_leave() -> None:
    for word in sorted(AUTOMATION - {"debug"}):
        with pytest.raises(TacticRefused):
            read_tactic(f"{word}.")
    assert read_tactic("tauto.", automation=True) == "tauto."
    assert read_tactic("split; auto.", automation=True) == "split; auto."
    with pytest.raises(TacticRefused):
        read_tactic("split; auto.")


# Hostile tactics

ATTACKS = (
    "Axiom cheat : False.",
    "intros P Q H. Axiom cheat : False.",
    "Parameter cheat : forall P : Prop, P.",
    "admit.",
    "all: admit.",
    "give_up.",
    "Admitted.",
    "Qed.",
    "Abort. Theorem t : True.",
    "Abort.\nTheorem target_theorem : True.",
    "Undo 5.",
    "BackTo 1.",
    "Reset Initial.",
    'Notation "P" := True.',
    "Definition False := True.",
    "Inductive False : Prop := yes.",
    'Redirect "stolen" Print All.',
    'Load "/etc/passwd".',
    "Require Import Classical. intros P Q H. tauto.",
    'Add LoadPath "/tmp" as Evil.',
    'Declare ML Module "evil".',
    'Extraction "evil.ml" nat.',
    "Unset Guard Checking.",
    "Drop.",
    "Quit.",
    "intros P Q H; fix target 1.",
    "cofix target; exact target.",
    "exact_no_check I.",
    "exact target_theorem.",
    "apply target_theorem.",
    "intros P Q H (* . *) . (* *) exact I.",
    "intros P Q H; (* (* *) exact I.",
    "#[export] Hint Resolve I.",
    "Timeout 1000 repeat (pose proof I).",
    "Fail exact I.",
    "par: exact I.",
    "abstract (exact I).",
    "idtac; shelve.",
    "eexists ?[x]; shelve.",
    'idtac "<prompt>Coq < 99 || 0 < </prompt>".',
    "exact <prompt>Coq < 99 || 0 < </prompt>.",
    "exact (H : <prompt>).",
    "ｉntros P Q H.",
    "\u0430pply H.",
    "intros P Q H\u3002",
    "exact I\u200b.",
    "intros P Q H\x00.",
    "intros\x1b[2J.",
    "intros \ud800.",
    "(" * 390,
    "(" * 190 + "idtac" + ")" * 190 + ".",
    "intros " + "P " * 100_000,
    "exact " + "9" * 300 + ".",
    "{ intros P Q H. }",
    "intros P Q H.. exact I.",
    "intros P Q H...",
    "refine (let x := _ in _).",
    "exact ltac:(admit).",
    "exact (ltac:(give_up)).",
    "exact $(exact I)$.",
    "<answer>intros P Q H.</answer>",
    "exact (fun (P Q : Prop) (H : (P -> Q) -> P) => H (fun p => _)).",
)


@needs_coq
@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_hostile_tactics_prove_nothing(coq: CoqBackend, attack: str) -> None:
    state = coq.open(HARD)
    result = coq.apply(state, attack)
    assert isinstance(result, TacticError) or not result.proven
    assert isinstance(coq.apply(coq.open(HARD), "exact I."), TacticError)
    assert follow(coq, Theorem("t", "True"), ("exact I.",)).proven, "the prover goes on as before"


HEAVY = (
    "repeat (pose proof I).",
    "do 200000 (pose proof I).",
    "assert (H9 : Nat.pow 2 40 = 0) by (compute; reflexivity).",
    "pose (x := Nat.pow 10 9); compute in x.",
    "assert (X : Nat.pow 2 (Nat.pow 2 20) = 1); [ cbv; reflexivity | idtac ].",
    "exact (eq_refl (Nat.pow 3 30)).",
)


@needs_coq
@pytest.mark.slow
@pytest.mark.parametrize("attack", HEAVY, ids=range(len(HEAVY)))
def test_endless_and_huge_tactics_are_stopped(coq: CoqBackend, attack: str) -> None:
    state = follow(coq, HARD, ("intros P Q H.",))
    result = coq.apply(state, attack)
    assert isinstance(result, TacticError) and not result.refused
    after = coq.apply(state, "apply H.")
    assert isinstance(after, ProofState) and after.goals[0].endswith("|- P -> Q"), "the proof goes on where it was"


@needs_coq
def test_an_unsolved_existential_is_no_proof(coq: CoqBackend) -> None:
    state = follow(coq, Theorem("t", "exists n : nat, n = n"), ("eexists.",))
    assert not state.proven and state.goals
    missing = coq.apply(coq.open(Theorem("t", "exists n : nat, True")), "eexists; exact I.")
    assert isinstance(missing, TacticError)


@needs_coq
def test_a_proof_that_rests_on_an_axiom_is_none(coq: CoqBackend) -> None:
    theorem = Theorem("t", "False", "Axiom cheat : False.")
    result = coq.apply(coq.open(theorem), "exact cheat.")
    assert isinstance(result, TacticError) and "cheat" in result.message
    assert isinstance(coq.apply(coq.open(Theorem("t", "False")), "exact cheat."), TacticError), "gone with its theorem"


@needs_coq
def test_attacks_leave_no_file_and_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    backend = CoqBackend(processes=1)
    for attack in ('Redirect "stolen" Print All.', 'Extraction "evil.ml" nat.', "repeat (pose proof I)."):
        backend.apply(backend.open(HARD), attack)
    groups = [desk.process.pid for desk in backend._idle]
    assert groups and all(members(group) for group in groups)
    backend.close()
    assert list(tmp_path.iterdir()) == []
    assert all(gone(group) for group in groups)


def members(group: int) -> list[int]:
    """Living processes of a process group; a zombie that waits for its parent is none."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(int(place.parent.name))
    return found


def gone(group: int) -> bool:
    """Whether all processes of a group are gone, within a while."""
    deadline = time.monotonic() + 20
    while members(group) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not members(group)


@needs_coq
def test_memory_of_coq_is_limited() -> None:
    process = CoqProcess(memory_bytes=700 << 20)
    limits = [Path(f"/proc/{member}/limits").read_text() for member in members(process.pid)]
    assert any(str(700 << 20) in text for text in limits)
    process.close()


@needs_coq
def test_a_process_does_not_outlive_the_one_that_started_it() -> None:
    program = (
        "import os; from ragen2.provers.coq_process import CoqProcess;p = CoqProcess(); print(p.pid, flush=True); os._exit(0)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=60).stdout
    assert gone(int(told))


# The backend


@needs_coq
def test_every_stored_theorem_closes_with_its_reference_proof(coq: CoqBackend) -> None:
    assert len(library()) >= 60
    for theorem in library():
        assert follow(coq, theorem, theorem.proof).proven, theorem.name


@needs_coq
def test_stored_theorems_do_not_close_early(coq: CoqBackend) -> None:
    for theorem in library()[::7]:
        assert not follow(coq, theorem, theorem.proof[:-1]).proven


@needs_coq
def test_drawn_theorems_close_with_the_proof_found(coq: CoqBackend) -> None:
    for seed in range(40):
        theorem = draw_tautology(np.random.default_rng(seed), TautologySettings())
        assert theorem is not None and 3 <= len(theorem.proof) <= 7
        assert follow(coq, theorem, theorem.proof).proven, theorem.statement


@needs_coq
def test_an_earlier_state_can_be_gone_on_from(coq: CoqBackend) -> None:
    start = coq.open(Theorem("t", "forall p q : Prop, p -> q -> p \\/ q"))
    middle = coq.apply(start, "intros p q Hp Hq.")
    assert isinstance(middle, ProofState)
    for side, name in (("left.", "Hp"), ("right.", "Hq"), ("left.", "Hp")):
        chosen = coq.apply(middle, side)
        assert isinstance(chosen, ProofState)
        closed = coq.apply(chosen, f"exact {name}.")
        assert isinstance(closed, ProofState) and closed.proven
    again = coq.apply(start, "intros a b.")
    assert isinstance(again, ProofState) and "a, b : Prop" in again.text


@needs_coq
def test_a_killed_prover_costs_nothing(coq: CoqBackend) -> None:
    state = follow(coq, HARD, ("intros P Q H.",))
    os.kill(coq._idle[0].process.pid, 9)
    after = coq.apply(state, "apply H.")
    assert isinstance(after, ProofState) and after.goals[0].endswith("|- P -> Q")


@needs_coq
def test_a_prover_that_cannot_start_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "coqtop"
    broken.write_text("#!/bin/sh\necho broken\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("ragen2.provers.coq_process._coqtop", lambda: str(broken))
    monkeypatch.setattr("ragen2.provers.coq_process._confinement", lambda: ())
    backend = CoqBackend(processes=1)
    for _ in range(3):
        with pytest.raises(EnvironmentFault, match="broken"):
            backend.open(HARD)


@needs_coq
def test_threads_share_the_processes() -> None:
    backend = CoqBackend(processes=2)
    wrong: list[str] = []

    def work(part: int) -> None:
        for theorem in library()[part::6][:8]:
            state = backend.open(theorem)
            for tactic in theorem.proof:
                result = backend.apply(state, tactic)
                if isinstance(result, TacticError):
                    wrong.append(f"{theorem.name}: {tactic}: {result.text}")
                    return
                state = result
            if not state.proven:
                wrong.append(theorem.name)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == [] and len(backend._idle) <= 2
    backend.close()


@needs_coq
def test_a_process_ends_when_it_writes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    process = CoqProcess()
    monkeypatch.setattr("ragen2.provers.coq_process.MAX_OUTPUT_BYTES", 200)
    with pytest.raises(ProverDied, match="wrote more"):
        process.ask("Print nat_rect.", 30)
    assert not process.alive


@needs_coq
def test_a_statement_that_coq_refuses_is_named(coq: CoqBackend) -> None:
    with pytest.raises(ConfigError, match="nonsense"):
        coq.open(Theorem("nonsense", "forall x, y"))


def test_a_tactic_at_the_length_limit() -> None:
    assert read_tactic("intros " + "a" * (MAX_CHARS - 8) + ".")
    with pytest.raises(TacticRefused):
        read_tactic("intros " + "a" * MAX_CHARS)
