"""Files and words made to harm: refused by name in one line, never loaded, never followed out of their folder."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from tiny import cli, one_thread, only_run, random_batch, tiny_recipe  # noqa: F401

from ragen2.errors import CheckpointCorrupt, ConfigError, StorageError
from ragen2.reports.text import as_number
from ragen2.training.checkpoint import load_checkpoint, save_checkpoint
from ragen2.training.run_dir import RunDirectory, new_run_directory, only_trainer
from ragen2.trajectory import RolloutBatch
from ragen2.yaml_text import parse_yaml

LAUGHS = "\n".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &a [x, x, x, x, x, x, x, x, x]\n" + LAUGHS, "once its aliases are written out"),
        ("a: &a [*a]", "nested too deeply"),
        ("[" * 3000, "nested too deeply"),
        ("[" * 30 + "]" * 30, "nested too deeply"),
        ("seed: " + "9" * 5000, "is not YAML"),
        ("seed: 2020-13-45", "is not YAML"),
        ("a: !!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_yaml_is_plain_and_bounded(text, expected):
    with pytest.raises(ConfigError, match=f"^the recipe file.*{expected}"):
        parse_yaml(text, "the recipe file")


def test_anchors_of_a_sane_size_are_written_out():
    assert parse_yaml("a: &x {k: 1}\nb: *x", "text") == {"a": {"k": 1}, "b": {"k": 1}}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("env.split=test", "env.split is no setting"),
        ("env.options=3", "env.options is 3"),
        ("env.options=", "env.options is None"),
        ("seed=-1", "seed is -1"),
        ("warmup_seed=99999999999999999999", "warmup_seed is 99999999999999999999"),
        ("optimizer.betas=[2,2]", "optimizer.betas is (2.0, 2.0)"),
        ("optimizer.weight_decay=-1", "optimizer.weight_decay is -1"),
        ("optimizer.warmup_steps=-1", "optimizer.warmup_steps is -1"),
        ("validation.temperature=.nan", "validation.temperature is nan"),
        ("model.threads=0", "model.threads is 0"),
        ("model.threads=99999", "model.threads is 99999"),
        ("model.lora.r=0", "model.lora.r is 0"),
        ("model.lora.dropout=7", "model.lora.dropout is 7"),
        ("logging.rollouts_every=-1", "logging.rollouts_every is -1"),
        ("rollout.group_size=1", "nothing would be kept"),
        ("evn.slip=0.1", "Did you mean 'env'"),
    ],
)
def test_values_that_would_fail_later_are_refused_at_once(cli, override, expected):  # noqa: F811
    finished = cli("train", "frozen-lake", override, "--print-config")
    assert finished.code == 2
    assert expected in finished.complaint


@pytest.mark.parametrize("typed", ["", "up||\x1b[31m\n", "\ud800\n" * 3, "a" * 50_000 + "\n"])
def test_a_game_ends_with_its_input(cli, monkeypatch, typed):  # noqa: F811
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    finished = cli("play", "frozen-lake")
    assert finished.code == 0
    assert "stopped, return 0" in finished.out


def test_a_game_needs_an_action_a_turn_and_its_own_split_option(cli):  # noqa: F811
    assert cli("play", "frozen-lake", "--actions-per-turn", "0").code == 2
    assert "--split test" in cli("play", "frozen-lake", "split=test").complaint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sampled_ids", [2**40]), ("logprobs", [-1.0]), ("reply", 3), ("observation", None), ("index", "x"), ("truncated", "no"),
        ("context_keeps", -3), ("context_keeps", 10**6), ("reasoning_span", [-5, 10**9]), ("reasoning_span", {}),
        ("actions", "up"),
    ],
)  # fmt: skip
def test_a_rollout_line_of_the_wrong_kind_is_named(tmp_path, name, value):
    path = tmp_path / "rollouts.jsonl"
    random_batch().to_jsonl(path)
    header, first, *rest = path.read_text().splitlines()
    record = json.loads(first)
    record["turns"][0][name] = value
    path.write_text("\n".join([header, json.dumps(record), *rest]) + "\n")
    with pytest.raises(StorageError, match="line 2"):
        RolloutBatch.from_jsonl(path)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"group": ' + "9" * 5000 + "}", "3", ""])
def test_a_rollout_line_that_is_not_an_object_is_named(tmp_path, line):
    path = tmp_path / "rollouts.jsonl"
    random_batch().to_jsonl(path)
    path.write_text(path.read_text().splitlines()[0] + "\n" + line + "\n")
    with pytest.raises(StorageError, match="line 2"):
        RolloutBatch.from_jsonl(path)


class Exploit:
    """Makes a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


def small_checkpoint(folder: Path) -> Path:
    def save_policy(policy: Path) -> None:
        policy.mkdir()
        (policy / "weights").write_bytes(b"w")

    return save_checkpoint(folder, 1, save_policy, {"start_model": "m"}, {})


def rewrite(checkpoint: Path, **changed: bytes) -> None:
    """Put other contents in place, checksums to match."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for name, data in changed.items():
        file = {"tensors": "tensors.pt", "state": "state.json"}[name]
        (checkpoint / file).write_bytes(data)
        manifest[file] = hashlib.sha256(data).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("name", ["../../x", "/dev/zero", "policy", "policy/linked"])
def test_a_manifest_cannot_name_what_is_not_in_the_checkpoint(tmp_path, name):
    (tmp_path / "x").write_bytes(b"x")
    checkpoint = small_checkpoint(tmp_path / "checkpoints")
    (checkpoint / "policy" / "linked").symlink_to("/dev/zero")
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest[name] = hashlib.sha256(b"x").hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointCorrupt, match="is not a file of this checkpoint"):
        load_checkpoint(checkpoint)


def test_a_file_beside_the_listed_ones_is_refused(tmp_path):
    checkpoint = small_checkpoint(tmp_path)
    (checkpoint / "policy" / "extra.py").write_text("boom")
    with pytest.raises(CheckpointCorrupt, match=r"does not list policy/extra\.py"):
        load_checkpoint(checkpoint)


def test_a_checkpoint_runs_no_code(tmp_path):
    checkpoint = small_checkpoint(tmp_path / "checkpoints")
    rewrite(checkpoint, tensors=pickle.dumps(Exploit(tmp_path / "owned"), protocol=2))
    with pytest.raises(CheckpointCorrupt, match="it holds more than tensors") as caught:
        load_checkpoint(checkpoint)
    assert "weights_only" not in str(caught.value)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("state", [b"[]", b'{"step": "x"}', b"{}", b"[" * 100_000])
def test_a_state_that_is_no_state_is_corrupt(tmp_path, state):
    checkpoint = small_checkpoint(tmp_path)
    rewrite(checkpoint, state=state)
    with pytest.raises(CheckpointCorrupt, match="does not read"):
        load_checkpoint(checkpoint)


def test_a_run_goes_on_only_as_itself(cli, tmp_path):  # noqa: F811
    assert cli("train", tiny_recipe(tmp_path, iterations=1, monitor={"every": 0})).code == 0
    run = only_run(tmp_path / "runs")
    before = (run / "config.yaml").read_text(), (run / "metrics.jsonl").read_text()
    for override in ("seed=7", "algorithm=ppo", "env=bandit", "model.name=elsewhere", "model.lora.r=2", "recipe=x"):
        finished = cli("train", "--resume", run, "iterations=2", override)
        assert finished.code == 2, finished.err
        assert "start a new run" in finished.complaint
    checkpoint = run / "checkpoints" / "step-000001"
    whole = (checkpoint / "state.json").read_bytes()
    rewrite(checkpoint, state=json.dumps({"step": 1}).encode())
    finished = cli("train", "--resume", run, "iterations=2")
    assert finished.code == 5 and "names no start_model" in finished.complaint
    rewrite(checkpoint, state=json.dumps({"step": 0, "start_model": json.loads(whole)["start_model"]}).encode())
    finished = cli("train", "--resume", run, "iterations=2")
    assert finished.code == 5 and "does not fit the settings" in finished.err
    # Nothing of the run was given up by the tries.
    assert ((run / "config.yaml").read_text(), (run / "metrics.jsonl").read_text()) == before
    rewrite(checkpoint, state=whole)
    assert cli("train", "--resume", run, "iterations=2").code == 0


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    run = RunDirectory(tmp_path)
    with only_trainer(run), pytest.raises(ConfigError, match="another process is training"), only_trainer(run):
        raise AssertionError("both hold the lock")
    with only_trainer(run):
        assert (tmp_path / ".lock").is_file()


@pytest.mark.parametrize("recipe", ["a/b\0c", "..", "[/red]", "x" * 500, "", "/"])
def test_a_recipes_name_makes_one_plain_folder(tmp_path, recipe):
    run = new_run_directory(str(tmp_path), recipe, "ppo")
    assert run.path.parent == tmp_path
    assert run.path.name[0] not in ".-["
    assert len(run.path.name) < 100


def test_a_folder_whose_name_cannot_exist_is_a_storage_error():
    with pytest.raises(StorageError, match="cannot make the run directory"):
        new_run_directory("a\0b", "r", "ppo")


def test_numbers_beyond_floats_are_no_numbers():
    assert as_number(10**400) is None
    assert as_number(3) == 3.0
