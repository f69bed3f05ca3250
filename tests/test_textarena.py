"""The adapter of textarena: games for one player, their rewards, ends and chance."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from processes import outputs_under_hash_seeds

import ragen2
from ragen2.envs import check_env
from ragen2.envs.adapters.global_random import GlobalRandom
from ragen2.envs.adapters.textarena import TextArena, _number, _plain
from ragen2.envs.adapters.textarena_names import EXCLUDED, NAMES
from ragen2.errors import ConfigError, EnvironmentFault

pytestmark = pytest.mark.skipif(importlib.util.find_spec("textarena") is None, reason="textarena is not installed")

MOVES = (
    "up",
    "[left]",
    "[1 2]",
    "[0 1]",
    "hit",
    "[10]",
    "[1]",
    "[A 5]",
    "R",
    "[stand]",
    "red",
    "[1 2 3 4]",
    "continue",
    "[reveal 1 1]",
)
SAMPLE = ("FrozenLake-v0-random", "2048-v0-ultra-easy", "Bandit-v0", "Minesweeper-v0-small", "Countdown-v0", "LogicPuzzle-v0")


def make(game: str, split: str = "train") -> TextArena:
    env = ragen2.make(f"textarena/{game}", split)
    assert isinstance(env, TextArena)
    return env


@pytest.mark.parametrize("game", SAMPLE)
def test_contract(game: str) -> None:
    report = check_env(make(game), seeds=(0, 1, 2), steps=15, actions=MOVES)
    assert report.ok, str(report)


def test_names_are_those_of_the_package() -> None:
    code = "import textarena; from textarena.envs.registration import ENV_REGISTRY; print('\\n'.join(ENV_REGISTRY))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()) >= {*NAMES, *EXCLUDED}


def test_left_out_games_say_why() -> None:
    with pytest.raises(ConfigError, match="NLTK"):
        TextArena(game="Wordle-v0")
    with pytest.raises(EnvironmentFault, match="call reset"):
        make("FrozenLake-v0").step("up")


def test_a_win_pays_one() -> None:
    env = make("TowerOfHanoi-v0")
    env.reset(0, 0)
    moves = ["A C", "A B", "C B", "A C", "B A", "B C", "A C"]
    results = [env.step(move) for move in moves]
    assert [result.reward for result in results] == [0.0] * 6 + [1.0]
    assert results[-1].terminated and results[-1].info["success"] is True
    assert env.step("A C").reward == 0.0


def test_an_end_by_the_limit_on_turns_is_a_truncation_without_success() -> None:
    env = make("TowerOfHanoi-v0")
    env.reset(0, 0)
    result = env.step("A C")
    while not result.done:
        result = env.step("C B" if "C: [1]" in result.observation.text or "C: [" in result.observation.text else "B C")
        if not result.info["legal"]:
            result = env.step("B C")
    assert result.truncated and not result.terminated
    assert result.info["success"] is False


@pytest.mark.parametrize(
    "game", ["Countdown-v0", "Cryptarithm-v0", "Slitherlink-v0", "ThreeCardMonte-v0", "2048-v0", "PegJump-v0"]
)
def test_an_end_by_invalid_moves_pays_nothing(game: str) -> None:
    env = make(game)
    first = env.reset(0, 0).text
    warned = env.step("nonsense")
    assert not warned.done and warned.info["legal"] is False and first in warned.observation.text
    ended = env.step("nonsense")
    assert ended.terminated and ended.info == {"legal": False, "success": False}
    assert ended.reward == 0.0


def test_a_wrong_choice_of_the_bandit_is_not_paid_its_regret() -> None:
    env = make("Bandit-v0")
    env.reset(0, 0)
    env._current()
    truth: dict[str, float] = env._played.state.game_state["ground_truth"]
    worst, best = min(truth, key=lambda name: truth[name]), max(truth, key=lambda name: truth[name])
    for choice, paid in ((worst, 0.0), (best, 1.0)):
        env.reset(0, 0)
        result = env.step(worst)
        while not result.done:
            result = env.step(choice if env._played.state.turn == env._played.num_turns else worst)
        assert (result.reward, result.info["success"], result.truncated) == (paid, paid == 1.0, False)


@pytest.mark.parametrize(
    ("reward", "paid"), [("Bad action", 0.0), (None, 0.0), (float("nan"), 0.0), (7, 1.0), (-9.0, -1.0), (True, 0.0), (0.25, 0.25)]
)
def test_rewards_are_numbers_within_bounds(reward: object, paid: float) -> None:
    assert _number(reward) == paid


def test_chance_follows_the_noise_seed_and_the_level_its_own() -> None:
    env = make("2048-v0")

    def play(level: int, noise: int) -> list[str]:
        return [env.reset(level, noise).text] + [env.step(move).observation.text for move in ("left", "up", "right", "down") * 2]

    assert play(1, 1) == play(1, 1)
    assert play(1, 1)[0] == play(1, 2)[0]
    assert play(1, 1) != play(1, 2)
    assert play(1, 1)[0] != play(2, 1)[0]


def test_the_global_generators_are_left_as_they_were() -> None:
    random.seed(5)
    np.random.seed(5)
    wanted = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    env = make("2048-v0")
    env.reset(3, 4)
    env.step("left")
    assert (random.random(), np.random.random()) == wanted


def test_a_lent_stream_goes_on_where_it_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    def draw(pauses: bool) -> list[float]:
        stream, drawn = GlobalRandom(np.random.default_rng(3)), []
        for _ in range(3):
            with stream.lent():
                print("noise")
                drawn += [random.random(), float(np.random.random())]
            if pauses:
                random.random()
        return drawn

    assert draw(True) == draw(False)
    assert capsys.readouterr().out == ""


def test_levels_are_the_same_under_any_hash_seed() -> None:
    code = (
        "import ragen2\n"
        "for game in ('Crosswords-v0', 'LogicPuzzle-v0', 'Mastermind-v0'):\n"
        "    env = ragen2.make('textarena/' + game, 'test'); print(env.reset(3, 0).text, env.content()[-16:])"
    )
    assert len(outputs_under_hash_seeds(code)) == 1


def test_hidden_parts_tell_levels_apart() -> None:
    env = make("Mastermind-v0")
    contents = {(env.reset(seed, 0).text, env.content()) for seed in range(6)}
    assert len({text for text, _ in contents}) == 1
    assert len(contents) > 1


def test_plain_values_do_not_depend_on_order() -> None:
    class Held:
        def __init__(self) -> None:
            self.board, self.words = np.zeros((2, 2)), {"b", "a"}

    shown: Any = _plain({"z": Held(), "a": {3, 1, 2}}, 9)
    assert shown == [["a", [1, 2, 3]], ["z", ["Held", [["board", [[0.0, 0.0], [0.0, 0.0]]], ["words", ["a", "b"]]]]]]


@pytest.mark.parametrize(
    "move", ["", "\x00", "\x1b[31m", "\ud800", "9" * 201, "[" * 200, "[٣ ٤]", "[1 2]" * 40, "[-1 -1]", "[99999999999999999999 1]"]
)
def test_hostile_moves_are_illegal_and_pay_nothing(move: str) -> None:
    for game in ("Countdown-v0", "Minesweeper-v0", "PegJump-v0", "FifteenPuzzle-v0", "Sudoku-v0-very-easy"):
        env = make(game)
        env.reset(0, 0)
        result = env.step(move)
        assert result.reward <= 0.0 and not result.done, game


@pytest.mark.slow
@pytest.mark.parametrize("game", NAMES)
def test_every_game_keeps_the_contract(game: str) -> None:
    report = check_env(make(game), seeds=(0, 1), steps=12, actions=MOVES)
    assert report.ok, str(report)
