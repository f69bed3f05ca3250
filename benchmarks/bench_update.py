"""What the filter costs and saves: one FrozenLake batch of 8 x 16, all groups trained on against half of them.

Usage: python benchmarks/bench_update.py [--repeats 3] [--algorithm ppo] [--threads 2] [--autocast none]
Prints the seconds of rollout, filter and update, the filter's share of an iteration, and how much faster the update is when
half the groups are dropped. The model is a random petri, so replies run to their limit.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from ragen2.filtering import select_groups
from ragen2.training.config import RunConfig, load_config
from ragen2.training.levels import LevelCursor
from ragen2.training.petri import PetriConfig, new_petri, petri_tokenizer
from ragen2.training.setup import Parts, build_parts
from ragen2.training.update import update
from ragen2.trajectory import RolloutBatch


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--algorithm", default="ppo")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--autocast", default="none")
    args = parser.parse_args()
    overrides = [f"algorithm={args.algorithm}", f"model.autocast={args.autocast}", f"model.threads={args.threads}"]
    with tempfile.TemporaryDirectory() as folder:
        config = load_config("frozen-lake", [*overrides, f"model={random_petri(Path(folder))}"])
        parts = build_parts(config, folder)
        batch, rollout_s = rollout(config, parts)
        filter_s = filter_seconds(config, batch)
        whole, half = [], []
        for number in range(args.repeats + 1):
            timed = [update_seconds(config, parts, batch, kept) for kept in (8, 4)]
            if number:
                whole.append(timed[0])
                half.append(timed[1])
    update_s, filtered_s = float(np.median(whole)), float(np.median(half))
    share, saved = filter_s / (rollout_s + filtered_s), 1 - filtered_s / update_s
    print(f"rollout {rollout_s:.2f} s, filter {1e3 * filter_s:.3f} ms")
    print(f"update of 8 groups {update_s:.2f} s, of 4 groups {filtered_s:.2f} s")
    print(f"filter: {100 * share:.4f} % of an iteration")
    print(f"update with half the groups dropped: {100 * saved:.0f} % faster ({update_s / filtered_s:.2f} times)")


def random_petri(folder: Path) -> Path:
    """A petri with random weights, saved to a folder."""
    config = load_config("frozen-lake")
    tokenizer = petri_tokenizer(config.environments, config.rollout, PetriConfig().vocabulary)
    new_petri(PetriConfig(), tokenizer, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rollout(config: RunConfig, parts: Parts) -> tuple[RolloutBatch, float]:
    """One batch of the recipe's size and the seconds it took."""
    rng = np.random.default_rng(0)
    levels = LevelCursor(config.environments, rng).take(config.rollout.groups, config.rollout.group_size)
    seeds = rng.integers(2**62, size=config.rollout.groups * config.rollout.group_size).tolist()
    started = time.perf_counter()
    return parts.collector.collect(levels, seeds), time.perf_counter() - started


def filter_seconds(config: RunConfig, batch: RolloutBatch) -> float:
    """Seconds of one selection over returns as uneven as in training."""
    shape = (len(batch.groups), config.rollout.group_size)
    returns_PG = (np.random.default_rng(1).random(shape) < 0.3).astype(float)
    started = time.perf_counter()
    for _ in range(100):
        select_groups(returns_PG, config.filter)
    return (time.perf_counter() - started) / 100


def update_seconds(config: RunConfig, parts: Parts, batch: RolloutBatch, kept: int) -> float:
    """Seconds of an update on the first `kept` groups."""
    kept_P = np.arange(len(batch.groups)) < kept
    torch.manual_seed(0)
    started = time.perf_counter()
    update(
        parts, batch, kept_P, config, np.random.default_rng(2),
        scale=1.0, iteration=1, reference=None, progress=lambda done, total: None,
    )  # fmt: skip
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
