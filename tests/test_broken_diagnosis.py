"""Logs that once broke `ragen2 diagnose`, or got a wrong verdict from it in silence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ragen2.cli import app
from ragen2.diagnostics.diagnose import diagnose
from ragen2.diagnostics.readers import read_log

HEADER = "step,val_success,valid_think_rate,actor_entropy\n"


def console(values: dict[int, float], **more: float) -> str:
    rest = "".join(f" - {name.replace('__', '/')}:{value}" for name, value in more.items())
    return "".join(f"step:{step} - critic/score/mean:{value}{rest}\n" for step, value in values.items())


def write(folder: Path, text: str | bytes, name: str = "train.log") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["diagnose", *map(str, arguments)])
    error = done.exception
    if error is not None and not isinstance(error, SystemExit):
        return getattr(error, "exit_code", 1), done.stdout, f"{type(error).__name__}: {error}"
    return done.exit_code, done.stdout, done.stderr


def test_of_two_runs_in_one_log_only_the_last_is_judged(tmp_path: Path) -> None:
    first, second = {step: 1.0 for step in range(201)}, {step: 2.0 for step in range(151)}
    found = read_log(write(tmp_path, console(first, early_stopped__low_success=1) + console(second)))
    assert dict(found.series["train/return"]) == second
    assert found.steps == 151 and found.stop is None
    assert any("starts over at step 0 after step 200: 1 earlier run" in note for note in found.notes)


def test_a_resumed_run_forgets_what_the_attempt_before_it_logged(tmp_path: Path) -> None:
    found = read_log(write(tmp_path, console(dict.fromkeys(range(100), 1.0)) + console(dict.fromkeys(range(50, 60), 2.0))))
    assert dict(found.series["train/return"]) == dict.fromkeys(range(50), 1.0) | dict.fromkeys(range(50, 60), 2.0)
    assert any("logged again from 50 on (a resumed run): what had been logged from there to step 99" in x for x in found.notes)


def test_a_late_record_of_other_columns_takes_nothing_away(tmp_path: Path) -> None:
    text = "".join(f"step:{step} - critic/score/mean:1\nstep:{step - 1} - val-env/a/success:0.5\n" for step in range(1, 300))
    found = read_log(write(tmp_path, "step:0 - critic/score/mean:1\n" + text))
    assert len(found.series["train/return"]) == 300
    assert len(found.series["validation/a/success"]) == 299


def test_two_interleaved_runs_are_told(tmp_path: Path) -> None:
    text = "".join(console({step: 1.0}) + console({step - 1: 2.0}) for step in range(1, 300))
    path = write(tmp_path, text)
    assert any("several runs in one file" in note for note in read_log(path).notes)
    found = diagnose(path)
    assert (found.verdict, found.confidence) == ("undecided", 0.0)
    assert "several runs in one file" in found.explanation and "log of its own" in found.what_to_try[0]


def test_two_runs_in_step_are_told(tmp_path: Path) -> None:
    text = "".join(console({step: 1.0 + step}) + console({step: 2.0 * step}) for step in range(2, 60))
    assert any("logged several times with different values" in note for note in read_log(write(tmp_path, text)).notes)
    twice = "".join(console({step: 1.0 + step}) * 2 for step in range(2, 60))
    assert not any("several times" in note for note in read_log(write(tmp_path, twice)).notes)


@pytest.mark.parametrize("scale", [1, 100])
def test_per_cent_are_shares(tmp_path: Path, scale: int) -> None:
    """A flat run in per cent was healthy: the noise of a share above 1 was 0."""
    rows = "".join(f"{10 * k},{scale * (0.1 + 0.01 * (k % 3))},{scale * 0.99},0.5\n" for k in range(30))
    found = diagnose(write(tmp_path, HEADER + rows))
    assert found.verdict == "never learned"
    assert any("val_success was taken for per cent" in note for note in found.notes) == (scale == 100)


def test_a_rate_that_is_none_is_told(tmp_path: Path) -> None:
    rows = "".join(f"{step},{step - 5},1,0.5\n" for step in range(30))
    found = diagnose(write(tmp_path, HEADER + rows))
    assert any("from -5 to 24, not from 0 to 1" in note for note in found.notes)


def test_readings_at_the_edge_of_floats(tmp_path: Path) -> None:
    rows = "".join(f"{k},{(-1) ** k * 1.7e308},1e308,-1e308\n" for k in range(30))
    code, out, err = run(write(tmp_path, HEADER + rows), "--json", "--html", tmp_path / "a.html")
    assert code == 0, err
    assert "val_success is nan or infinite 30 times, first at step 0" in json.loads(out)["notes"]
    line = '{"step": %d, "train/success": 0.5, "collapse/valid_think_rate": 1e308, "train/return": -1.7e308}\n'
    code, out, err = run(write(tmp_path, "".join(line % k for k in range(30)), "metrics.jsonl"), "--json")
    assert code in (0, 7) and json.loads(out)["figures"]["valid_think"] is None, err
    assert any("too large to be one" in note for note in json.loads(out)["notes"])


def test_a_step_beyond_64_bits(tmp_path: Path) -> None:
    write(tmp_path, '{"step": 1%s, "train/success": 0.5}\n' % ("0" * 30), "metrics.jsonl")
    code, _, err = run(tmp_path)
    assert code == 5 and "15 digits" in err


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    assert run("x" * 5000)[0] == 5
    assert run("x" * 5000 + "::a", tmp_path)[0] == 5


def test_a_byte_order_mark_before_a_trainer_state(tmp_path: Path) -> None:
    state = json.dumps({"log_history": [{"step": 1, "reward": 0.5}]}, indent=1).encode()
    assert read_log(write(tmp_path, b"\xef\xbb\xbf" + state)).source == "trl trainer_state"


def test_the_page_does_not_overwrite_the_log(tmp_path: Path) -> None:
    path = write(tmp_path, console({1: 1.0, 2: 2.0}))
    before = path.read_bytes()
    assert run(path, "--html", path)[0] == 2
    assert path.read_bytes() == before


def test_an_empty_list_of_verdicts_is_no_gate(tmp_path: Path) -> None:
    path = write(tmp_path, console({1: 1.0, 2: 2.0}))
    assert [run(path, "--fail-on", text)[0] for text in ("", " ,", "none")] == [2, 2, 0]


def test_names_of_paths_do_not_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    code, _, err = run(tmp_path / "a\x1b[31mb", tmp_path / "c")
    assert code == 5 and "\x1b" not in err and "\\u001b" in err


def test_a_page_without_a_place_is_refused_before_any_work(tmp_path: Path) -> None:
    write(tmp_path, "x", "file")
    for page in (tmp_path, tmp_path / "file" / "page.html"):
        code, out, err = run(write(tmp_path, console({1: 1.0, 2: 2.0})), "--html", page)
        assert (code, out) == (5, "") and "--html" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("arguments", [["--version"], ["envs"]])
def test_a_full_disk_under_the_output_is_a_storage_error(arguments: list[str]) -> None:
    code = "import sys; from ragen2.cli import main; sys.argv[0] = 'ragen2'; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 5
    assert done.stderr.startswith("StorageError: the output cannot be written") and done.stderr.count("\n") == 1
