"""Lean provers: reading tactics, files, verdicts, the Kimina client against a local server, lean-interact against a stand-in."""

from __future__ import annotations

import json
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragen2
from ragen2.envs import check_env
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency
from ragen2.provers import ProofState, TacticError, TacticRefused, Theorem, make_prover
from ragen2.provers.kimina import KiminaChecker
from ragen2.provers.lean import LeanBackend, LeanMessage, lean_file, read_verdict
from ragen2.provers.lean_interact import LeanInteractChecker
from ragen2.provers.lean_tactic import MAX_CHARS, read_lean_tactic

WHOLE = Theorem("mini", "theorem mini (p q : Prop) (h : p ∧ q) : q := by sorry", "import Mathlib\nopen Nat")


def toy_lean(code: str) -> list[dict[str, Any]]:
    """Messages as Lean would send them for a file about `p ∧ q`: knows `exact h.2`, `skip`, `use_axiom` and `nap`."""
    lines = code.split("\n")
    start = next(number for number, line in enumerate(lines, 1) if line.rstrip().endswith(":= by"))
    asked = next(number for number, line in enumerate(lines, 1) if line.startswith("#print axioms"))
    name = lines[asked - 1].split()[-1]
    messages: list[dict[str, Any]] = []
    done, axioms = False, "does not depend on any axioms"
    for number, line in enumerate(lines[start : asked - 2], start + 1):
        tactic = line.strip()
        if tactic in ("exact h.2", "use_axiom"):
            done = True
            axioms = "depends on axioms: [propext,\n cheat]" if tactic == "use_axiom" else "depends on axioms: [propext]"
        elif tactic not in ("skip", "constructor", ""):
            messages.append({"severity": "error", "pos": {"line": number, "column": 2}, "data": f"unknown tactic {tactic[:20]}"})
    if not done and not messages:
        data = "unsolved goals\np q : Prop\nh : p ∧ q\n⊢ q"
        messages.append({"severity": "error", "pos": {"line": start, "column": 40}, "data": data})
    info = f"'{name}' {axioms if done else 'depends on axioms: [sorryAx]'}"
    return [*messages, {"severity": "info", "pos": {"line": asked, "column": 0}, "data": info}]


@dataclass
class Server:
    """A local server: `answers` overrides what it says, `seen` is what it was asked."""

    url: str = ""
    seen: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    answer: Callable[[str], tuple[int, bytes]] | None = None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("ragen2.provers.kimina.RETRY_SECONDS", 0.01)
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.seen.append((self.path, self.headers.get("Authorization", ""), body))
            code = body["snippets"][0]["code"]
            status, data = state.answer(code) if state.answer else (200, reply(toy_lean(code)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    yield state
    http.shutdown()
    http.server_close()


def reply(messages: list[dict[str, Any]]) -> bytes:
    return json.dumps({"results": [{"id": "0", "error": None, "response": {"messages": messages, "env": 0}}]}).encode()


LEAN_ATTACKS = (
    "sorry",
    "exact sorry",
    "admit",
    "stop",
    "native_decide",
    "decide +native",
    "exact sorryAx _ false",
    "exact Lean.ofReduceBool _ _ rfl",
    "skip\naxiom cheat : False",
    "skip\r  axiom cheat : False",
    "skip\u2028axiom cheat : False",
    "skip axiom cheat : False",
    "exact cheat.elim where axiom cheat : False",
    "run_tac Lean.Elab.Tactic.closeMainGoal",
    "exact by_elab return default",
    "set_option debug.skipKernelTC true in rfl",
    "open Classical in exact choice h",
    "exact h.2 end theorem mini : True := trivial",
    'macro "x" : tactic => `(tactic| trivial)',
    'notation (name := x) "q" => True',
    "exact h.2 #print axioms mini",
    "exact h.2 -- ",
    "exact h.2 /- ",
    "exact h.2 -/",
    'exact ("a" : String)',
    "local instance : Inhabited q := ⟨h.2⟩",
    "@[simp] exact h.2",
    "exact «sorry»",
    "ｓｏｒｒｙ",
    "\U0001d42c\U0001d428\U0001d42b\U0001d42b\U0001d432",
    "exact h.2\u200b",
    "exact h.2\x00",
    "\u202eexact h.2",
    "exact \ud800",
    "attribute [simp] h",
    "unsafe exact h.2",
    'include_str "/etc/passwd"',
    "simp " + "a" * MAX_CHARS,
    "exact h.2 " * 100_000,
    "",
    "   \n ",
)


@pytest.mark.parametrize("attack", LEAN_ATTACKS, ids=range(len(LEAN_ATTACKS)))
def test_hostile_tactics_never_reach_lean(attack: str) -> None:
    class Never:
        name, concurrency = "never", 1

        def check(self, code: str) -> list[LeanMessage] | TacticError:
            raise AssertionError(f"Lean was asked: {code}")

        def close(self) -> None:
            """Nothing is open."""

    result = LeanBackend(Never()).apply(ProofState(WHOLE, (), ("⊢ q",)), attack)
    assert isinstance(result, TacticError) and result.refused


@pytest.mark.parametrize(
    "tactic",
    ["exact h.2", "rcases h with ⟨hp, hq⟩", "nlinarith [sq_nonneg (a - b)]", "· simp", "rw [h₁] at h₂; ring", "intro h'"],
)
def test_ordinary_tactics_are_read(tactic: str) -> None:
    assert read_lean_tactic(f" {tactic}\n") == tactic


@given(st.text(max_size=60))
def test_whatever_is_read_is_one_line(text: str) -> None:
    try:
        tactic = read_lean_tactic(text)
    except TacticRefused:
        return
    assert len(tactic.splitlines()) == 1 and "sorry" not in tactic.split()


@pytest.mark.parametrize(
    "statement",
    [
        "theorem mini (p : Prop) (h : p) : p := by sorry",
        "theorem mini (p : Prop) (h : p) : p := by\n  sorry",
        "theorem mini (p : Prop) (h : p) : p := sorry",
        "theorem mini (p : Prop) (h : p) : p := by",
        "theorem mini (p : Prop) (h : p) : p :=",
        "theorem mini (p : Prop) (h : p) : p",
    ],
)
def test_the_file_is_the_same_for_every_way_to_write_a_statement(statement: str) -> None:
    file = lean_file(Theorem("mini", statement, "import Mathlib"), ("exact h",))
    assert file.code == ("import Mathlib\n\ntheorem mini (p : Prop) (h : p) : p := by\n  skip\n  exact h\n\n#print axioms mini\n")
    assert file.name == "mini" and file.code.split("\n")[file.asked - 1] == "#print axioms mini" and file.statement_lines == 3


def test_a_bare_proposition_gets_a_name() -> None:
    assert lean_file(Theorem("x", "1 + 1 = 2"), ()).code == (
        "theorem target_theorem : 1 + 1 = 2 := by\n  skip\n\n#print axioms target_theorem\n"
    )


AXIOMS_SAID = [
    ("'mini' does not depend on any axioms", True),
    ("'mini' depends on axioms: [propext]", True),
    ("'mini' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]", True),
    ("'Space.mini' depends on axioms: [propext]", True),
    ("'mini' depends on axioms: [propext, sorryAx]", False),
    ("'mini' depends on axioms: [Lean.ofReduceBool]", False),
    ("'mini' depends on axioms: [Lean.trustCompiler]", False),
    ("'mini' depends on axioms: [cheat]", False),
    ("'mini' depends on axioms: []", False),
    ("'other' does not depend on any axioms", False),
    ("'xmini' does not depend on any axioms", False),
    ("mini does not depend on any axioms", False),
    ("'mini' does not depend on any axioms, really", False),
    ("'mini' depends on axioms: [propext] 'mini' does not depend on any axioms", False),
    ("", False),
]


@pytest.mark.parametrize(("said", "proven"), AXIOMS_SAID)
def test_the_printed_axioms_of_the_theorem_decide(said: str, proven: bool) -> None:
    file = lean_file(WHOLE, ("exact h.2",))
    result = read_verdict(WHOLE, ("exact h.2",), file, [LeanMessage("info", file.asked, said)])
    assert isinstance(result, ProofState) == proven


def test_axioms_printed_elsewhere_or_twice_count_for_nothing() -> None:
    file = lean_file(WHOLE, ("exact h.2",))
    good = "'mini' does not depend on any axioms"
    for messages in (
        [],
        [LeanMessage("info", file.asked - 1, good)],
        [LeanMessage("warning", file.asked, good)],
        [LeanMessage("info", file.asked, good)] * 2,
        [LeanMessage("warning", 4, "declaration uses 'sorry'"), LeanMessage("info", file.asked, good)],
        [LeanMessage("error", 5, "unsolved goals\n⊢ p"), LeanMessage("info", file.asked, good)],
        [LeanMessage("error", file.asked, "unknown constant 'mini'")],
    ):
        assert isinstance(read_verdict(WHOLE, (), file, messages), TacticError)


# Kimina


def test_kimina_proves_step_by_step(server: Server) -> None:
    backend = LeanBackend(KiminaChecker(server.url, key="secret"))
    state = backend.open(WHOLE)
    assert state.goals == ("p q : Prop\nh : p ∧ q\n⊢ q",) and not state.proven
    assert isinstance(backend.apply(state, "nonsense"), TacticError)
    middle = backend.apply(state, "constructor")
    assert isinstance(middle, ProofState) and middle.goals
    end = backend.apply(middle, "exact h.2")
    assert isinstance(end, ProofState) and end.proven and end.tactics == ("constructor", "exact h.2")
    assert isinstance(backend.apply(end, "skip"), TacticError)
    cheat = backend.apply(state, "use_axiom")
    assert isinstance(cheat, TacticError) and "cheat" in cheat.message
    path, key, body = server.seen[0]
    assert path == "/api/check" and key == "Bearer secret" and body["timeout"] == 60


def test_a_time_out_is_the_tactics_fault_and_a_crash_the_servers(server: Server) -> None:
    backend = LeanBackend(KiminaChecker(server.url))
    state = backend.open(WHOLE)
    server.answer = lambda code: (200, json.dumps({"results": [{"id": "0", "error": "Lean REPL timed out"}]}).encode())
    assert isinstance(backend.apply(state, "nap"), TacticError)
    server.answer = lambda code: (200, json.dumps({"results": [{"id": "0", "error": "REPL crashed"}]}).encode())
    with pytest.raises(EnvironmentFault, match="crashed"):
        backend.apply(state, "nap")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"results": []}',
        b'{"results": [{"id": "0"}]}',
        b'{"results": [{"response": {"messages": [{"severity": "info"}]}}]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_answers_that_cannot_be_read_are_faults_never_a_reward(server: Server, data: bytes) -> None:
    server.answer = lambda code: (200, data)
    with pytest.raises(EnvironmentFault):
        LeanBackend(KiminaChecker(server.url)).open(WHOLE)


def test_a_busy_server_is_asked_again_and_a_refusing_one_is_not(server: Server) -> None:
    answers = [(503, b"busy"), (429, b"slow down")]
    server.answer = lambda code: answers.pop(0) if answers else (200, reply(toy_lean(code)))
    assert LeanBackend(KiminaChecker(server.url)).open(WHOLE).goals and len(server.seen) == 3
    server.answer = lambda code: (401, b"no")
    with pytest.raises(EnvironmentFault, match="KIMINA_API_KEY"):
        LeanBackend(KiminaChecker(server.url)).open(WHOLE)
    assert len(server.seen) == 4


def test_no_server_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen2.provers.kimina.RETRY_SECONDS", 0.0)
    with pytest.raises(EnvironmentFault, match="cannot be used"):
        LeanBackend(KiminaChecker("http://127.0.0.1:9")).open(WHOLE)


def test_the_environment_runs_on_a_file_for_lean(server: Server, tmp_path: Path) -> None:
    lines = [
        {
            "name": f"mini{n}",
            "formal_statement": f"theorem mini{n} (p q : Prop) (h : p ∧ q) : q := by sorry",
            "header": "import X",
        }
        for n in range(60)
    ]
    file = tmp_path / "minif2f.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    env = ragen2.make("theorem", prover="kimina", server=server.url, problems="file", path=str(file))
    assert env.concurrency > 1 and "Lean 4" in env.instructions
    assert "⊢ q" in env.reset(0, 0).text
    result = env.step("sorry")
    assert result.info["legal"] is False and result.reward == 0.0
    result = env.step("exact h.2")
    assert result.info["success"] and result.reward == 1.0
    report = check_env(env, seeds=range(3), steps=4, actions=("constructor", "exact h.2", "exact h.1"))
    assert report.ok, str(report)


def test_a_wrong_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="http"):
        make_prover("kimina", server="ftp://here")


# lean-interact


def stand_in(answers: list[Any]) -> types.ModuleType:
    """A module that looks like lean_interact: messages by `toy_lean`, unless `answers` holds an exception to raise first."""
    module: Any = types.ModuleType("lean_interact")

    class Auto:
        def __init__(self, config: Any) -> None:
            self.killed = False

        def run(self, command: Any, timeout: float) -> Any:
            if answers:
                raise answers.pop(0)
            found = [
                types.SimpleNamespace(
                    severity=m["severity"], data=m["data"], start_pos=types.SimpleNamespace(line=m["pos"]["line"])
                )
                for m in toy_lean(command.cmd)
            ]
            return types.SimpleNamespace(messages=found)

        def kill(self) -> None:
            self.killed = True

    module.AutoLeanServer = Auto
    module.Command = lambda cmd: types.SimpleNamespace(cmd=cmd)
    module.LeanREPLConfig = lambda **options: options
    module.LocalProject = lambda **options: options
    return module


def test_lean_interact_proves_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = []
    monkeypatch.setitem(sys.modules, "lean_interact", stand_in(answers))
    backend = LeanBackend(LeanInteractChecker(str(tmp_path), str(tmp_path)))
    state = backend.open(WHOLE)
    answers.append(TimeoutError("slow"))
    assert isinstance(backend.apply(state, "nap"), TacticError)
    answers.append(ConnectionAbortedError("gone"))
    with pytest.raises(EnvironmentFault, match="gone"):
        backend.apply(state, "exact h.2")
    end = backend.apply(state, "exact h.2")
    assert isinstance(end, ProofState) and end.proven
    backend.close()
    backend.close()


def test_lean_interact_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="lean_project"):
        LeanInteractChecker("", "")
    monkeypatch.setitem(sys.modules, "lean_interact", None)
    with pytest.raises(MissingDependency, match="lean-interact"):
        LeanInteractChecker(str(tmp_path), str(tmp_path))
