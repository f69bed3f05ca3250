"""Planted collapse: the machinery on a tiny model, and (slow) every kind of collapse on petri with its verdict."""

import itertools

import numpy as np
import pytest
from fakes import APPEND
from tiny import Colours, one_thread, tiny_folder, tiny_settings  # noqa: F401

import ragen2
from ragen2.diagnostics import diagnose
from ragen2.envs.base import Demonstration
from ragen2.errors import ConfigError
from ragen2.experiments.planted import as_expected, make_pool, run_planted
from ragen2.experiments.planted_format import break_by_training
from ragen2.experiments.planted_series import SeriesConfig, grow_trunk, planted_config, run_series
from ragen2.experiments.planted_swap import compare_causes
from ragen2.experiments.planted_table import course, entropy_sentence, planted_table
from ragen2.experiments.plants import (
    CHATTER,
    CHATTER_LENGTH,
    PlantedStream,
    broken_format,
    chatty,
    compressed,
    constant,
    obedient,
    ordinary,
    reasoning_pool,
    spoil_format,
    template,
)
from ragen2.prompting.reply import parse_reply
from ragen2.rollout.config import RolloutConfig
from ragen2.training.config import parse_config
from ragen2.training.petri import resolve_model
from ragen2.training.settings import EnvironmentConfig

LAKE = EnvironmentConfig("frozen-lake")
ROLLOUT = RolloutConfig(turn_tokens=200, context_tokens=8000)


class TaughtColours(Colours):
    """Colours with demonstrations: the reasoning names the level, the solver says "up"."""

    def demonstrate(self, rng, expertise, max_actions):
        action = "up" if rng.random() < expertise else ("up", "down")[int(rng.integers(2))]
        return Demonstration(f" level {self.level} {'ab'[int(rng.integers(2))]} {action}", (action,))


ragen2.register("tiny-taught", TaughtColours)


def lake(seed=3):
    env = ragen2.make("frozen-lake")
    env.reset(seed, 0)
    return env


def lake_pool() -> list[Demonstration]:
    return reasoning_pool(LAKE, ROLLOUT, 40, np.random.default_rng(0))


def shown(plant, share, count=8, seed=0) -> list[str]:
    stream = PlantedStream(LAKE, APPEND, ROLLOUT, ordinary(0.9), plant, seed=seed)
    stream.share = share
    try:
        return [APPEND.decode(row.ids) for row in itertools.islice(stream.rows(), count)]
    finally:
        stream.close()


def replies(text: str) -> list[str]:
    return [part.partition("<|im_end|>")[0] for part in text.split("<|im_start|>assistant\n<think>")[1:]]


def parse(reply: str):
    return parse_reply(reply, multi_action=True, max_actions=2)


def test_template_reasons_from_the_pool_and_acts_on_the_board() -> None:
    pool, rng, env = lake_pool(), np.random.default_rng(1), lake()
    right = {env.demonstrate(rng, 1.0, 2).actions for _ in range(200)}
    drawn = [template(pool).demonstrate(env, rng, 2) for _ in range(100)]
    assert {item.reasoning for item in drawn} <= {item.reasoning for item in pool}
    assert len({item.reasoning for item in drawn}) > 30
    assert {item.actions for item in drawn} <= right


def test_obedient_does_what_the_drawn_reasoning_says() -> None:
    pool, rng = lake_pool(), np.random.default_rng(1)
    for _ in range(50):
        drawn = obedient(pool).demonstrate(lake(), rng, 2)
        assert (drawn.reasoning, drawn.actions) in {(item.reasoning, item.actions) for item in pool}
    assert all(len(obedient(pool).demonstrate(lake(), rng, 1).actions) == 1 for _ in range(10))


def test_compressed_is_one_reasoning_a_state_and_another_in_the_next() -> None:
    rng = np.random.default_rng(1)
    assert len({compressed().demonstrate(lake(), rng, 2) for _ in range(20)}) == 1
    assert len({compressed().demonstrate(lake(seed), rng, 2).reasoning for seed in range(20)}) > 12


def test_chatter_stands_before_reasoning_about_this_board() -> None:
    rng, env = np.random.default_rng(1), lake()
    spoken = [chatty(1.0).demonstrate(env, rng, 2).reasoning.partition(". ") for _ in range(50)]
    assert len({words for words, _, _ in spoken}) == 50
    assert all(len(words.split()) == CHATTER_LENGTH and set(words.split()) <= set(CHATTER) for words, _, _ in spoken)
    player = env.reset(3, 0).text.partition("player ")[2][:2]
    assert all(player in own for _, _, own in spoken)


def test_constant_says_the_same_everywhere() -> None:
    reply = lake_pool()[0]
    rng = np.random.default_rng(1)
    assert {constant(reply).demonstrate(lake(seed), rng, 2) for seed in range(20)} == {reply}


def test_every_spoilt_reply_fails_to_parse_in_its_own_way() -> None:
    rng = np.random.default_rng(0)
    whole = "go up</think><answer>Up || Up</answer>"
    assert parse(whole).status == "ok"
    statuses = {parse(spoil_format(whole, rng)).status for _ in range(100)}
    assert statuses == {"no_think_end", "repeated_think", "no_answer", "stray_text"}


def test_a_share_of_the_turns_is_planted() -> None:
    said = constant(Demonstration("nothing at all.", ("Up",)))
    counts = {}
    for share in (0.0, 0.5, 1.0):
        spoken = [reply for text in shown(said, share, 60) for reply in replies(text)]
        counts[share] = np.mean(["nothing at all." in reply for reply in spoken])
    assert counts[0.0] == 0
    assert 0.35 < counts[0.5] < 0.65
    assert counts[1.0] == 1


def test_an_example_ends_at_its_broken_reply() -> None:
    for text in shown(broken_format(0.9), 0.4, 30):
        *before, last = replies(text)
        assert all(parse(reply).status == "ok" for reply in before)
        if text.count("Turn ") - 1 < 5 and parse(last).status != "ok":
            assert text.rstrip().endswith("<|im_end|>")
    assert all(len(replies(text)) == 1 for text in shown(broken_format(0.9), 1.0, 10))


def test_rows_follow_from_the_seed() -> None:
    plant = template(lake_pool())
    assert shown(plant, 0.5) == shown(plant, 0.5)
    assert shown(plant, 0.5) != shown(plant, 0.5, seed=1)


def test_the_share_rises_to_one() -> None:
    settings = SeriesConfig(healthy_steps=2, mixing_steps=4, held_steps=3, validate_every=4)
    assert [settings.share(step) for step in range(10)] == [0, 0, 0, 0.25, 0.5, 0.75, 1, 1, 1, 1]
    assert [step for step in range(10) if settings.validates(step)] == [0, 2, 4, 8, 9]
    with pytest.raises(ConfigError, match="mixing_steps is 0"):
        SeriesConfig(mixing_steps=0)


def tiny_planted(tmp_path):
    changes = {"env": "tiny-taught", "out": str(tmp_path), "monitor": {"every": 1, "views": ["first_turn", "probe"]}}
    return parse_config(tiny_settings(**changes, rollout={"groups": 4, "group_size": 2}))


def test_series_share_a_trunk_and_leave_run_directories(tmp_path) -> None:
    config = tiny_planted(tmp_path)
    settings = SeriesConfig(
        healthy_steps=2, mixing_steps=1, held_steps=2, validate_every=2, optimizer_steps=2, batch_tokens=512, learning_rate=1e-3
    )
    lines: list[str] = []
    trunk = grow_trunk(config, settings, lines.append)
    plants = [ordinary(0.9), constant(Demonstration(" a", ("down",)))]
    first, second = (run_series(config, plant, settings, trunk, lines.append) for plant in plants)
    again = run_series(config, plants[1], settings, trunk, lines.append)
    assert [record["step"] for record in first.history] == list(range(6))
    assert first.history[:3] == second.history[:3]
    assert first.history[4] != second.history[4]
    assert [{k: v for k, v in r.items() if not k.startswith("time")} for r in again.history] == second.history
    for series in (first, second):
        assert diagnose(series.run.path).verdict == series.diagnosis.verdict
        assert (series.run.path / "config.yaml").is_file()
        assert [record["planted/share"] for record in series.history] == [0, 0, 0, 1, 1, 1]
        assert all("policy/entropy" in record and "collapse/valid_think_rate" in record for record in series.history)
        assert [r["step"] for r in series.history if "validation/tiny-taught/success" in r] == [0, 2, 4, 5]
    assert len(lines) == 3 + 3 * 3
    table = planted_table([first, second])
    assert table.count("\n") == 3
    assert "| constant |" in table
    spread = course(first.history, "policy/entropy")
    assert spread is not None
    assert spread.lowest <= spread.end <= spread.highest
    assert "cannot be compared" in entropy_sentence([first])


def test_a_low_learning_rate_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="the format holds"):
        break_by_training("petri", tmp_path, learning_rate=1e-4)


@pytest.fixture(scope="module")
def petri():
    config = planted_config("petri", "runs")
    return resolve_model("petri", config.environments, config.warmup_seed, config.warmup, rollout=config.rollout)


@pytest.mark.slow
def test_every_planted_series_gets_its_verdict_and_entropy_alone_would_not_do(petri, tmp_path) -> None:
    """Fewer and smaller measurements than `python -m ragen2.experiments.planted` makes, of the same states."""
    config = planted_config(
        petri,
        tmp_path,
        "rollout.group_size=2",
        "validation.levels=48",
        "monitor.views=[probe]",
        "monitor.probe_prompts=24",
    )
    settings = SeriesConfig(healthy_steps=2, mixing_steps=1, held_steps=5, validate_every=4)
    names = ["chatty", "template", "compressed", "format", "constant"]
    series = run_planted(config, names, settings, make_pool(config))
    table = planted_table(series)
    assert [name for name, item in zip(names, series, strict=True) if not as_expected(name, item)] == [], table
    assert "entropy alone cannot tell them apart" in entropy_sentence(series), table


@pytest.mark.slow
def test_the_swap_test_tells_an_action_that_ignores_its_reasoning_from_one_that_follows_it(petri, tmp_path) -> None:
    config = planted_config(petri, tmp_path)
    ignores, follows = compare_causes(config, make_pool(config), SeriesConfig(), steps=8, levels=16)
    for item in (ignores, follows):
        assert float(item.figures["collapse/first_turn/mi_ratio"]) < 0.3, item.describe()
    low, high = (item.causality.counterfactual.effect_of_reasoning for item in (ignores, follows))
    assert low is not None
    assert high is not None
    assert low.high < 0.25 and high.low > 0.5, (ignores.describe(), follows.describe())
