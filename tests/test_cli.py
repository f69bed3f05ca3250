"""The commands: what they print, what they leave behind, and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny import cli, one_thread, only_run, tiny_folder, tiny_recipe  # noqa: F401

import ragen2
from ragen2 import cli as command_line
from ragen2 import errors
from ragen2.training import loop
from ragen2.training.config import list_recipes
from ragen2.training.metrics_log import read_metrics


@pytest.fixture
def recipe(tmp_path) -> Path:
    return tiny_recipe(tmp_path, iterations=2, validation={"levels": 8})


def test_train_leaves_a_whole_run_directory_and_says_what_came_out(cli, recipe, tmp_path):  # noqa: F811
    finished = cli("train", recipe, "algorithm=ppo")
    assert finished.code == 0, finished.err
    assert finished.err == ""
    run = only_run(tmp_path / "runs")
    for name in ("config.yaml", "run.json", "metrics.jsonl", "verdict.json", "summary.json", "report.html", "model/config.json"):
        assert (run / name).is_file(), name
    assert [path.name for path in sorted((run / "checkpoints").iterdir())] == ["step-000001", "step-000002"]
    assert {path.name for path in (run / "rollouts").iterdir()} == {
        "train-000001.jsonl", "train-000002.jsonl",
        "validation-tiny-colours-000000.jsonl", "validation-tiny-colours-000002.jsonl",
    }  # fmt: skip
    words = " ".join(finished.out.split())
    assert "verdict:" in words
    assert "iteration 2/2" in words
    assert run.name in words.replace(" ", "")
    assert json.loads((run / "run.json").read_text())["ragen2"] == ragen2.__version__
    summary = json.loads((run / "summary.json").read_text())
    records = read_metrics(run)
    assert summary["environments"]["tiny-colours"]["end"]["success"] == records[-1]["validation/tiny-colours/success"]
    assert summary["environments"]["tiny-colours"]["start"]["success"] == records[0]["validation/tiny-colours/success"]
    assert records[0]["step"] == 0
    assert records[1]["policy/mismatch_max_abs"] <= 1e-5
    assert records[1]["policy/kl_from_start"] == pytest.approx(0.0, abs=1e-6)
    assert records[2]["policy/kl_from_start"] > 0


def test_the_trained_model_is_the_last_checkpoints_and_loads_anywhere(cli, recipe, tmp_path):  # noqa: F811
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert cli("train", recipe).code == 0
    run = only_run(tmp_path / "runs")
    model = AutoModelForCausalLM.from_pretrained(run / "model")
    saved = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "step-000002" / "policy")
    start = AutoModelForCausalLM.from_pretrained(tiny_folder())
    pairs = list(zip(model.parameters(), saved.parameters(), start.parameters(), strict=True))
    assert all(torch.equal(one, two) for one, two, _ in pairs)
    assert not all(torch.equal(one, three) for one, _, three in pairs)
    assert AutoTokenizer.from_pretrained(run / "model").chat_template


def test_overrides_win_and_the_printed_configuration_reads_back(cli, recipe, tmp_path):  # noqa: F811
    finished = cli("train", recipe, "algorithm=ppo", "filter.top_p=0.5", "--print-config")
    assert finished.code == 0
    shown = yaml.safe_load(finished.out)
    assert (shown["algorithm"]["name"], shown["filter"]["top_p"]) == ("ppo", 0.5)
    assert not (tmp_path / "runs").exists()
    (tmp_path / "again.yaml").write_text(finished.out)
    assert cli("train", tmp_path / "again.yaml", "--print-config").out == finished.out


@pytest.mark.parametrize("name", list_recipes())
def test_every_built_in_recipe_prints(cli, name):  # noqa: F811
    finished = cli("train", name, "--print-config")
    assert finished.code == 0, finished.err
    assert yaml.safe_load(finished.out)["recipe"] == name


def test_eval_of_a_run_gives_what_its_last_validation_gave(cli, recipe, tmp_path):  # noqa: F811
    assert cli("train", recipe).code == 0
    run = only_run(tmp_path / "runs")
    records = read_metrics(run)
    for target, step in ((run, 2), (run / "checkpoints" / "step-000002", 2), (run / "model", 2), (tiny_folder(), 0)):
        bare = [] if "checkpoints" in str(target) or target == run else ["--recipe", recipe]
        finished = cli("eval", target, *bare, "--save", tmp_path / f"saved-{target.name}")
        assert finished.code == 0, finished.err
        rows = dict(line.strip("│┃ ").replace("│", " ").split() for line in finished.out.splitlines() if "validation/" in line)
        for key in ("success", "return", "episodes"):
            name = f"validation/tiny-colours/{key}"
            assert float(rows[name]) == pytest.approx(records[step][name], abs=1e-4)
        assert (tmp_path / f"saved-{target.name}" / "eval-tiny-colours.jsonl").is_file()


def test_eval_reports_pass_at_k_for_several_samples(cli, recipe):  # noqa: F811
    finished = cli("eval", tiny_folder(), "--recipe", recipe, "--samples", "4", "--levels", "3")
    assert finished.code == 0, finished.err
    for k in (1, 2, 4):
        assert f"pass_at_{k}" in finished.out
    assert "pass_at_8" not in finished.out
    rows = [line for line in finished.out.splitlines() if "episodes" in line]
    assert "12.0000" in rows[0]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["eval", "nowhere"], 2, "is no run directory"),
        (["eval", "nowhere", "--recipe", "frozen-lak"], 2, "Did you mean 'frozen-lake'"),
        (["report", "nowhere"], (2, 5), "nowhere"),
        (["diagnose", "nowhere"], (1, 2, 5), "nowhere"),
        (["check-env", "frozen-lak"], 2, "Did you mean 'frozen-lake'"),
        (["check-env", "frozen-lake", "size"], 2, "key=value"),
        (["play", "frozen-lake", "siez=3"], 2, "Did you mean 'size'"),
        (["warmup", "frozen-lak"], 2, "Did you mean 'frozen-lake'"),
    ],
)
def test_wrong_arguments_of_the_other_commands(cli, arguments, code, expected):  # noqa: F811
    finished = cli(*arguments)
    assert finished.code in (code if isinstance(code, tuple) else (code,))
    assert expected in finished.complaint


@pytest.mark.parametrize("arguments", [["eval"], ["trane"], ["train", "--resum", "x"], ["eval", "x", "--samples", "many"]])
def test_what_the_option_parser_refuses_ends_with_2(cli, arguments):  # noqa: F811
    finished = cli(*arguments)
    assert finished.code == 2
    assert "Traceback" not in finished.err


@pytest.mark.parametrize(("samples", "levels"), [("0", "4"), ("1", "0"), ("-1", "4")])
def test_eval_refuses_numbers_that_measure_nothing(cli, recipe, samples, levels):  # noqa: F811
    finished = cli("eval", tiny_folder(), "--recipe", recipe, "--samples", samples, "--levels", levels)
    assert finished.code == 2
    assert "at least 1" in finished.complaint


def test_report_and_diagnose_of_a_run(cli, recipe, tmp_path):  # noqa: F811
    assert cli("train", recipe).code == 0
    run = only_run(tmp_path / "runs")
    (run / "report.html").unlink()
    assert cli("report", run).code == 0
    assert "</html>" in (run / "report.html").read_text()
    finished = cli("diagnose", run, "--json")
    assert finished.code == 0, finished.err
    assert json.loads(finished.out)["verdict"]


def test_envs_lists_and_check_env_checks(cli):  # noqa: F811
    finished = cli("envs")
    assert finished.code == 0
    for name in ("frozen-lake", "sokoban", "bandit", "countdown", "tiny-colours"):
        assert name in finished.out
    assert cli("check-env", "bandit").code == 0
    broken = cli("check-env", "tiny-colours", "fault=nan", "fault_everywhere=true")
    assert broken.code == 1
    assert "broken" in broken.out


def test_a_person_plays_and_sees_what_the_model_sees(cli, monkeypatch):  # noqa: F811
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("up\nup\n"))
    finished = cli("play", "tiny-colours")
    assert finished.code == 0, finished.err
    assert "Say up or down." in finished.out
    assert "success" in finished.out
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert "stopped" in cli("play", "frozen-lake").out


def test_play_at_the_end_of_the_input_does_not_fail_loudly(cli, monkeypatch):  # noqa: F811
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    finished = cli("play", "tiny-colours")
    assert "Traceback" not in finished.err + finished.out


@pytest.mark.parametrize("at", [0, 1, 3])
def test_ctrl_c_says_how_to_go_on(cli, tmp_path, monkeypatch, at):  # noqa: F811
    original = loop.Trainer._collect

    def collect(self: loop.Trainer, step: int, metrics: dict[str, Any]) -> Any:
        if step > at:
            raise KeyboardInterrupt
        return original(self, step, metrics)

    monkeypatch.setattr(loop.Trainer, "_collect", collect)
    finished = cli("train", tiny_recipe(tmp_path, iterations=4))
    run = only_run(tmp_path / "runs")
    assert finished.code == 130
    assert str(run) in finished.complaint
    assert ("--resume" in finished.complaint) == (at > 0)
    monkeypatch.undo()
    if at:
        monkeypatch.setattr("sys.argv", [])
        assert cli("train", "--resume", run).code == 0
        assert [record["step"] for record in read_metrics(run)] == list(range(5))


def test_exit_codes_are_those_documented():
    documented = " ".join((command_line.main.__doc__ or "").split())
    for code, kind in ((2, errors.ConfigError), (3, errors.ModelError), (3, errors.MissingDependency), (4, errors.NonFiniteLoss),
                       (5, errors.StorageError), (5, errors.CheckpointCorrupt)):  # fmt: skip
        assert kind.exit_code == code
        assert f" {code} " in documented
    assert command_line.INTERRUPTED == 130
    assert "130" in documented


def test_the_module_runs_as_a_program(tmp_path):
    shown = subprocess.run(
        [sys.executable, "-m", "ragen2", "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert shown.stdout.strip() == f"ragen2 {ragen2.__version__}"
    wrong = subprocess.run(
        [sys.executable, "-m", "ragen2", "train", "frozen-lak"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
