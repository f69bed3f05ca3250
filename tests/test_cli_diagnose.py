"""`ragen2 diagnose`: text, JSON after its schema, exit codes, several runs, folders, mapping, following."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from diagnosed import STEPS, command, console_line, signals_of, write_run  # noqa: F401

from ragen2.cli.diagnose import FAIL_ON
from ragen2.cli.exit_codes import CODES, exit_code, failing_verdicts
from ragen2.diagnostics.diagnosis_json import plain
from ragen2.diagnostics.examine import Unreadable, examine_all
from ragen2.diagnostics.mapping import parse_mapping
from ragen2.diagnostics.readers import RunSeries
from ragen2.diagnostics.run_names import short_names
from ragen2.diagnostics.runs_in import runs_in
from ragen2.diagnostics.verdict import Regime, VerdictName
from ragen2.errors import ConfigError, StorageError, UnknownName

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text())
TYPES = {
    "object": Mapping,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
    "boolean": bool,
}
KNOWN_WORDS = {
    "$ref", "$defs", "$schema", "$id", "title", "description", "oneOf", "type", "enum", "const", "required", "properties",
    "additionalProperties", "items", "minimum", "maximum",
}  # fmt: skip


def faults(value: Any, schema: Mapping[str, Any], where: str = "$") -> list[str]:
    """What in `value` breaks a JSON schema made of KNOWN_WORDS."""
    assert set(schema) <= KNOWN_WORDS, set(schema) - KNOWN_WORDS
    if "$ref" in schema:
        found = faults(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], where)
        return found + faults(value, {key: item for key, item in schema.items() if key != "$ref"}, where)
    if "oneOf" in schema:
        tries = [faults(value, part, where) for part in schema["oneOf"]]
        matching = sum(not found for found in tries)
        return [] if matching == 1 else [f"{where}: {matching} of oneOf fit: {min(tries, key=len)}"]
    if "const" in schema and value != schema["const"]:
        return [f"{where}: {value!r} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is none of {schema['enum']}"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)) for kind in kinds):
        return [f"{where}: {value!r} is no {kinds}"]
    found = []
    if isinstance(value, Mapping):
        known = schema.get("properties", {})
        found += [f"{where}: no {key}" for key in schema.get("required", []) if key not in value]
        if schema.get("additionalProperties") is False:
            found += [f"{where}: unknown {key}" for key in value if key not in known]
        found += [fault for key in value if key in known for fault in faults(value[key], known[key], f"{where}.{key}")]
    if isinstance(value, list) and "items" in schema:
        found += [fault for k, item in enumerate(value) for fault in faults(item, schema["items"], f"{where}[{k}]")]
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{where}: {value} out of range")
    return found


def refuse(text: str) -> Any:
    raise AssertionError(f"{text} is no JSON")


def read_json(text: str) -> Any:
    found = json.loads(text, parse_constant=refuse)
    assert faults(found, SCHEMA) == []
    return found


def test_the_validator_finds_faults():
    assert (
        faults({"schema": "ragen2.diagnosis/1", "path": "p", "name": "n", "error": {"kind": "k", "message": "m"}}, SCHEMA) == []
    )
    assert faults({"schema": "ragen2.diagnosis/2", "path": "p", "name": "n", "error": {"kind": "k", "message": "m"}}, SCHEMA)
    assert faults([{"path": 3}], SCHEMA)
    assert faults(True, {"type": "integer"}) and not faults(True, {"type": "boolean"})
    assert faults(1.5, {"type": "number", "maximum": 1})


def test_the_schema_names_every_verdict_and_regime_and_they_have_codes():
    properties = SCHEMA["$defs"]["diagnosis"]["properties"]
    assert set(properties["verdict"]["enum"]) == set(get_args(VerdictName)) == set(CODES)
    assert set(properties["regime"]["enum"]) == set(get_args(Regime))


@pytest.mark.parametrize(
    ("kind", "verdict", "code"),
    [
        ("healthy", "healthy", 0),
        ("template", "template collapse", 6),
        ("format", "format collapse", 6),
        ("never", "never learned", 7),
    ],
)
def test_one_run_as_text_and_as_json(command, tmp_path, kind, verdict, code):  # noqa: F811
    run = write_run(tmp_path / "my-run", kind)
    shown = command("diagnose", run)
    assert shown.code == code, shown.err
    words = " ".join(shown.out.split())
    assert words.startswith(verdict)
    for heading in ("Evidence", "What to try", "valid-think rate, first → last", str(run)):
        assert heading in words
    found = read_json(command("diagnose", run, "--json").out)
    assert (found["verdict"], found["name"], found["path"]) == (verdict, "my-run", str(run))
    assert (found["steps"], found["first_step"], found["last_step"]) == (STEPS + 1, 0, STEPS)
    assert found["figures"]["success_kind"] == "validation"
    assert found["figures"]["valid_think"]["first"] == 0.98
    if found["onset_step"] is not None and kind in ("template", "format"):
        assert f"since step {found['onset_step']}" in words
        assert 40 <= found["onset_step"] <= 60
        assert {crossing["role"] for crossing in found["signals"]} <= {"led", "decided", "lagged"}
        assert "Signals that passed their thresholds" in words


def test_several_runs_give_a_table_and_one_that_does_not_read_stops_no_other(command, tmp_path):  # noqa: F811
    runs = [write_run(tmp_path / name, name) for name in ("healthy", "format")]
    shown = command("diagnose", runs[0], tmp_path / "nowhere", runs[1])
    assert shown.code == 5
    rows = [line for line in shown.out.splitlines() if line.lstrip().startswith(("healthy ", "format ", "nowhere "))]
    assert len(rows) == 3
    assert "format collapse" in rows[2] and "0.98 → 0.049" in rows[2]
    assert "not read: StorageError" in rows[1]
    assert shown.err.count("\n") == 1 and "does not exist" in shown.err
    found = read_json(command("diagnose", runs[0], tmp_path / "nowhere", runs[1], "--json").out)
    assert [item.get("verdict") for item in found] == ["healthy", None, "format collapse"]
    assert found[1]["error"]["kind"] == "StorageError"


def test_a_folder_stands_for_its_runs_and_always_gives_a_list(command, tmp_path):  # noqa: F811
    folder = tmp_path / "runs"
    write_run(folder / "one", "healthy")
    found = read_json(command("diagnose", folder, "--json").out)
    assert [item["name"] for item in found] == ["one"]
    write_run(folder / "deep" / "seed-0", "format")
    (folder / "notes.txt").write_text("nothing here")
    (folder / ".hidden").mkdir()
    (folder / "b.log").write_text("".join(console_line(step, signals_of("healthy", step)) for step in range(1, STEPS)))
    (folder / "b.csv").write_text("step,policy/entropy\n1,0.5\n2,0.5\n")
    (folder / "b.log").rename(folder / "deep" / "b.log")
    (folder / "b.csv").rename(folder / "deep" / "b.csv")
    shown = command("diagnose", folder, "--json")
    assert [item["name"] for item in read_json(shown.out)] == ["deep", "one"]
    (folder / "deep" / "c.log").write_text("".join(console_line(step, signals_of("healthy", step)) for step in range(1, STEPS)))
    found = read_json(command("diagnose", folder, "--json").out)
    assert [item["name"] for item in found] == ["b.log", "c.log", "seed-0", "one"]
    assert command("diagnose", folder).code == 6


def test_the_runs_of_an_export_are_told_apart(command, tmp_path):  # noqa: F811
    path = tmp_path / "export.csv"
    header = '"Step","good - train/success","good - train/success__MIN","bad - train/success"\n'
    path.write_text(header + "".join(f"{k},{0.2 + 0.01 * k},0,{0.2}\n" for k in range(40)))
    assert [str(run) for run in runs_in(path)] == [f"{path}::good", f"{path}::bad"]
    found = read_json(command("diagnose", path, "--json").out)
    assert [item["name"] for item in found] == ["export.csv::good", "export.csv::bad"]
    assert [item["figures"]["success"]["last"] for item in found] == [pytest.approx(0.59), 0.2]


def test_a_single_path_that_does_not_read_is_the_error_it_is(command, tmp_path):  # noqa: F811
    binary = tmp_path / "weights.bin"
    binary.write_bytes(bytes(range(256)) * 50)
    shown = command("diagnose", binary)
    assert (shown.code, shown.out) == (5, "")
    assert shown.err.startswith("StorageError: ") and shown.err.count("\n") == 1
    shown = command("diagnose", binary, "--json")
    assert shown.code == 5
    assert read_json(shown.out)["error"]["message"] in shown.err
    empty = tmp_path / "empty"
    empty.mkdir()
    assert command("diagnose", empty).code == 5


def test_fail_on_chooses_which_verdicts_count(command, tmp_path):  # noqa: F811
    run = write_run(tmp_path / "format", "format")
    short = write_run(tmp_path / "short", "never", steps=1)
    assert command("diagnose", run, "--fail-on", "none").code == 0
    assert command("diagnose", run, "--fail-on", "template-collapse,never_learned").code == 0
    assert command("diagnose", run, "--fail-on", "never learned", "--fail-on", "Format-Collapse").code == 6
    assert command("diagnose", short).code == 0
    assert command("diagnose", short, "--fail-on", "all").code == 8
    assert command("diagnose", run, "--fail-on", "healthy").code == 2
    shown = command("diagnose", run, "--fail-on", "colapse")
    assert shown.code == 2 and "Did you mean 'collapse'" in shown.err


def test_exit_codes_of_several_runs(tmp_path):
    kinds = ("healthy", "never", "format")
    runs = list(examine_all([write_run(tmp_path / kind, kind) for kind in kinds]))
    usual = failing_verdicts([FAIL_ON])
    assert [exit_code([run], usual) for run in runs] == [0, 7, 6]
    assert exit_code(runs, usual) == 6
    assert exit_code(runs[:2], usual) == 7
    error = StorageError("gone")
    assert exit_code([runs[2], Unreadable("p", "p", "StorageError", "gone", 5, error)], frozenset()) == 5
    assert failing_verdicts(["all"]) == set(CODES) - {"healthy"}
    assert failing_verdicts([" none "]) == frozenset()


def test_columns_of_ones_own_are_mapped(command, tmp_path):  # noqa: F811
    path = tmp_path / "mine.csv"
    rows = [signals_of("format", step) for step in range(STEPS + 1)]
    lines = [f"{step},{row['collapse/valid_think_rate']},{row['train/success']}" for step, row in enumerate(rows)]
    path.write_text("when,parsed=ok,won\n" + "\n".join(lines) + "\n")
    mapped = ["--map", "step=when", "--map", "valid_think=parsed=ok", "--map", "train_success=won"]
    shown = command("diagnose", path, *mapped, "--json")
    assert shown.code == 6, shown.err
    found = read_json(shown.out)
    assert found["verdict"] == "format collapse"
    assert found["figures"]["valid_think"]["first"] == 0.98
    for wrong, said in (
        ("valid_think", "OURS=THEIRS"),
        ("=x", "OURS=THEIRS"),
        ("valid_think= ", "OURS=THEIRS"),
        ("valid_thing=x", "Did you mean 'valid_think'"),
    ):
        shown = command("diagnose", path, "--map", wrong)
        assert shown.code == 2 and said in shown.err, shown.err


def test_mappings_are_parsed():
    assert parse_mapping(["valid_think = a=b", "collapse/probe/mi_sequence=c"]) == {
        "collapse/valid_think_rate": "a=b",
        "collapse/probe/mi_sequence": "c",
    }
    with pytest.raises(ConfigError, match="twice"):
        parse_mapping(["valid_think=a", "collapse/valid_think_rate=b"])
    with pytest.raises(UnknownName):
        parse_mapping(["nonsense=a"])


def test_the_page_is_written_and_json_stays_alone_on_stdout(command, tmp_path):  # noqa: F811
    run = write_run(tmp_path / "run", "template")
    page = tmp_path / "out" / "page.html"
    shown = command("diagnose", run, "--json", "--html", page)
    assert read_json(shown.out)["verdict"] == "template collapse"
    assert str(page) in shown.err
    assert "template collapse" in page.read_text()


def test_following_ends_by_idleness_and_by_ctrl_c_with_the_verdict(command, tmp_path, monkeypatch):  # noqa: F811
    run = write_run(tmp_path / "run", "format")
    shown = command("diagnose", run, "--follow", "--poll", "0.05", "--idle", "0.1", "--json")
    assert shown.code == 6, shown.err
    *alarms, last = [json.loads(line, parse_constant=refuse) for line in shown.out.splitlines()]
    assert {alarm["schema"] for alarm in alarms} == {"ragen2.alarm/1"}
    assert "format collapse" in {alarm["verdict"] for alarm in alarms}
    assert faults(last, SCHEMA) == [] and last["verdict"] == "format collapse"

    def ctrl_c(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", ctrl_c)
    monkeypatch.setattr("ragen2.diagnostics.follow.every.__defaults__", (ctrl_c,))
    shown = command("diagnose", run, "--follow", "--html", tmp_path / "page.html")
    assert shown.code == 6
    assert "alarm: " in shown.out and "format collapse since step" in shown.out
    assert (tmp_path / "page.html").is_file()


def test_following_refuses_what_it_cannot_do(command, tmp_path):  # noqa: F811
    run = write_run(tmp_path / "run", "healthy")
    assert command("diagnose", run, run, "--follow").code == 2
    assert command("diagnose", run, "--follow", "--scorer", "x").code == 2
    assert command("diagnose", run, "--follow", "--poll", "0").code == 2
    assert command("diagnose", run, "--follow", "--idle", "-1").code == 2
    shown = command("diagnose", tmp_path / "nowhere", "--follow", "--poll", "0.05", "--idle", "0.1")
    assert shown.code == 5 and "not there yet" in shown.err


def test_scorers_are_named_completely(command, tmp_path):  # noqa: F811
    run = write_run(tmp_path / "run", "healthy")
    for arguments, said in (
        (["--scorer-model", "m"], "give the server's URL"),
        (["--scorer", "http://127.0.0.1:1/v1"], "--scorer-model"),
        (["--scorer", "folder", "--scorer-model", "m"], "URL of a server"),
        (["--scorer", "http://[bad", "--scorer-model", "m"], "cannot be read"),
        (["--scorer", str(tmp_path / "missing")], "is no folder"),
    ):
        shown = command("diagnose", run, *arguments)
        assert shown.code == 2 and said in shown.err


def test_a_scorer_measures_rollouts_and_is_not_used_on_logs(command, tmp_path, monkeypatch):  # noqa: F811
    rollouts = tmp_path / "run" / "rollouts"
    rollouts.mkdir(parents=True)
    lines = [
        {"input": f"prompt {k % 4}", "output": "so</think><answer>up</answer>", "score": k % 2, "step": 1} for k in range(16)
    ]
    (rollouts / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_run(tmp_path / "run", "healthy")
    asked: list[Any] = []

    def measured(path: Path, scorer: Any, **options: Any) -> RunSeries:
        asked.append(scorer)
        options["progress"](1, 2)
        return RunSeries({"train/success": [(1, 0.5)]}, 1, source="verl rollout JSONL")

    monkeypatch.setattr("ragen2.diagnostics.examine.measure_rollouts", measured)
    monkeypatch.setattr("ragen2.cli.diagnose._load_scorer", lambda name, model: f"scorer {name}")
    found = read_json(command("diagnose", rollouts, "--scorer", "tiny", "--json").out)
    assert (asked, found["source"]) == (["scorer tiny"], "verl rollout JSONL")
    found = read_json(command("diagnose", tmp_path / "run", "--scorer", "tiny", "--json").out)
    assert len(asked) == 1
    assert any("scorer was not used" in note and "rollouts" in note for note in found["notes"])
    assert "--scorer MODEL" in command("diagnose", rollouts).out


def test_names_are_as_short_as_tells_them_apart():
    assert short_names([Path("/a/x/train.log"), Path("/a/y/train.log")]) == ["x", "y"]
    assert short_names([Path("/a/x/train.log"), Path("/a/x/metrics.csv")]) == ["train.log", "metrics.csv"]
    assert short_names([Path("/a/s/0"), Path("/b/s/0")]) == ["a/s/0", "b/s/0"]
    assert short_names([Path("/a/x"), Path("/a/x")]) == ["x", "x"]
    assert short_names([Path("/")]) == ["/"]


def test_numbers_that_json_lacks_become_null():
    assert plain({"a": (math.nan, 1.5, [math.inf])}) == {"a": [None, 1.5, [None]]}


def test_hostile_names_do_not_reach_the_terminal(command, tmp_path):  # noqa: F811
    run = write_run(tmp_path / "\x1b[31m[bold]red\u202e", "healthy")
    shown = command("diagnose", run, run)
    assert "\x1b" not in shown.out and "\u202e" not in shown.out
    assert "[bold]red" in shown.out


def test_the_library_side_loads_numpy_only():
    modules = ("", ".examine", ".follow", ".diagnosis_json", ".runs_in", ".mapping")
    heavy = ("torch", "transformers", "pydantic", "rich", "typer", "httpx", "pyarrow")
    imports = ", ".join(f"ragen2.diagnostics{module}" for module in modules)
    script = f"import sys, {imports}\nprint([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
