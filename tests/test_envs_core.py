"""Registry, splits, grid helpers and the contract check."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragen2
from ragen2.envs import Demonstration, Observation, StepResult, TextEnv, check_env, registry
from ragen2.envs.grid import CELL_NAMES, MOVES, ahead, cell_name, distances_to, parse_move, render_rows, towards
from ragen2.envs.splits import draw_level, level_rng, noise_rng, split_of, validation_seeds
from ragen2.errors import ConfigError, EnvironmentFault, MissingDependency, MissingProgram, UnknownName


class Guess(TextEnv):
    """Name the shown number; `flaw` breaks one rule of the contract at a time."""

    episodes_of_the_process = 0

    def __init__(self, split: str = "train", highest: int = 10_000, flaw: str = "") -> None:
        super().__init__(split)
        if highest < 1:
            raise ValueError("highest must be positive")
        self.highest, self.flaw = highest, flaw
        self._number = 0
        self._last: StepResult | None = None

    @property
    def instructions(self) -> str:
        return "Name the number."

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        Guess.episodes_of_the_process += 1
        seed = level_seed + (Guess.episodes_of_the_process if self.flaw == "counter" else 0)
        split = "train" if self.flaw == "one split" else self.split
        self._number = draw_level(seed, split, lambda rng: int(rng.integers(self.highest)) + 1, str)
        self._noise = np.random.Generator(np.random.PCG64()) if self.flaw == "unseeded" else noise_rng(noise_seed)
        self._last = None
        return Observation(str(self._number))

    def step(self, action: str) -> StepResult:
        if self._last is not None:
            return self._last if self.flaw == "pays twice" else self._last.again()
        if self.flaw == "raises":
            int(action)
        text = str(self._number)
        if not action.isascii() or not action.isdigit() or len(action) > 9:
            shown = "changed" if self.flaw == "moves" else text
            return StepResult(Observation(shown), float(self.flaw == "pays garbage"), False, False, {"legal": False})
        right = int(action) == self._number
        reward = float("nan") if self.flaw == "nan" else self._noise.random() if self.flaw == "unseeded" else float(right)
        info = {"legal": self.flaw != "illegal"} | ({} if self.flaw == "no success" else {"success": right})
        self._last = StepResult(Observation(text), reward, True, False, info)
        return self._last

    def content(self) -> str:
        return str(self._number)

    def demonstrate(self, rng: np.random.Generator, expertise: float, max_actions: int) -> Demonstration:
        return Demonstration(f"the number is {self._number}.", (str(self._number),))


@pytest.fixture
def ids() -> Iterator[None]:
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


def test_built_in_ids_are_listed_without_loading_them() -> None:
    specs = {spec.id: spec for spec in ragen2.list_envs()}
    assert {"frozen-lake", "bandit", "sokoban", "countdown"} <= set(specs)
    assert all(spec.installed and spec.summary for spec in specs.values() if spec.id in ("frozen-lake", "bandit"))
    assert specs["sokoban"].entry_point == "ragen2.envs.sokoban:Sokoban"
    assert specs["countdown"].entry_point == "ragen2.envs.countdown:Countdown"


def test_unknown_names_say_what_is_near() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'frozen-lake'"):
        ragen2.make("frozenlake")
    with pytest.raises(UnknownName, match="Did you mean 'size'"):
        ragen2.make("frozen-lake", sizes=4)
    with pytest.raises(UnknownName, match="Did you mean 'validation'"):
        ragen2.make("frozen-lake", split="valid")
    with pytest.raises(UnknownName, match="option"):
        ragen2.make("bandit", self=1)


def test_register_class_function_and_location(ids: None) -> None:
    ragen2.register("guess", Guess, summary="a number", highest=50)
    env = ragen2.make("guess", split="test")
    assert isinstance(env, Guess)
    assert env.highest == 50
    assert env.split == "test"
    assert env.made_as == ("guess", {})
    assert ragen2.make("guess", highest=7).made_as == ("guess", {"highest": 7})
    ragen2.register("guess", lambda split, **options: Guess(split, **options), highest=60)
    again = ragen2.make("guess")
    assert isinstance(again, Guess)
    assert again.highest == 60
    ragen2.register("lake", "ragen2.envs.frozen_lake:FrozenLake", size=3)
    assert "3 rows and 3 columns" in ragen2.make("lake").instructions
    with pytest.raises(ConfigError, match="highest must be positive"):
        ragen2.make("guess", highest=0)


@pytest.mark.parametrize(
    ("id", "entry", "match"),
    [
        ("bandit", Guess, "built in"),
        ("Guess Me", Guess, "lower-case"),
        ("guess", "no.colon", "package.module:Name"),
        ("guess", "a b:C", "package.module:Name"),
    ],
)
def test_register_refuses(id: str, entry: object, match: str, ids: None) -> None:
    with pytest.raises(ConfigError, match=match):
        ragen2.register(id, entry)  # pyright: ignore[reportArgumentType]


def test_broken_entry_points_are_named(ids: None) -> None:
    ragen2.register("gone", "ragen2.envs.not_there:Env")
    ragen2.register("typo", "ragen2.envs.frozen_lake:FrozenLak")
    ragen2.register("other", lambda split: 3)  # pyright: ignore[reportArgumentType]
    ragen2.register("heavy", Guess, needs=("package_that_is_not_there",), extra="web")
    with pytest.raises(ConfigError, match="cannot be imported"):
        ragen2.make("gone")
    with pytest.raises(ConfigError, match="Did you mean 'FrozenLake'"):
        ragen2.make("typo")
    with pytest.raises(ConfigError, match="returned a int"):
        ragen2.make("other")
    with pytest.raises(MissingDependency, match=r"ragen2\[web\]"):
        ragen2.make("heavy")
    assert not {spec.id: spec for spec in ragen2.list_envs()}["heavy"].installed


def test_import_loads_numpy_only() -> None:
    heavy = "{'torch', 'transformers', 'pydantic', 'yaml', 'typer', 'rich', 'gymnasium'}"
    code = f"import sys, ragen2, ragen2.envs; print({heavy} & set(sys.modules), ragen2.__version__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith("set() ")
    assert out.split()[1]


def test_split_shares_and_values() -> None:
    counts = Counter(split_of(f"level {number}") for number in range(5000))
    assert abs(counts["validation"] - 500) < 90
    assert abs(counts["test"] - 500) < 90
    assert [split_of(text) for text in "abdejl"] == ["train", "train", "validation", "validation", "test", "validation"]


def test_draw_level_is_bounded_and_says_why() -> None:
    with pytest.raises(EnvironmentFault, match="seed 5 gave no train level in 30 draws: 30 were no usable level, 0 belong"):
        draw_level(5, "train", lambda rng: None, str, attempts=30)
    only = next(f"x{n}" for n in itertools.count() if split_of(f"x{n}") == "train")
    with pytest.raises(EnvironmentFault, match="0 were no usable level, 20 belong"):
        draw_level(5, "test", lambda rng: only, str, attempts=20)
    with pytest.raises(ConfigError, match="level_seed is -1"):
        draw_level(-1, "train", lambda rng: 1, str)


def test_noise_and_level_streams_differ() -> None:
    draws = [level_rng(9).random(), level_rng(9, 1).random(), noise_rng(9).random(), noise_rng(10).random()]
    assert len(set(draws)) == 4
    with pytest.raises(ConfigError, match="noise_seed is True"):
        noise_rng(True)


def test_validation_seeds_are_distinct_and_bounded() -> None:
    env = Guess("validation", highest=2000)
    seeds = validation_seeds(env, 40)
    contents = []
    for seed in seeds:
        env.reset(seed, 1)
        contents.append(env.content())
    assert len(set(contents)) == 40
    assert seeds == sorted(set(seeds))
    assert seeds == validation_seeds(lambda: Guess("validation", 2000), 40)
    few = Guess("train", highest=20)
    distinct = sum(split_of(str(number)) == "train" for number in range(1, 21))
    with pytest.raises(ConfigError, match=f"hold only {distinct} distinct"):
        validation_seeds(few, 100)
    filled = validation_seeds(few, 100, repeats=True)
    assert len(set(filled)) == 100
    assert max(filled) == 99
    with pytest.raises(ConfigError, match="at least 1"):
        validation_seeds(few, 0)


def test_cell_names() -> None:
    assert cell_name(2, 1) == "b3"
    assert cell_name(0, 0) == "a1"
    assert cell_name(9, 9) == "j0"
    assert len(set(CELL_NAMES)) == 100
    assert all(len(name) == 2 for name in CELL_NAMES)
    assert {cell_name(row, col) for row in range(10) for col in range(10)} == set(CELL_NAMES)
    for cell in ((10, 0), (0, -1)):
        with pytest.raises(IndexError):
            cell_name(*cell)


def test_moves_and_words() -> None:
    assert ahead((1, 1), "Up") == (0, 1)
    assert ahead((1, 1), "Right") == (1, 2)
    assert towards((2, 1), (0, 3)) == ["right", "up"]
    assert towards((0, 0), (0, 0)) == []
    assert render_rows(["ab", "cd"]) == "a b\nc d"
    ring = {(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (2, 2)}
    assert distances_to((0, 2), ring)[(2, 2)] == 6
    assert (1, 1) not in distances_to((0, 2), ring)


def test_parse_move_takes_exactly_a_direction() -> None:
    assert [parse_move(text) for text in ("Up", " uP \n", "ＤＯＷＮ", "left", "\tRight")] == ["Up", "Up", "Down", "Left", "Right"]
    for text in ("", "Up.", "Up Up", "Up||Down", "U p", "Up\x00", "\u202eUp", "Uр", "1", "٣", "Up" * 40, " " * 70 + "Up"):
        assert parse_move(text) is None, text


@given(st.text(max_size=200))
def test_parse_move_property(text: str) -> None:
    move = parse_move(text)
    assert move is None or (move in MOVES and len(text.strip()) <= 5)


def test_check_env_passes_a_sound_environment(ids: None) -> None:
    ragen2.register("guess", Guess)
    report = check_env(ragen2.make("guess"))
    assert report.ok, str(report)
    assert not report.skipped
    assert str(report) == "Guess: ok"


@pytest.mark.parametrize(
    ("flaw", "rule"),
    [
        ("counter", "prompt is shared by a group"),
        ("unseeded", "trajectories repeat"),
        ("nan", "step results are sound"),
        ("no success", "step results are sound"),
        ("pays twice", "step results are sound"),
        ("raises", "hostile actions are harmless"),
        ("pays garbage", "hostile actions are harmless"),
        ("moves", "hostile actions are harmless"),
        ("one split", "splits are disjoint"),
        ("illegal", "demonstrations are legal"),
    ],
)
def test_check_env_finds_each_flaw(flaw: str, rule: str, ids: None) -> None:
    ragen2.register("guess", Guess)
    report = check_env(ragen2.make("guess", flaw=flaw))
    assert rule in {finding.name for finding in report.findings}, str(report)
    assert not report.ok
    assert rule in str(report)


def test_check_env_without_a_factory_says_what_it_skipped() -> None:
    report = check_env(Guess())
    assert report.ok
    assert [skipped.name for skipped in report.skipped] == ["splits are disjoint"]
    assert check_env(Guess(), make_env=Guess).skipped == ()


def test_levels_are_the_same_in_every_process() -> None:
    code = (
        "import hashlib, ragen2\n"
        "text = ''\n"
        "for id in ('frozen-lake', 'bandit'):\n"
        "    for split in ('train', 'validation', 'test'):\n"
        "        env = ragen2.make(id, split=split)\n"
        "        for seed in range(40):\n"
        "            text += env.reset(seed, seed).text + env.content()\n"
        "            text += repr([env.step(a).observation.text for a in ('Up', 'Left', 'Down', 'Anchor')])\n"
        "print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    digests = set()
    for hash_seed in ("0", "1", "77"):
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
        digests.add(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ).stdout)
    assert len(digests) == 1


def test_a_missing_program_is_named_with_its_package(ids: None) -> None:
    ragen2.register("prover", Guess, programs=["no-such-program-here"])
    assert {spec.id: spec for spec in ragen2.list_envs()}["prover"].missing == ("no-such-program-here",)
    with pytest.raises(MissingProgram, match="no-such-program-here"):
        ragen2.make("prover")


def test_installed_packages_add_environments(ids: None, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("other/guess", f"{__name__}:Guess", registry.PLUGIN_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == registry.PLUGIN_GROUP else [])
    assert "other/guess" in {spec.id for spec in ragen2.list_envs()}
    assert isinstance(ragen2.make("other/guess", highest=9), Guess)
    with pytest.raises(UnknownName, match="Did you mean 'other/guess'"):
        ragen2.make("other/gues")
