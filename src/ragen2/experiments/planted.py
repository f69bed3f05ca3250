"""Lead a healthy policy into every kind of collapse on purpose, and see that each gets its verdict.

    python -m ragen2.experiments.planted --out runs/planted

writes a run directory for every series (each can be given to `ragen2 diagnose` and `ragen2 report`), `planted.md` with the table
and the swap test of two policies, and prints both.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ragen2.envs.base import Demonstration
from ragen2.errors import Ragen2Error
from ragen2.experiments.planted_format import LEAST_RATE, break_by_training
from ragen2.experiments.planted_series import Note, Series, SeriesConfig, grow_trunk, planted_config, run_series
from ragen2.experiments.planted_swap import compare_causes
from ragen2.experiments.planted_table import entropy_sentence, planted_table
from ragen2.experiments.plants import Plant, broken_format, chatty, compressed, constant, ordinary, reasoning_pool, template
from ragen2.storage import write_whole
from ragen2.training.config import RunConfig
from ragen2.training.petri import resolve_model

POOL = 300
"""Reasonings in the pool that ignores the input."""

MAKERS: dict[str, Callable[[Sequence[Demonstration], SeriesConfig], Plant]] = {
    "ordinary": lambda pool, settings: ordinary(settings.expertise),
    "chatty": lambda pool, settings: chatty(settings.expertise),
    "template": lambda pool, settings: template(pool),
    "compressed": lambda pool, settings: compressed(),
    "format": lambda pool, settings: broken_format(settings.expertise),
    "constant": lambda pool, settings: constant(pool[0]),
}
"""Plants by name."""

EXPECTED = {
    "ordinary": ("healthy", None),
    "chatty": ("healthy", "diverse"),
    "template": ("template collapse", "template"),
    "compressed": ("healthy", "compressed"),
    "format": ("format collapse", None),
    "constant": ("entropy collapse", "low entropy"),
}
"""Verdict and regime (None: any) that each plant must get."""


def make_pool(config: RunConfig) -> list[Demonstration]:
    """The pool of reasonings of other prompts, the same for the same configuration."""
    rng = np.random.default_rng(0x9001)
    return reasoning_pool(config.environments[0], config.rollout, POOL, rng)


def run_planted(
    config: RunConfig, names: Sequence[str], settings: SeriesConfig, pool: Sequence[Demonstration], note: Note = print
) -> list[Series]:
    """One series a name, all from one healthy trunk."""
    trunk = grow_trunk(config, settings, lambda line: note(f"healthy, {line}"))
    found = []
    for name in names:
        plant = MAKERS[name](pool, settings)
        found.append(run_series(config, plant, settings, trunk, lambda line, name=name: note(f"{name}, {line}")))
        note(f"{name}: {found[-1].diagnosis.explanation}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0 when every series got its verdict, 1 when one did not."""
    options = _parser().parse_args(arguments)
    settings = SeriesConfig(seed=options.seed)
    config = planted_config(options.model, options.out)
    if options.model == "petri":
        folder = resolve_model(
            "petri", config.environments, config.warmup_seed, config.warmup, rollout=config.rollout, note=print
        )
        config = planted_config(folder, options.out)
    pool = make_pool(config)
    series = run_planted(config, options.plants, settings, pool)
    lines = [planted_table(series), "", entropy_sentence(series)]
    if options.swap:
        lines += ["", *(f"- {item.describe()}" for item in compare_causes(config, pool, settings, steps=12))]
    if options.rl:
        outcome = break_by_training(config.model.name, options.out, learning_rate=options.rl)
        lines += ["", f"GRPO at learning rate {options.rl:g}: {outcome.verdict.explanation}"]
    write_whole(Path(options.out) / "planted.md", ("\n".join(lines) + "\n").encode())
    print("\n".join(lines))
    wrong = [name for name, item in zip(options.plants, series, strict=True) if not as_expected(name, item)]
    if wrong:
        print(f"not as expected: {', '.join(wrong)}")
    return 1 if wrong else 0


def as_expected(name: str, series: Series) -> bool:
    """Whether a series got the verdict and the regime of its plant."""
    verdict, regime = EXPECTED[name]
    return series.diagnosis.verdict == verdict and regime in (None, series.diagnosis.regime)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ragen2.experiments.planted", description="Planted collapse: every kind with its verdict."
    )
    parser.add_argument("--model", default="petri", help="a healthy, warmed-up model folder; default petri for FrozenLake")
    parser.add_argument("--out", default="runs/planted", help="folder for the run directories")
    parser.add_argument("--plants", nargs="+", choices=sorted(MAKERS), default=list(MAKERS), help="which series")
    parser.add_argument("--seed", type=int, default=dataclasses.fields(SeriesConfig)[-1].default, help="seed of the series")
    parser.add_argument("--no-swap", dest="swap", action="store_false", help="leave the swap test of two policies out")
    parser.add_argument(
        "--rl", type=float, metavar="RATE", help=f"also break the format by GRPO at this rate (>= {LEAST_RATE:g})"
    )
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Ragen2Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
