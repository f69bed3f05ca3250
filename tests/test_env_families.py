"""Families of environments behind a prefix, and the page that lists them."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ragen2
from ragen2.cli import app
from ragen2.envs import Observation, StepResult, TextEnv, family_names, list_families, register_family, registry
from ragen2.envs.adapters import reasoning_gym_names, textarena_names
from ragen2.errors import ConfigError, UnknownName

DOCS = Path(__file__).resolve().parents[1] / "docs"


class Echo(TextEnv):
    """Says its own name."""

    def __init__(self, split: str = "train", word: str = "") -> None:
        super().__init__(split)
        self.word = word

    @property
    def instructions(self) -> str:
        return "Listen."

    def reset(self, level_seed: int, noise_seed: int) -> Observation:
        return Observation(self.word)

    def step(self, action: str) -> StepResult:
        return StepResult(Observation(self.word), 0.0, True, False, {"legal": True, "success": False})

    def content(self) -> str:
        return self.word


@pytest.fixture
def families() -> Iterator[None]:
    before = dict(registry._families)
    yield
    registry._families.clear()
    registry._families.update(before)


def test_a_family_makes_its_members(families: None) -> None:
    register_family("echo", Echo, "word", ["b", "a"], summary="says a word")
    env = ragen2.make("echo/a", "test")
    assert isinstance(env, Echo)
    assert (env.word, env.split, env.made_as) == ("a", "test", ("echo/a", {}))
    assert [family_names(family) for family in list_families() if family.prefix == "echo"] == [("a", "b")]
    with pytest.raises(UnknownName, match="Known: a, b"):
        ragen2.make("echo/c")
    register_family("any", Echo, "word", None)
    assert ragen2.make("any/thing goes").reset(0, 0).text == "thing goes"


@pytest.mark.parametrize(
    ("prefix", "entry", "match"),
    [
        ("textarena", Echo, "built in"),
        ("A B", Echo, "lower-case"),
        ("a/b", Echo, "lower-case"),
        ("mine", "nowhere", "entry point"),
    ],
)
def test_register_family_refuses(prefix: str, entry: object, match: str, families: None) -> None:
    with pytest.raises(ConfigError, match=match):
        register_family(prefix, entry, "word", ["a"])  # pyright: ignore[reportArgumentType]


def test_unknown_members_and_prefixes_say_what_is_near() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'chain_sum'"):
        ragen2.make("reasoning-gym/chainsum")
    with pytest.raises(ConfigError, match="left out: downloads word lists"):
        ragen2.make("textarena/Wordle-v0")
    with pytest.raises(UnknownName, match="textarena/\\*"):
        ragen2.make("text-arena/x")


def test_names_are_found_without_the_packages() -> None:
    found = {family.prefix: family_names(family) for family in list_families()}
    assert found["reasoning-gym"] == tuple(sorted(reasoning_gym_names.NAMES))
    assert found["textarena"] == tuple(sorted(textarena_names.NAMES))
    assert found["gymnasium"] is None
    assert len(reasoning_gym_names.NAMES) == 105
    assert not set(textarena_names.NAMES) & set(textarena_names.EXCLUDED)
    assert set(textarena_names.FEW_LEVELS | textarena_names.PAYS_REGRET) <= set(textarena_names.NAMES)
    assert set(reasoning_gym_names.NAMES) >= reasoning_gym_names.SANDBOXED | reasoning_gym_names.COMPARED


def test_envs_lists_one_line_a_family_and_all_on_request() -> None:
    short, long = (CliRunner().invoke(app, ["envs", *extra], env={"COLUMNS": "200"}).output for extra in ([], ["--all"]))
    assert "reasoning-gym/… " in short
    assert "reasoning-gym/chain_sum" not in short
    assert all(f"reasoning-gym/{name} " in long for name in reasoning_gym_names.NAMES)
    assert all(f"textarena/{name} " in long for name in textarena_names.NAMES)


def test_the_page_of_adapters_is_up_to_date() -> None:
    assert (DOCS / "adapters.md").read_text(encoding="utf-8") == runpy.run_path(str(DOCS / "build_adapters.py"))["render"]()
