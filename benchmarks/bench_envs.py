"""Steps and resets a second of every installed environment, and what share of an iteration stepping would be.

`python benchmarks/bench_envs.py [--seconds 2] [ID …]`. Actions are the demonstrator's (half of them random), so episodes move on
as they do in training; where there is none, a reply that is no action. The share is of an iteration of 128 episodes of 10 actions
that takes 15 seconds, as `frozen-lake` does on two cores.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

import ragen2
from ragen2.envs.base import TextEnv
from ragen2.errors import Ragen2Error

ITERATION_STEPS = 128 * 10
ITERATION_SECONDS = 15.0


@dataclass(frozen=True)
class Speed:
    """Calls and the seconds they took, without what the demonstrator needed to choose actions."""

    resets: int
    reset_seconds: float
    steps: int
    step_seconds: float


def measure(env: TextEnv, seconds: float) -> Speed:
    """Play episodes for about `seconds`."""
    rng = np.random.default_rng(0)
    resets = steps = 0
    reset_seconds = step_seconds = 0.0
    begin = time.perf_counter()
    while not steps or time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        env.reset(resets, resets)
        reset_seconds += time.perf_counter() - before
        resets += 1
        for _ in range(20):
            try:
                actions = env.demonstrate(rng, 0.5, 1).actions or ("wait",)
            except NotImplementedError:
                actions = ("wait",)
            before = time.perf_counter()
            result = env.step(actions[0])
            step_seconds += time.perf_counter() - before
            steps += 1
            if result.done or time.perf_counter() - begin > seconds:
                break
    return Speed(resets, reset_seconds, steps, step_seconds)


def main() -> None:
    """Print a line an environment."""
    parser = argparse.ArgumentParser(description="steps a second of the environments")
    parser.add_argument("ids", nargs="*", help="environments; all installed ones by default")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each environment")
    arguments = parser.parse_args()
    known = [spec.id for spec in ragen2.list_envs() if spec.installed]
    print(f"{'environment':<24}{'steps/s':>12}{'ms a step':>11}{'resets/s':>11}{'ms a reset':>12}{'share of an iteration':>23}")
    for id in arguments.ids or known:
        try:
            env = ragen2.make(id)
            speed = measure(env, arguments.seconds)
        except Ragen2Error as error:
            print(f"{id:<24}not measured: {' '.join(str(error).split())[:90]}")
            continue
        env.close()
        step_ms, reset_ms = 1e3 * speed.step_seconds / speed.steps, 1e3 * speed.reset_seconds / speed.resets
        share = ITERATION_STEPS * step_ms / 1e3 / ITERATION_SECONDS
        print(f"{id:<24}{1e3 / step_ms:>12,.0f}{step_ms:>11.3f}{1e3 / reset_ms:>11,.0f}{reset_ms:>12.3f}{share:>23.3%}")


if __name__ == "__main__":
    main()
