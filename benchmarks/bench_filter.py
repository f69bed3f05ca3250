"""Time of `select_groups` on a batch: `python benchmarks/bench_filter.py`. The filter should cost under 0.1 % of an iteration."""

from __future__ import annotations

import time

import numpy as np

from ragen2.filtering import FilterConfig, select_groups


def best_seconds(groups: int, group_size: int, repeats: int = 200) -> float:
    """Least and thus least disturbed time of one call."""
    returns_PG = np.random.default_rng(0).normal(size=(groups, group_size))
    config = FilterConfig()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        select_groups(returns_PG, config)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print one line a batch size."""
    for groups in (8, 512):
        print(f"select_groups {groups} x 16: {best_seconds(groups, 16) * 1e6:.0f} microseconds")


if __name__ == "__main__":
    main()
