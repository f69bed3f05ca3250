"""A run that was stopped goes on exactly: the same weights to the last bit, the same metrics."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tiny import one_thread, only_run, tiny_config, tiny_folder, tiny_settings  # noqa: F401

from ragen2.training import loop
from ragen2.training.checkpoint import list_checkpoints, load_checkpoint
from ragen2.training.config import dump_config, load_config
from ragen2.training.metrics_log import read_metrics
from ragen2.training.run import resume_run, start_run

TIMES = ("time/", "speed/")


class Killed(BaseException):
    """Stands for a kill: nothing in the package may catch it and tidy up."""


def quiet(text: str) -> None:
    assert text


def metrics_of(run: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if not key.startswith(TIMES)} for record in read_metrics(run)]


def assert_same(left: Any, right: Any, where: str = "") -> None:
    """Equal to the last bit, whatever the nesting."""
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for place, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same(a, b, f"{where}/{place}")
    else:
        assert left == right or (left != left and right != right), where


def assert_same_runs(left: Path, right: Path) -> None:
    one, two = (load_checkpoint(list_checkpoints(run / "checkpoints")[-1]) for run in (left, right))
    assert one.step == two.step == 6
    assert_same(one.state, two.state)
    assert_same(one.tensors, two.tensors)
    for name in sorted(path.name for path in one.policy.iterdir()):
        assert (one.policy / name).read_bytes() == (two.policy / name).read_bytes(), name
    assert_same(metrics_of(left), metrics_of(right))
    for name in sorted(path.name for path in (left / "rollouts").iterdir()):
        assert (left / "rollouts" / name).read_bytes() == (right / "rollouts" / name).read_bytes(), name


def assert_learnt(run: Path) -> None:
    """The comparison means nothing unless groups were kept and weights moved."""
    records = metrics_of(run)[1:]
    assert [record["step"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert sum(record.get("policy/optimizer_steps", 0) for record in records) >= 8
    assert all(record["policy/gradient_norm"] > 0 for record in records if "policy/gradient_norm" in record)


def kill_in_iteration(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """The update of iteration `at` dies in the middle: after its rollouts drew from every generator."""
    original = loop.update

    def dying(*args: Any, **options: Any) -> dict[str, float]:
        found = original(*args, **options)
        if options["iteration"] == at:
            raise Killed
        return found

    monkeypatch.setattr(loop, "update", dying)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "ppo"},
        {"algorithm": "grpo"},
        {"algorithm": {"name": "ppo", "kl_coef": 0.05, "bi_level": True}, "optimizer": {"schedule": "cosine", "warmup_steps": 3}},
        {"algorithm": "dapo", "checkpoint": {"every": 2}, "validation": {"every": 2}},
        pytest.param(
            {"algorithm": "grpo", "model": {"lora": {"r": 4}}, "optimizer": {"learning_rate": 0.01}}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"algorithm": "grpo", "filter": {"control": "random"}, "rollout": {"context": "limited"}}, marks=pytest.mark.slow
        ),
    ],
    ids=["ppo", "grpo", "ppo-kl-bilevel-cosine", "dapo-every-2", "grpo-lora", "random-control"],
)
def test_resuming_gives_the_same_weights_and_metrics(changes, tmp_path, monkeypatch):
    whole = tiny_config(out=str(tmp_path / "whole"), **changes)
    start_run(whole, quiet)
    assert_learnt(only_run(tmp_path / "whole"))
    with monkeypatch.context() as patch:
        kill_in_iteration(patch, 4)
        with pytest.raises(Killed):
            start_run(tiny_config(out=str(tmp_path / "cut"), **changes), quiet)
    run = only_run(tmp_path / "cut")
    assert [path.name for path in list_checkpoints(run / "checkpoints")][-1] in ("step-000003", "step-000002")
    torch.manual_seed(12345)  # what the process did before must not matter
    np.random.seed(1)
    outcome = resume_run(run, [], quiet)
    assert outcome.summary["iterations"] == 6
    assert_same_runs(only_run(tmp_path / "whole"), run)


def test_levels_go_on_and_are_not_replayed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        kill_in_iteration(patch, 3)
        with pytest.raises(Killed):
            start_run(tiny_config(out=str(tmp_path)), quiet)
    run = only_run(tmp_path)
    resume_run(run, [], quiet)
    seeds = {}
    for path in sorted((run / "rollouts").glob("train-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        seeds[path.name] = sorted({line["level_seed"] for line in lines})
    assert seeds["train-000001.jsonl"] == [0, 1]
    assert seeds["train-000004.jsonl"] == [6, 7]
    assert seeds["train-000006.jsonl"] == [10, 11]


def test_a_run_can_be_extended_and_settings_changed_on_the_way(tmp_path):
    start_run(tiny_config(out=str(tmp_path), iterations=2), quiet)
    run = only_run(tmp_path)
    resume_run(run, ["iterations=4", "optimizer.learning_rate=5e-4", "optimizer.weight_decay=0.01"], quiet)
    records = metrics_of(run)
    assert [record["step"] for record in records] == [0, 1, 2, 3, 4]
    rates = {record["step"]: record.get("policy/learning_rate") for record in records}
    assert rates[2] == pytest.approx(1e-3)
    assert rates[4] == pytest.approx(5e-4)
    saved = load_checkpoint(list_checkpoints(run / "checkpoints")[-1]).tensors["policy_optimizer"]["param_groups"][0]
    assert saved["weight_decay"] == 0.01
    assert yaml.safe_load((run / "config.yaml").read_text())["iterations"] == 4


def test_going_back_to_an_earlier_checkpoint_drops_what_came_after_it(tmp_path, monkeypatch):
    start_run(tiny_config(out=str(tmp_path), iterations=6, checkpoint={"keep": 5}), quiet)
    run = only_run(tmp_path)
    last = load_checkpoint(run / "checkpoints" / "step-000006")
    with monkeypatch.context() as patch:
        kill_in_iteration(patch, 4)
        with pytest.raises(Killed):
            resume_run(run / "checkpoints" / "step-000002", ["checkpoint.keep=2"], quiet)
    assert [path.name for path in list_checkpoints(run / "checkpoints")] == ["step-000002", "step-000003"]
    assert [record["step"] for record in read_metrics(run)] == [0, 1, 2, 3]
    resume_run(run, [], quiet)
    again = load_checkpoint(run / "checkpoints" / "step-000006")
    assert_same(last.state, again.state)
    assert_same(last.tensors, again.tensors)


def test_a_kill_between_the_metrics_and_the_checkpoint(tmp_path, monkeypatch):
    start_run(tiny_config(out=str(tmp_path / "whole")), quiet)
    original = loop.save_checkpoint

    def dying(folder: Path, step: int, *rest: Any) -> Path:
        if step == 4:
            (folder / ".step-000004.1.tmp").mkdir()
            raise Killed
        return original(folder, step, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "save_checkpoint", dying)
        with pytest.raises(Killed):
            start_run(tiny_config(out=str(tmp_path / "cut")), quiet)
    run = only_run(tmp_path / "cut")
    assert [record["step"] for record in read_metrics(run)] == [0, 1, 2, 3, 4]
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 5, "train/succ')
    resume_run(run, [], quiet)
    assert_same_runs(only_run(tmp_path / "whole"), run)
    assert not list((run / "checkpoints").glob(".*"))


def test_a_run_is_resumed_from_another_folder(tmp_path, monkeypatch):
    (tmp_path / "model").symlink_to(tiny_folder())
    monkeypatch.chdir(tmp_path)
    start_run(tiny_config(out="runs", model={"name": "./model"}, iterations=1), quiet)
    run = only_run(tmp_path / "runs")
    monkeypatch.chdir("/")
    assert resume_run(run, ["iterations=2"], quiet).summary["iterations"] == 2


def test_prompts_dropped_before_a_refill_are_in_the_history(tmp_path):
    changes: dict[str, Any] = {"algorithm": "dapo", "env": {"id": "tiny-colours", "same": True}}
    start_run(tiny_config(out=str(tmp_path), iterations=1, early_stop={"empty_patience": 0}, **changes), quiet)
    (_, record) = read_metrics(only_run(tmp_path))
    assert record["filter/refills"] == 3
    assert record["history/prompts"] == record["history/starved"] == 8
    assert record["filter/empty"] is True
    assert "policy/optimizer_steps" not in record


def test_a_run_with_a_preset_reads_back_with_the_settings_that_differ_from_it(tmp_path):
    settings = ["preset=paper", "rollout.groups=3", "filter.top_p=0.5", "optimizer.learning_rate=0.25"]
    config = load_config("frozen-lake", settings)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    again = load_config(str(tmp_path / "config.yaml"))
    assert again.rollout.groups == 3
    assert dump_config(again) == dump_config(config)


def test_a_refused_resumption_changes_nothing(tmp_path):
    start_run(tiny_config(out=str(tmp_path), iterations=2), quiet)
    run = only_run(tmp_path)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(Exception, match="has finished its 1 iterations"):
        resume_run(run, ["iterations=1"], quiet)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        start_run(tiny_config(out=str(tmp_path / name), seed=seed, iterations=2), quiet)
    first, again, other = (metrics_of(only_run(tmp_path / name)) for name in "abc")
    assert_same(first, again)
    assert first[1] != other[1]


def test_measuring_more_changes_nothing_that_is_sampled(tmp_path):
    start_run(tiny_config(out=str(tmp_path / "a"), iterations=3), quiet)
    start_run(tiny_config(out=str(tmp_path / "b"), iterations=3, monitor={"every": 0}, validation={"every": 1}), quiet)
    one, two = (load_checkpoint(list_checkpoints(only_run(tmp_path / name) / "checkpoints")[-1]) for name in "ab")
    assert_same(one.tensors["policy_optimizer"], two.tensors["policy_optimizer"])


COMMAND = "import tiny; from ragen2.cli import main; main()"


def command(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """The console script in a process of its own, which also knows the tests' environment."""
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "random"}
    with open(folder / "output.txt", "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments], env=environment, stdout=output, stderr=output, cwd=folder
        )


def wait_for_step(process: subprocess.Popen[bytes], out: Path, step: int) -> None:
    """Until metrics.jsonl holds `step`. Polls as long as the process lives."""
    while process.poll() is None:
        for path in out.glob("*/metrics.jsonl"):
            if f'{{"step": {step},' in path.read_text():
                return
        time.sleep(0.005)
    raise AssertionError(f"the run ended (exit code {process.returncode}) before step {step}")


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_says_how_to_go_on(tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_settings(iterations=5000)))
    process = command(["train", "tiny.yaml", "out=runs"], tmp_path)
    wait_for_step(process, tmp_path / "runs", 2)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    run = only_run(tmp_path / "runs")
    said = (tmp_path / "output.txt").read_text()
    assert f"ragen2 train --resume runs/{run.name}" in said
    assert "Traceback" not in said
    assert load_checkpoint(list_checkpoints(run / "checkpoints")[-1]).step >= 1


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_kill_9_and_resume_through_the_command_line(algorithm, tmp_path):
    settings = tiny_settings(algorithm=algorithm, optimizer={"epochs": 4}, validation={"levels": 8}, monitor={"probe_prompts": 8})
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    whole = command(["train", "tiny.yaml", "out=whole"], tmp_path)
    assert whole.wait() == 0, (tmp_path / "output.txt").read_text()
    cut = command(["train", "tiny.yaml", "out=cut"], tmp_path)
    wait_for_step(cut, tmp_path / "cut", 3)
    cut.send_signal(signal.SIGKILL)
    assert cut.wait() == -signal.SIGKILL
    run = only_run(tmp_path / "cut")
    assert not (run / "summary.json").exists()
    assert command(["train", "--resume", str(run)], tmp_path).wait() == 0, (tmp_path / "output.txt").read_text()
    assert_learnt(only_run(tmp_path / "whole"))
    assert_same_runs(only_run(tmp_path / "whole"), run)
