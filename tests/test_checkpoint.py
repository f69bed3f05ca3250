"""Checkpoints are whole or they are refused with what is wrong and what to use instead."""

import json

import pytest
import torch

from ragen2.errors import CheckpointCorrupt, StorageError
from ragen2.training.checkpoint import find_checkpoint, list_checkpoints, load_checkpoint, prune_checkpoints, save_checkpoint


def save(folder, step, value=1.0):
    def policy(path):
        path.mkdir()
        (path / "config.json").write_text("{}")

    return save_checkpoint(folder, step, policy, {"note": "x"}, {"weights": torch.full((3,), value)})


def test_round_trip(tmp_path):
    path = save(tmp_path, 7, 2.5)
    read = load_checkpoint(path)
    assert read.step == 7
    assert read.state["note"] == "x"
    assert read.tensors["weights"].tolist() == [2.5, 2.5, 2.5]
    assert (read.policy / "config.json").is_file()


def test_a_flipped_byte_is_refused_and_the_whole_one_named(tmp_path):
    save(tmp_path, 1)
    broken = save(tmp_path, 2)
    data = bytearray((broken / "tensors.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (broken / "tensors.pt").write_bytes(bytes(data))
    with pytest.raises(CheckpointCorrupt, match=r"tensors\.pt does not match.*step-000001"):
        load_checkpoint(broken)


@pytest.mark.parametrize("damage", ["missing", "empty", "no json", "list"])
def test_a_broken_manifest_is_refused(tmp_path, damage):
    path = save(tmp_path, 1)
    manifest = path / "manifest.json"
    if damage == "missing":
        manifest.unlink()
    else:
        manifest.write_text({"empty": "", "no json": "{", "list": "[]"}[damage])
    with pytest.raises(CheckpointCorrupt, match="No other checkpoint here is whole"):
        load_checkpoint(path)


def test_a_missing_file_is_refused(tmp_path):
    path = save(tmp_path, 1)
    (path / "policy" / "config.json").unlink()
    with pytest.raises(CheckpointCorrupt, match=r"config\.json"):
        load_checkpoint(path)


def test_an_unfinished_checkpoint_is_not_listed_and_is_swept(tmp_path):
    save(tmp_path, 1)
    half = tmp_path / ".step-000002.99.tmp"
    half.mkdir()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000001"]
    prune_checkpoints(tmp_path, 1)
    assert not half.exists()


def test_pruning_keeps_the_newest(tmp_path):
    for step in (1, 2, 10, 3):
        save(tmp_path, step)
    prune_checkpoints(tmp_path, 2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000003", "step-000010"]


def test_a_failing_write_keeps_what_was_there(tmp_path):
    save(tmp_path, 1)

    def full_disk(path):
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="No space left"):
        save_checkpoint(tmp_path, 2, full_disk, {}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert load_checkpoint(tmp_path / "step-000001").step == 1


def test_find_takes_run_directories_and_checkpoints(tmp_path):
    path = save(tmp_path / "checkpoints", 4)
    assert find_checkpoint(tmp_path) == path
    assert find_checkpoint(path) == path
    with pytest.raises(StorageError, match="no checkpoint"):
        find_checkpoint(tmp_path / "elsewhere")


def test_state_is_plain_json(tmp_path):
    path = save(tmp_path, 3)
    assert json.loads((path / "state.json").read_text()) == {"step": 3, "note": "x"}
