"""What people and machines do wrong: one clear line and the documented exit code, or a marked trajectory; nothing is lost."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from tiny import cli, one_thread, only_run, tiny_folder, tiny_recipe  # noqa: F401

from ragen2.algorithms.policy_loss import PolicyLoss
from ragen2.training import checkpoint, critic, loop, policy
from ragen2.training.checkpoint import list_checkpoints, load_checkpoint
from ragen2.training.config import load_config
from ragen2.training.metrics_log import read_metrics
from ragen2.training.run import start_run
from ragen2.training.setup import Parts
from ragen2.trajectory import RolloutBatch


def short_recipe(folder: Path, **changes: Any) -> Path:
    """Four iterations without mutual information."""
    return tiny_recipe(folder, **{"iterations": 4, "monitor": {"every": 0}, "validation": {"levels": 2}, **changes})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["frozen-lak"], "Did you mean 'frozen-lake'"),
        (["no/such/recipe.yaml"], "cannot read the recipe file no/such/recipe.yaml"),
        (["frozen-lake", "filter.topp=0.8"], "Did you mean 'filter.top_p'"),
        (["frozen-lake", "itertions=3"], "Did you mean 'iterations'"),
        (["frozen-lake", "env=frozen-lak"], "Did you mean 'frozen-lake'"),
        (["frozen-lake", "env.slippery=0.1"], "unknown option of environment 'frozen-lake' 'slippery'"),
        (["frozen-lake", "preset=papr"], "Did you mean 'paper'"),
        (["frozen-lake", "algorithm=gropo"], "Did you mean 'grpo'"),
        (["frozen-lake", "warmup.stepz=3"], "Did you mean 'warmup.steps'"),
        (["frozen-lake", "iterations=abc"], "iterations"),
        (["frozen-lake", "iterations=0"], "iterations is 0; it must be at least 1"),
        (["frozen-lake", "rollout.groups=-1"], "rollout.groups is -1"),
        (["frozen-lake", "optimizer.learning_rate=-1"], "learning_rate is -1"),
        (["frozen-lake", "optimizer.learning_rate=.nan"], "learning_rate is nan"),
        (["frozen-lake", "optimizer.critic_learning_rate=.inf"], "critic_learning_rate is inf"),
        (["frozen-lake", "rollout.group_size=1", "algorithm=grpo"], "group size of at least 2"),
        (["frozen-lake", "filter.top_p=2"], "filter.top_p"),
        (["frozen-lake", "rollout.temperature=0"], "rollout.temperature is 0"),
        (["frozen-lake", "iterations"], "is not of the form key.path=value"),
        (["frozen-lake", "rollout=[1"], "the value is not YAML"),
        (["frozen-lake", "logging.writers=[papyrus]"], "logging.writers"),
        (["frozen-lake", "iterations.x=1"], "which has no keys"),
        ([], "name a recipe"),
        (["iterations=3"], "name a recipe"),
    ],
)
def test_wrong_settings_are_named_in_one_line(cli, arguments, expected):  # noqa: F811
    finished = cli("train", *arguments)
    assert finished.code == 2
    assert expected in finished.complaint


def test_more_environments_than_groups_are_refused_before_anything_is_built(cli, tmp_path):  # noqa: F811
    path = tmp_path / "mine.yaml"
    path.write_text("environments: [{id: sokoban}, {id: bandit}, {id: countdown}]\nrollout: {groups: 2}\n")
    finished = cli("train", path, "--print-config")
    assert finished.code == 2
    assert "rollout.groups is 2" in finished.complaint


def test_an_environment_named_twice_is_refused(cli, tmp_path):  # noqa: F811
    path = tmp_path / "mine.yaml"
    path.write_text("environments: [{id: sokoban, size: 5}, {id: sokoban, size: 6}]\n")
    finished = cli("train", path)
    assert finished.code == 2
    assert "'sokoban' is named twice" in finished.complaint


@pytest.mark.parametrize("text", ["- a\n- b\n", "env: [unclosed\n", "\x00\x01", "env: 3\n", "rollout: 7\nenv: bandit\n"])
def test_a_recipe_file_that_is_none_is_refused(cli, tmp_path, text):  # noqa: F811
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    finished = cli("train", path)
    assert finished.code == 2
    assert finished.complaint


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("missing", "there is no model folder"),
        ("file", "is a file"),
        ("no config", "no config.json"),
        ("no weights", "no weights"),
        ("no tokenizer", "no tokenizer"),
        ("broken config", "does not read"),
        ("list config", "config.json"),
        ("unknown architecture", "cannot load the model"),
        ("cut weights", "cannot load the model"),
    ],
)
def test_model_folders_that_cannot_be_used_are_named(cli, tmp_path, damage, expected):  # noqa: F811
    folder = tmp_path / "model"
    if damage == "file":
        folder.write_text("x")
    elif damage != "missing":
        folder.mkdir()
        for path in tiny_folder().iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    config = folder / "config.json"
    if damage == "no config":
        config.unlink()
    if damage == "no weights":
        (folder / "model.safetensors").unlink()
    if damage == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    if damage == "broken config":
        config.write_text('{"model_type": ')
    if damage == "list config":
        config.write_text("[]")
    if damage == "unknown architecture":
        config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "perceptron"}))
    if damage == "cut weights":
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    finished = cli("train", short_recipe(tmp_path), f"model.name={folder}")
    assert finished.code == 3, finished.err
    assert expected in finished.complaint
    assert str(folder) in finished.complaint
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two iterations with two checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    config = load_config(str(short_recipe(folder, iterations=2)))
    return start_run(config, print).run.path


@pytest.fixture
def finished_run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(trained, tmp_path / "finished"))


@pytest.mark.parametrize("damage", ["flipped byte", "cut", "missing file", "empty manifest", "no manifest", "bare manifest"])
def test_a_corrupt_checkpoint_is_refused_and_the_whole_one_named(cli, finished_run, damage):  # noqa: F811
    newest = list_checkpoints(finished_run / "checkpoints")[-1]
    tensors, manifest = newest / "tensors.pt", newest / "manifest.json"
    data = tensors.read_bytes()
    if damage == "flipped byte":
        tensors.write_bytes(data[:500] + bytes([data[500] ^ 1]) + data[501:])
    if damage == "cut":
        tensors.write_bytes(data[:-1])
    if damage == "missing file":
        (newest / "policy" / "model.safetensors").unlink()
    if damage == "empty manifest":
        manifest.write_text("")
    if damage == "no manifest":
        manifest.unlink()
    if damage == "bare manifest":
        manifest.write_text("{}")
        tensors.unlink()
    finished = cli("train", "--resume", finished_run, "iterations=3")
    assert finished.code == 5
    assert "step-000002" in finished.complaint
    assert "step-000001" in finished.complaint
    whole = finished_run / "checkpoints" / "step-000001"
    again = cli("train", "--resume", whole, "iterations=3")
    assert again.code == 0, again.err
    assert [record["step"] for record in read_metrics(finished_run)] == [0, 1, 2, 3]


def test_resuming_what_cannot_be_resumed(cli, tmp_path, finished_run):  # noqa: F811
    finished = cli("train", "--resume", finished_run)
    assert finished.code == 2
    assert "has finished its 2 iterations" in finished.complaint
    assert "iterations=4" in finished.complaint
    assert cli("train", "--resume", tmp_path / "nowhere").code == 2
    assert "is not a run directory" in cli("train", "--resume", tmp_path).complaint
    for path in list_checkpoints(finished_run / "checkpoints"):
        path.rename(path.with_name(f"gone-{path.name}"))
    finished = cli("train", "--resume", finished_run)
    assert finished.code == 5
    assert "no checkpoint in" in finished.complaint


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel refuses longer files, as a full disk refuses them: in the middle of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def assert_earlier_checkpoint_is_whole(run: Path, step: int) -> None:
    (*_, newest) = list_checkpoints(run / "checkpoints")
    assert load_checkpoint(newest).step == step
    assert not list((run / "checkpoints").glob(".*"))


@pytest.mark.parametrize("size", [30_000, 150_000], ids=["model", "optimiser"])
def test_a_disk_that_is_full_in_the_middle_of_a_checkpoint(cli, tmp_path, monkeypatch, size):  # noqa: F811
    weights = (tiny_folder() / "model.safetensors").stat().st_size
    assert 30_000 < weights < 150_000
    original = checkpoint.save_checkpoint

    def limited(folder: Path, step: int, *rest: Any) -> Path:
        if step < 3:
            return original(folder, step, *rest)
        with files_of_at_most(size):
            return original(folder, step, *rest)

    monkeypatch.setattr(loop, "save_checkpoint", limited)
    finished = cli("train", short_recipe(tmp_path))
    assert finished.code == 5, finished.err
    assert "cannot write the checkpoint" in finished.complaint
    run = only_run(tmp_path / "runs")
    assert_earlier_checkpoint_is_whole(run, 2)
    monkeypatch.setattr(loop, "save_checkpoint", original)
    assert cli("train", "--resume", run).code == 0
    assert [record["step"] for record in read_metrics(run)] == list(range(5))


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, matches: str, after: int) -> None:
    """`os.<name>` says that the disk is full for paths that match, from call `after` + 1 on."""
    original, calls = getattr(os, name), [0]

    def full(*args: Any, **options: Any) -> Any:
        if any(matches in str(part) for part in args):
            calls[0] += 1
            if calls[0] > after:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*args, **options)

    monkeypatch.setattr(os, name, full)


@pytest.mark.parametrize(("matches", "after", "step"), [("checkpoints", 2, 2), ("rollouts/train", 1, 1), ("config.yaml", 0, 0)])
def test_a_disk_that_is_full_when_a_file_is_put_in_place(cli, tmp_path, monkeypatch, matches, after, step):  # noqa: F811
    refuse(monkeypatch, "replace", matches, after)
    finished = cli("train", short_recipe(tmp_path))
    assert finished.code == 5
    assert "No space left on device" in finished.complaint
    run = only_run(tmp_path / "runs")
    if step:
        assert_earlier_checkpoint_is_whole(run, step)
    assert not list(run.glob("**/.*.tmp"))


def test_a_disk_that_is_full_for_the_metrics(cli, tmp_path, monkeypatch):  # noqa: F811
    original = loop.Trainer._record

    def record(self: loop.Trainer, step: int, metrics: dict[str, Any]) -> None:
        if step < 3:
            return original(self, step, metrics)
        with files_of_at_most((self.run.path / "metrics.jsonl").stat().st_size + 20):
            return original(self, step, metrics)

    monkeypatch.setattr(loop.Trainer, "_record", record)
    finished = cli("train", short_recipe(tmp_path))
    assert finished.code == 5, finished.err
    assert "metrics.jsonl" in finished.complaint
    run = only_run(tmp_path / "runs")
    assert [item["step"] for item in read_metrics(run)] == [0, 1, 2]
    assert_earlier_checkpoint_is_whole(run, 2)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left on device")])
def test_a_disk_that_is_full_for_the_finished_model(cli, tmp_path, monkeypatch, error):  # noqa: F811
    original = Parts.save_policy

    def save(self: Parts, folder: Path) -> None:
        if folder.name.endswith("model") or ".model" in folder.name:
            raise error
        original(self, folder)

    monkeypatch.setattr(Parts, "save_policy", save)
    finished = cli("train", short_recipe(tmp_path, iterations=2))
    assert finished.code == 5, finished.err
    assert "No space left on device" in finished.complaint
    assert_earlier_checkpoint_is_whole(only_run(tmp_path / "runs"), 2)


@pytest.mark.parametrize("where", ["policy loss", "critic loss", "weights", "last weights"])
def test_numbers_that_are_not_finite_end_the_run_and_keep_the_checkpoint(cli, tmp_path, monkeypatch, where):  # noqa: F811
    original = loop.update

    def update(*args: Any, **options: Any) -> dict[str, float]:
        bad = options["iteration"] == (4 if where == "last weights" else 3)
        with monkeypatch.context() as patch:
            if bad and where == "policy loss":
                honest = policy.policy_loss
                patch.setattr(policy, "policy_loss", lambda *a, **k: nan_loss(honest(*a, **k)))
            if bad and where == "critic loss":
                value = critic.value_loss
                patch.setattr(critic, "value_loss", lambda *a, **k: value(*a, **k) * math.nan)
            found = original(*args, **options)
        if bad and "weights" in where:
            with torch.no_grad():
                args[0].model.get_output_embeddings().weight.fill_(math.nan)
        return found

    monkeypatch.setattr(loop, "update", update)
    finished = cli("train", short_recipe(tmp_path, algorithm="ppo"))
    assert finished.code == 4, finished.err
    assert "nan" in finished.complaint.lower()
    assert any(advice in finished.complaint for advice in ("Lower optimizer.", "an earlier checkpoint"))
    run = only_run(tmp_path / "runs")
    assert [record["step"] for record in read_metrics(run)] == list(range({"weights": 4, "last weights": 4}.get(where, 3)))
    sound = 3 if where == "last weights" else 2
    assert load_checkpoint(run / "checkpoints" / f"step-{sound:06d}").step == sound
    monkeypatch.setattr(loop, "update", original)
    assert cli("train", "--resume", run / "checkpoints" / f"step-{sound:06d}").code == 0
    assert [record["step"] for record in read_metrics(run)] == list(range(5))


def nan_loss(loss: PolicyLoss) -> PolicyLoss:
    return dataclasses.replace(loss, token_loss_BT=loss.token_loss_BT * math.nan)


def rollouts(run: Path) -> list[Any]:
    files = sorted((run / "rollouts").glob("train-*.jsonl"))
    return [trajectory for path in files for trajectory in RolloutBatch.from_jsonl(path).trajectories]


@pytest.mark.parametrize(("fault", "cause"), [("nan", "reward_nan"), ("raise", "raised_valueerror"), ("hang", "hung_for_0_1_s")])
def test_a_broken_environment_costs_its_own_trajectories(cli, tmp_path, fault, cause):  # noqa: F811
    recipe = short_recipe(
        tmp_path,
        env={"id": "tiny-colours", "fault": fault, "hang_s": 0.3},
        iterations=4,
        rollout={"groups": 3, "step_timeout_s": 0.1},
        logging={"rollouts_every": 1},
    )
    finished = cli("train", recipe)
    assert finished.code == 0, finished.err
    run = only_run(tmp_path / "runs")
    played = rollouts(run)
    broken = [trajectory for trajectory in played if not trajectory.valid]
    assert 0 < len(broken) < len(played) / 2
    assert all(trajectory.noise_seed % 4 == 0 and trajectory.fault for trajectory in broken)
    assert all(trajectory.success is False for trajectory in broken)
    records = read_metrics(run)
    counted = {key for record in records for key in record if key.startswith("failures/")}
    assert counted == {f"failures/{cause}"}
    assert sum(record.get(f"failures/{cause}", 0) for record in records) == len(broken)
    assert sum(record.get("policy/optimizer_steps", 0) for record in records) > 0
    assert all(record["policy/loss"] == record["policy/loss"] for record in records if "policy/loss" in record)


def test_an_environment_that_always_breaks_ends_the_run_as_empty(cli, tmp_path):  # noqa: F811
    env = {"id": "tiny-colours", "fault": "raise", "fault_everywhere": True}
    finished = cli("train", short_recipe(tmp_path, env=env, early_stop={"empty_patience": 2}))
    assert finished.code == 6, finished.err
    assert "empty_batches" in finished.out
    run = only_run(tmp_path / "runs")
    assert [record["step"] for record in read_metrics(run)] == [0, 1, 2]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["stopped_early"]["reason"] == "empty_batches"


def test_an_environment_without_levels_is_named(cli, tmp_path):  # noqa: F811
    finished = cli("train", short_recipe(tmp_path, env={"id": "tiny-colours", "fault": "reset"}))
    assert finished.code == 1
    assert "tiny-colours" in finished.complaint
    assert "no level today" in finished.complaint


def test_validation_settings_that_do_not_fit(cli, tmp_path):  # noqa: F811
    finished = cli("train", short_recipe(tmp_path), "rollout.context_tokens=20")
    assert finished.code == 2
    assert "context_tokens" in finished.complaint
