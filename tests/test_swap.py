"""Swap test and counterfactual test: figures worked out by hand, and scripted policies whose cause of action is known."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from fakes import APPEND, APPEND_MANY, fake_logprobs, play
from tiny import cli, one_thread, only_run, tiny_config, tiny_folder, tiny_recipe  # noqa: F401

from ragen2.diagnostics.action_distance import jensen_shannon_distance, normalised, total_variation
from ragen2.diagnostics.action_scores import ActionScores, PromptPairs, SamplePairs, SwapConfig, score_actions
from ragen2.diagnostics.answers import answer_set, move_answers
from ragen2.diagnostics.counterfactual import counterfactual_test
from ragen2.diagnostics.prompt_bootstrap import estimate, prompt_draws
from ragen2.diagnostics.swap_metrics import causality_test, swap_metrics
from ragen2.diagnostics.swap_test import swap_test
from ragen2.envs.grid import MOVES
from ragen2.errors import ConfigError, NotMeasurable, TokenMismatch
from ragen2.training.metrics_log import read_metrics
from ragen2.training.run import start_run
from ragen2.trajectory import RolloutBatch

SURE = 0.9
PAIR = SwapConfig(resamples=200)


def rng(seed=0) -> np.random.Generator:
    return np.random.default_rng(seed)


class Mind:
    """A scorer: `decide(what was shown, reasoning)` names an answer, which gets probability `sure`; the others share the rest.

    Every asked pair of context and reasoning is kept in `asked`.
    """

    def __init__(self, decide, chat=APPEND, sure=SURE) -> None:
        self.decide, self.chat, self.sure = decide, chat, sure
        self.asked: list[tuple[str, str]] = []

    def score(self, contexts, continuations):
        return [self._one(context, tails) for context, tails in zip(contexts, continuations, strict=True)]

    def _one(self, context, tails):
        shown, _, reasoning = self.chat.decode(context).rpartition("<think>")
        self.asked.append((shown, reasoning))
        chosen = self.decide(shown, reasoning)
        answers = [self.chat.decode(ids).partition("<answer>")[2].partition("</answer>")[0].strip() for ids in tails]
        chances = [self.sure if answer == chosen else (1 - self.sure) / (len(answers) - 1) for answer in answers]
        return [np.array([math.log(chance)] + [0.0] * (len(ids) - 1)) for chance, ids in zip(chances, tails, strict=True)]


def by_reasoning(shown, reasoning):
    return "up" if "rise" in reasoning else "down"


def by_level(shown, reasoning):
    return "up" if int(shown.rpartition("level ")[2].split()[0]) % 2 == 0 else "down"


def honest(row, turn, text):
    """Rises on even levels, falls on odd ones, in a different wording for every row."""
    move = by_level(text, "")
    return f"{'rise' if move == 'up' else 'fall'} {row}</think><answer>{move}</answer>"


def turn_of(shown: str) -> int:
    return shown.count("<|im_start|>assistant") - 1


def batch_of(script=honest, groups=6, size=2, **config) -> RolloutBatch:
    return play(script, groups=groups, size=size, **{"max_turns": 1, **config})[0]


def hand_made(own, swapped, moved, donor, prompts=None, samples=None) -> ActionScores:
    tables = [np.asarray(table, dtype=float) for table in (own, swapped, moved, donor)]
    names = tuple(str(number).encode() for number in (range(len(own)) if prompts is None else prompts))
    same = SamplePairs((), np.empty((0, 2)), np.empty((0, 2))) if samples is None else samples
    return ActionScores(PromptPairs(names, *tables), same, 1.0, len(own), 0, {"lake": ("up", "down")})


def test_distances_by_hand() -> None:
    p, q = [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], [[1.0, 0.0, 0.0], [0.0, 0.4, 0.6], [0.2, 0.3, 0.5]]
    assert total_variation(p, q) == pytest.approx([0.5, 1.0, 0.0])
    # Half of KL((.5, .5) || (.75, .25)) and of KL((1, 0) || (.75, .25)), in bits.
    divergence = 0.5 * (0.5 * math.log2(0.5 / 0.75) + 0.5 * math.log2(0.5 / 0.25)) + 0.5 * math.log2(1 / 0.75)
    assert jensen_shannon_distance(p, q) == pytest.approx([math.sqrt(divergence), 1.0, 0.0])
    assert jensen_shannon_distance(q, p) == pytest.approx(jensen_shannon_distance(p, q))


def test_normalised_keeps_ratios_and_refuses_what_is_no_score() -> None:
    assert normalised([[-1000.0, -1000.0 + math.log(3), -math.inf]])[0] == pytest.approx([0.25, 0.75, 0.0])
    for broken in ([math.nan, 0.0], [-math.inf, -math.inf], [math.inf, 0.0]):
        with pytest.raises(NotMeasurable, match="NaN or infinite"):
            normalised([broken])
    with pytest.raises(NotMeasurable, match="no candidate answers"):
        normalised(np.empty((2, 0)))


def test_estimate_averages_within_prompts_first() -> None:
    prompts = ["a", "a", "a", "b"]
    found = estimate([1.0, 1.0, 1.0, 0.0], prompts, prompt_draws(prompts, rng(), 500))
    assert (found.value, found.prompts) == (0.5, 2)
    assert (found.low, found.high) == (0.0, 1.0)


def test_estimate_leaves_nan_out_and_needs_a_reading() -> None:
    prompts = ["a", "b", "c"]
    draws = prompt_draws(prompts, rng(), 200)
    assert estimate([math.nan, 0.2, 0.4], prompts, draws).value == pytest.approx(0.3)
    with pytest.raises(NotMeasurable, match="no turn has this reading"):
        estimate([math.nan] * 3, prompts, draws)


def test_a_share_in_which_all_agree_is_not_certain() -> None:
    prompts = list("abcdefghij")
    draws = prompt_draws(prompts, rng(), 200)
    ones, zeros = (estimate([float(value)] * 10, prompts, draws, share=True) for value in (1, 0))
    assert (ones.low, ones.high) == (pytest.approx(0.025**0.1), 1.0)
    assert (zeros.low, zeros.high) == (0.0, pytest.approx(1 - 0.025**0.1))
    alone = estimate([0.3], ["a"], prompt_draws(["a"], rng(), 10))
    assert (alone.low, alone.value, alone.high) == (0.3, 0.3, 0.3)


def test_the_interval_covers_the_mean_of_prompts() -> None:
    misses = 0
    for seed in range(100):
        draws = rng(seed)
        values = draws.normal(0.4, 0.1, size=24)
        found = estimate(values, list(range(24)), prompt_draws(list(range(24)), draws, 400))
        misses += not found.low <= 0.4 <= found.high
    assert misses <= 12


def test_swap_test_by_hand() -> None:
    up, down = [0.9, 0.1], [0.1, 0.9]
    scores = hand_made(own=[up, up, up], swapped=[down, up, up], moved=[up, down, up], donor=[down, down, up])
    found = swap_test(scores, rng(), PAIR)
    assert found.other_prompt.total_variation.value == pytest.approx(0.8 / 3)
    assert found.other_prompt.changed.value == pytest.approx(1 / 3)
    assert found.follows.value == pytest.approx(2 / 3)
    assert found.differing_pairs == 2
    assert found.follows_reasoning is not None
    assert found.follows_reasoning.value == pytest.approx(0.5)
    assert found.kept_own is not None
    assert found.kept_own.value == pytest.approx(0.5)
    assert found.other_sample is None


def test_counterfactual_by_hand() -> None:
    """One pair: reasoning moves the action by .6 and .4, the observation by .2 and 0."""
    scores = hand_made(own=[[0.8, 0.2]], swapped=[[0.2, 0.8]], moved=[[0.6, 0.4]], donor=[[0.2, 0.8]])
    found = counterfactual_test(scores, rng(), PAIR)
    assert found.effect_of_reasoning.value == pytest.approx(0.5)
    assert found.effect_of_observation.value == pytest.approx(0.1)
    assert found.observation_changed.value == pytest.approx(0.2)
    assert found.both_changed.value == pytest.approx(0.6)
    assert found.reasoning_share is not None
    assert found.reasoning_share.value == pytest.approx(5 / 6)
    assert "the action follows the reasoning (83% of the effects come from the reasoning)" in found.describe()


def test_an_action_that_never_moves_has_no_share() -> None:
    same = [[0.7, 0.3]] * 4
    found = counterfactual_test(hand_made(same, same, same, same), rng(), PAIR)
    assert found.reasoning_share is None
    assert "nothing moves the action" in found.describe()
    assert swap_test(hand_made(same, same, same, same), rng(), PAIR).follows_reasoning is None


@pytest.mark.parametrize(
    ("decide", "reasoning", "observation", "words"),
    [
        (by_reasoning, True, False, "the action follows the reasoning"),
        (by_level, False, True, "hardly uses the reasoning"),
        (lambda shown, reasoning: "up", False, False, "nothing moves the action"),
    ],
)
def test_policies_with_a_known_cause_are_told_apart(decide, reasoning, observation, words) -> None:
    found = causality_test(batch_of(), Mind(decide), APPEND, rng(), SwapConfig(donors=5))
    # Of the five donors of a prompt three differ in parity; such a change moves .8 of the probability, the others none.
    effect = 0.6 * (SURE - (1 - SURE))
    table = found.counterfactual
    assert table.effect_of_reasoning.value == pytest.approx(effect if reasoning else 0.0)
    assert table.effect_of_observation.value == pytest.approx(effect if observation else 0.0)
    assert found.swap.other_prompt.changed.value == pytest.approx(0.6 if reasoning else 0.0)
    if reasoning or observation:
        assert found.swap.follows_reasoning is not None
        assert found.swap.follows_reasoning.value == float(reasoning)
        assert found.swap.kept_own is not None
        assert found.swap.kept_own.value == float(observation)
        assert found.swap.differing_pairs == 18
    assert words in table.describe()
    assert found.coverage == pytest.approx(1.0)


def test_reasoning_and_observation_that_both_count() -> None:
    def both(shown, reasoning):
        return "up" if (by_level(shown, "") == "up") != ("rise" in reasoning) else "down"

    found = causality_test(batch_of(), Mind(both), APPEND, rng(), SwapConfig(donors=5)).counterfactual
    assert found.reasoning_share is not None
    assert found.reasoning_share.value == pytest.approx(0.5)
    assert "the action uses both" in found.describe()


def test_contexts_and_tails_are_the_very_ids_of_the_rollout() -> None:
    batch = batch_of(groups=3, size=1)
    asked = []

    class Recorder:
        def score(self, contexts, continuations):
            asked.extend(zip(contexts, continuations, strict=True))
            return [[fake_logprobs(ids) for ids in rows] for rows in continuations]

    score_actions(batch, Recorder(), APPEND, rng(), PAIR)
    contexts = {ids.tobytes() for ids, _ in asked}
    turns = [trajectory.turns[0] for trajectory in batch.trajectories]
    for turn in turns:
        assert turn.reasoning_span is not None
        end = turn.reasoning_span[1]
        assert np.concatenate([turn.context_ids, turn.sampled_ids[:end]]).astype(np.int32).tobytes() in contexts
        assert turn.sampled_ids[end:].tolist() in [ids.tolist() for ids in asked[0][1]]
    crossed = {
        np.concatenate([a.context_ids, b.reasoning_ids]).astype(np.int32).tobytes()
        for a in turns
        for b in turns
        if b.reasoning_ids is not None
    }
    assert contexts <= crossed
    assert len(contexts) == len(asked)


def test_donors_share_environment_and_turn_index() -> None:
    def script(row, turn, text):
        level = int(text.partition("level ")[2].split()[0])
        return f"turn {turn} level {level}</think><answer>{'up' if level % 2 else 'down'}</answer>"

    batch = batch_of(script, groups=4, max_turns=3)
    mind = Mind(by_reasoning)
    found = score_actions(batch, mind, APPEND, rng(), SwapConfig(turns=100))
    assert found.turns == 12
    for shown, reasoning in mind.asked:
        assert turn_of(shown) == int(reasoning.split()[1])


def test_other_samples_come_from_the_very_same_context_and_differ() -> None:
    def script(row, turn, text):
        return f"rise {row % 3 // 2}</think><answer>{'up' if row % 2 else 'down'}</answer>"

    mind = Mind(by_reasoning)
    found = score_actions(batch_of(script, groups=2, size=3), mind, APPEND, rng(), SwapConfig(donors=3))
    levels = {shown.rpartition("level ")[2].split()[0] for shown, _ in mind.asked}
    assert levels == {"100", "101"}
    assert len(found.samples.prompt_N) >= 2
    assert (found.samples.own_NA == found.samples.swapped_NA).all()


def test_alike_reasonings_are_not_swapped_and_said_so() -> None:
    def same(row, turn, text):
        return f"the same</think><answer>{'up' if row % 2 else 'down'}</answer>"

    with pytest.raises(NotMeasurable, match="nothing to swap"):
        score_actions(batch_of(same), Mind(by_level), APPEND, rng())
    metrics = swap_metrics(batch_of(same), Mind(by_level), APPEND, rng())
    assert list(metrics) == ["collapse/swap/skipped"]
    assert "nothing to swap" in str(metrics["collapse/swap/skipped"])


def test_one_answer_to_everything_is_not_measurable_unless_the_answers_are_given() -> None:
    def one(row, turn, text):
        return f"reason {row}</think><answer>up</answer>"

    with pytest.raises(NotMeasurable, match="1 distinct answers"):
        score_actions(batch_of(one), Mind(by_level), APPEND, rng())
    given = score_actions(batch_of(one), Mind(by_level), APPEND, rng(), answers={"counting": ["up", "down", "stay"]})
    assert given.answers == {"counting": ("up", "down", "stay")}


def test_unparseable_turns_have_no_reasoning() -> None:
    with pytest.raises(NotMeasurable, match="no turn has a reasoning"):
        score_actions(batch_of("no tags here"), Mind(by_level), APPEND, rng())


def test_a_row_that_would_not_fit_is_not_put_together() -> None:
    def script(row, turn, text):
        return f"rise {'long ' * 30 * (row == 0)}{row}</think><answer>{'up' if row % 2 else 'down'}</answer>"

    batch = batch_of(script, groups=3, size=1, turn_tokens=400)
    longest = max(len(t.turns[0].context_ids) + len(t.turns[0].sampled_ids) for t in batch.trajectories)
    sampling = {**batch.sampling, "context_tokens": longest - 20}
    tight = RolloutBatch(batch.trajectories, batch.group_index, 0, sampling)
    found = score_actions(tight, Mind(by_reasoning), APPEND, rng(), SwapConfig(donors=2))
    assert found.without_donor == 1
    assert found.turns == 2


def test_equal_actions_are_one_candidate_in_the_usual_spelling_and_frame() -> None:
    replies = [
        "a</think>\n<answer> up||up </answer>",
        "b</think>\n<answer> up || up </answer>",
        "c</think>\n<answer> down </answer>",
    ]

    def script(row, turn, text):
        return replies[(0, 1, 1, 2)[row]]

    turns = [t.turns[0] for t in batch_of(script, groups=4, size=1, chat=APPEND_MANY).trajectories]
    found = answer_set(turns, APPEND_MANY)
    assert found.texts == ("up || up", "down")
    assert [APPEND_MANY.decode(ids) for ids in found.tails] == [
        "</think>\n<answer> up || up </answer><|im_end|>",
        "</think>\n<answer> down </answer><|im_end|>",
    ]
    closed = answer_set(turns, APPEND_MANY, ["Up || UP", "LEFT"])
    assert closed.texts == ("up || up", "LEFT")
    with pytest.raises(NotMeasurable, match="1 distinct"):
        answer_set(turns[:3], APPEND_MANY)


def test_the_most_frequent_answers_stay() -> None:
    def script(row, turn, text):
        return f"r</think><answer>a{min(row, 5)}</answer>"

    turns = [t.turns[0] for t in batch_of(script, groups=9, size=1).trajectories]
    assert answer_set(turns, APPEND, most=3).texts == ("a5", "a0", "a1")


def test_move_answers() -> None:
    found = move_answers(list(MOVES), 2)
    assert len(found) == len(set(found)) == 20
    assert found[:5] == ["Up", "Down", "Left", "Right", "Up || Up"]


def test_environments_do_not_give_to_each_other() -> None:
    one, two = batch_of(groups=3, size=1), batch_of(groups=3, size=1)
    other = tuple(dataclasses.replace(t, environment="other") for t in two.trajectories)
    both = RolloutBatch(one.trajectories + other, tuple(range(6)), 0, one.sampling)
    found = score_actions(
        both, Mind(by_reasoning), APPEND, rng(), SwapConfig(donors=9), answers={"other": ["up", "down", "stay"]}
    )
    assert len(found.prompts.prompt_N) == 12
    assert found.prompts.own_NA.shape == (12, 3)
    assert (found.prompts.own_NA[:, 2] == 0).sum() == 6
    assert found.answers == {"counting": ("up", "down"), "other": ("up", "down", "stay")}
    assert found.prompts.own_NA.sum(axis=1) == pytest.approx(1.0)


def test_metrics_have_names_bounds_and_the_same_figures_again() -> None:
    first, again = (swap_metrics(batch_of(), Mind(by_reasoning), APPEND, rng(7)) for _ in range(2))
    assert first == again
    for name in (
        "other_prompt/total_variation", "other_prompt/jensen_shannon", "other_prompt/changed", "other_sample/total_variation",
        "follows", "observation_changed", "effect_of_reasoning", "effect_of_observation",
    ):  # fmt: skip
        low, value, high = (float(first[f"collapse/swap/{name}{end}"]) for end in ("_low", "", "_high"))
        assert 0 <= low <= value <= high <= 1
    assert all(isinstance(value, float) and math.isfinite(value) for value in first.values())
    assert first["collapse/swap/turns"] == 6
    assert first["collapse/swap/answers"] == 2


def test_the_cap_on_turns_takes_first_turns() -> None:
    mind = Mind(by_reasoning)
    found = score_actions(batch_of(groups=6, size=3, max_turns=3), mind, APPEND, rng(), SwapConfig(turns=4))
    assert found.turns == 4
    assert {turn_of(shown) for shown, _ in mind.asked} == {0}


def test_a_scorer_that_miscounts_is_caught() -> None:
    class Short:
        def score(self, contexts, continuations):
            return [[np.zeros(len(ids) - 1) for ids in rows] for rows in continuations]

    with pytest.raises(TokenMismatch, match="other numbers of tokens"):
        score_actions(batch_of(), Short(), APPEND, rng())


def test_settings_are_checked() -> None:
    cases: list[dict] = [{"turns": 1}, {"donors": 0}, {"most_answers": 1}, {"resamples": 0}, {"level": 1.0}]
    for wrong in cases:
        with pytest.raises(ConfigError, match="swap test"):
            SwapConfig(**wrong)


def test_the_command_writes_what_it_measured(cli, tmp_path) -> None:  # noqa: F811
    recipe, out = tiny_recipe(tmp_path), tmp_path / "swap.json"
    done = cli("swap-test", tiny_folder(), "--recipe", recipe, "--levels", "4", "--samples", "3", "--json", out)
    assert done.code == 0, done.err
    assert "effect of the reasoning" in done.out
    found = json.loads(out.read_text())
    assert found["schema"] == "ragen2.swap-test/1"
    assert found["metrics"]["collapse/swap/coverage"] > 0.3
    assert found["metrics"]["collapse/first_turn/mi_upper_bound"] == pytest.approx(math.log(4))
    assert sorted(found["answers"]["tiny-colours"]) == ["down", "up"]
    assert "neither says that the reasoning or the action is right" in found["sentences"][1]


def test_the_command_refuses_too_little(cli, tmp_path) -> None:  # noqa: F811
    done = cli("swap-test", tiny_folder(), "--recipe", tiny_recipe(tmp_path), "--levels", "1")
    assert done.code == 2
    assert "at least 2 levels" in done.complaint
    done = cli("swap-test", tmp_path / "nothing")
    assert done.code == 2
    assert "no run directory" in done.complaint


def test_the_monitor_reports_it_beside_mutual_information(tmp_path: Path) -> None:
    for swap in (True, False):
        monitor = {"every": 1, "swap": swap, "probe_prompts": 4}
        start_run(tiny_config(out=str(tmp_path / str(swap)), iterations=1, monitor=monitor), lambda text: None)
    asked, left_out = (read_metrics(only_run(tmp_path / name))[-1] for name in ("True", "False"))
    # The taught model of the tests says the same everywhere, which leaves nothing to swap; that is said.
    assert "nothing to swap" in str(asked["collapse/swap/skipped"])
    assert not any(name.startswith("collapse/swap/") for name in left_out)
    same = [name for name in left_out if name.startswith("collapse/")]
    assert same
    assert all(asked[name] == left_out[name] for name in same)
