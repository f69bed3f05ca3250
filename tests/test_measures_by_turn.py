"""Pointwise information, curves along turn indices, the mixed view and the monitor: on trajectories built by hand."""

import math

import numpy as np
import pytest

from ragen2.diagnostics import (
    Monitor,
    MonitorConfig,
    NotMeasurable,
    Slice,
    cross_score,
    informative_words,
    leaking_pairs,
    mixed_view,
    mutual_information,
    pointwise_information,
    trajectory_view,
    turn_curves,
)
from ragen2.diagnostics.bootstrap import prompt_gaps
from ragen2.diagnostics.pointwise import slice_information, word_table
from ragen2.diagnostics.slice_measures import Resampling
from ragen2.errors import ConfigError, TokenMismatch
from ragen2.trajectory import RolloutBatch, Trajectory, Turn, as_ids

CLOSE, ANSWER = 90, 91


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_pointwise_information_by_hand() -> None:
    # First token: sure here, never there. Then nothing is left to tell, whatever the other context says.
    values = pointwise_information([[0.0, -1.0], [-np.inf, -7.0]], 0)
    assert values == pytest.approx([math.log(2), 0.0])
    # Both contexts alike at first, then the other way round: the token speaks against its own context.
    values = pointwise_information(np.log([[0.5, 0.2], [0.5, 0.6]]), 0)
    assert values == pytest.approx([0.0, math.log(0.2 / 0.4)])
    # The mixture learns: once the first token has said it, the second, just as sharp, says little.
    first, second = pointwise_information(np.log([[0.9, 0.9], [0.1, 0.1]]), 0)
    assert first == pytest.approx(math.log(0.9 / 0.5))
    assert second == pytest.approx(math.log(0.9 / (0.9 * 0.9 + 0.1 * 0.1)))


def test_pointwise_information_sums_to_the_gap() -> None:
    generator = rng(12)
    for _ in range(50):
        contexts, tokens = int(generator.integers(2, 9)), int(generator.integers(1, 40))
        logprob_NT = -generator.gamma(0.7, 4.0, size=(contexts, tokens))
        source = int(generator.integers(contexts))
        gap = prompt_gaps(logprob_NT.sum(axis=1)[None, :], [source]).gaps_P[0]
        assert pointwise_information(logprob_NT, source).sum() == pytest.approx(gap, abs=1e-9)
        twice = np.concatenate([logprob_NT, logprob_NT[:1]])
        merged = pointwise_information(twice, source, [*range(contexts), 0])
        assert merged == pytest.approx(pointwise_information(logprob_NT, source), abs=1e-9)


def test_pointwise_information_refuses_with_the_reason() -> None:
    with pytest.raises(NotMeasurable, match="needs \\[contexts, tokens\\]"):
        pointwise_information([-1.0, -2.0], 0)
    with pytest.raises(NotMeasurable, match="source is 2"):
        pointwise_information(np.zeros((2, 3)), 2)
    with pytest.raises(NotMeasurable, match="one distinct prompt"):
        pointwise_information(np.zeros((2, 3)), 0, [5, 5])
    with pytest.raises(NotMeasurable, match="NaN or infinite"):
        pointwise_information([[-np.inf], [-1.0]], 0)
    assert pointwise_information(np.zeros((3, 0)), 1).shape == (0,)


class Speller:
    """Sure of token 10 + p after context 100 + p; indifferent to every other token. Counts what it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def score(self, contexts, continuations):
        result = []
        for context, rows in zip(contexts, continuations, strict=True):
            self.asked += len(rows)
            own = 10 + int(context[0]) - 100
            result.append([np.where((ids >= 10) & (ids < 20), np.where(ids == own, -0.1, -6.0), -1.0) for ids in rows])
        return result


def test_words_that_carry_the_input() -> None:
    reasonings = [as_ids([1, 10, 2]), as_ids([1, 11, 2]), as_ids([1, 12]), as_ids([]), as_ids([1, 12])]
    part = Slice("lake", 0, tuple(as_ids([100 + p]) for p in range(3)), tuple(reasonings), np.array([0, 1, 2, 1, 0]))
    scorer = Speller()
    information = slice_information(scorer, part)
    assert [len(values) for values in information] == [3, 3, 2, 0, 2]
    assert scorer.asked == 3 * 3  # three contexts, three distinct reasonings that say something
    table = informative_words(Speller(), part, lambda ids: f"<{ids[0]}>")
    by_text = {word.text: word for word in table.words}
    assert (table.reasonings, table.tokens) == (5, 10)
    assert by_text["<1>"].count == 4
    assert by_text["<1>"].mean == pytest.approx(0.0)
    assert by_text["<2>"].total == pytest.approx(0.0)
    assert {word.text for word in table.carriers(2)} == {"<10>", "<11>"}
    (wrong,) = table.misleading()  # token 12 was once said in context 0
    assert wrong.text == "<12>"
    assert wrong.count == 2
    assert wrong.mean == wrong.total / 2
    figures = mutual_information(cross_score(Speller(), part.contexts, reasonings), part.lengths_S, part.source_S)
    first_gap = information[0].sum()
    assert first_gap == pytest.approx(-0.1 - math.log((math.exp(-0.1) + 2 * math.exp(-6.0)) / 3))
    assert figures["mi_sequence"] == pytest.approx(
        np.mean([np.mean([information[0].sum(), information[4].sum()]), information[1].sum() / 2, information[2].sum()])
    )


def test_pointwise_of_a_slice_refuses_with_the_reason() -> None:
    empty = Slice("lake", 0, (as_ids([1]), as_ids([2])), (), np.array([], dtype=np.int64))
    with pytest.raises(NotMeasurable, match="0 reasonings"):
        slice_information(Speller(), empty)
    alone = Slice("lake", 0, (as_ids([1]),), (as_ids([5]),), np.array([0]))
    with pytest.raises(NotMeasurable, match="1 contexts"):
        slice_information(Speller(), alone)
    twins = Slice("lake", 0, (as_ids([1]), as_ids([1])), (as_ids([5]),), np.array([0]))
    with pytest.raises(NotMeasurable, match="one distinct prompt"):
        slice_information(Speller(), twins)

    class Short(Speller):
        def score(self, contexts, continuations):
            return [[np.zeros(1) for _ in rows] for rows in continuations]

    with pytest.raises(TokenMismatch, match="returned"):
        slice_information(Short(), Slice("lake", 0, (as_ids([1]), as_ids([2])), (as_ids([5, 6]),), np.array([0])))
    with pytest.raises(TokenMismatch, match="came with"):
        word_table([as_ids([1, 2])], [np.zeros(1)], str)


def turn(index, context, reasoning, *, status="ok") -> Turn:
    sampled = as_ids([*(reasoning or []), CLOSE, ANSWER])
    span = None if reasoning is None else (0, len(reasoning))
    return Turn(
        index, as_ids(context), sampled, np.zeros(len(sampled), np.float32), "", "", span, ("Up",), 0.0, 0.0, status, True, False
    )


def episode(prompt, said, *, valid=True) -> Trajectory:
    """`said[t]` is the reasoning of turn t (None: does not parse); the context grows by everything that was said."""
    turns, context = [], [100 + prompt]
    for index, reasoning in enumerate(said):
        turns.append(turn(index, context, reasoning, status="no_think_end" if reasoning is None else "ok"))
        context = [*context, *(reasoning or []), CLOSE, ANSWER, 200 + prompt]
    return Trajectory(f"p{prompt}", prompt, 0, "lake", tuple(turns), False, valid, "terminated")


def batch_of(*trajectories) -> RolloutBatch:
    return RolloutBatch(tuple(trajectories), tuple(range(len(trajectories))), 0)


def test_turn_curves_show_where_reading_stops() -> None:
    class ReadsAtFirst(Speller):
        def score(self, contexts, continuations):
            read = super().score(contexts, continuations)
            return [
                rows if len(context) == 1 else [np.full(len(values), -1.0) for values in rows]
                for context, rows in zip(contexts, read, strict=True)
            ]

    batch = batch_of(*[episode(p, [[10 + p], [10 + p]] if p < 6 else [[10 + p], None]) for p in range(8)])
    curves = turn_curves(batch, ReadsAtFirst(), rng())
    assert [(p.turn, p.prompts, p.reasonings) for p in curves.points] == [(0, 8, 8), (1, 6, 6)]
    first, second = curves.points
    assert first.ratio > 0.9
    assert first.ceiling == pytest.approx(math.log(8))
    assert first.low is not None
    assert first.high is not None
    assert first.low <= first.mi <= first.high <= first.ceiling + 1e-9
    assert first.p_value == 0.001
    assert first.conditional_entropy == pytest.approx(0.1)
    assert second.mi == pytest.approx(0.0, abs=1e-12)
    assert second.p_value == 1.0
    assert (first.valid_think_rate, second.valid_think_rate) == (1.0, 0.75)
    plain = turn_curves(batch, ReadsAtFirst(), rng(), Resampling(resamples=0, permutations=0))
    assert plain.points[0].low is plain.points[0].p_value is None


def test_turn_curves_say_what_is_missing() -> None:
    batch = batch_of(*[episode(p, [[10 + p]] * (2 if p < 3 else 1)) for p in range(5)])
    assert turn_curves(batch, Speller(), rng()).skipped == ("lake turn 1: 3 distinct contexts, needs 4",)
    with pytest.raises(NotMeasurable, match="1 distinct contexts, needs 4"):
        turn_curves(batch_of(episode(0, [[10]])), Speller(), rng())
    with pytest.raises(NotMeasurable, match="no turn"):
        turn_curves(batch_of(episode(0, [[10]], valid=False)), Speller(), rng())


def test_trajectory_view_knows_whose_turns_are_one_prompts() -> None:
    view = trajectory_view(batch_of(*[episode(p, [[10 + p], [10 + p]]) for p in range(5)]), rng())
    assert view.slices[0].prompt_labels == view.slices[1].prompt_labels
    assert len(set(view.slices[1].prompt_labels)) == 5


def test_mixed_view_lets_depths_compete_without_the_history_leak() -> None:
    batch = batch_of(*[episode(p, [[10 + p, 50 + t] for t in range(4)]) for p in range(8)])
    (part,) = (view := mixed_view(batch, rng(3))).slices
    assert view.name == "mixed"
    assert part.where == "lake mixed turns"
    assert len(part.reasonings) == 8  # a turn each
    assert len({len(ids) for ids in part.contexts}) > 1
    assert len(set(part.prompt_labels)) == 8
    assert view.leaking == 0
    assert len(mixed_view(batch, rng(3), draws=5).slices[0].reasonings) == 5
    everything = mixed_view(batch, rng(3), per_trajectory=None)
    assert len(everything.slices[0].reasonings) == 32
    assert everything.leaking == 8 * (3 + 2 + 1)  # every later context of a trajectory holds the reasoning
    assert mixed_view(batch_of(episode(0, [[10]])), rng()).skipped == ("lake mixed turns: 1 distinct contexts, needs 4",)


def test_the_leak_drives_information_below_zero_and_one_turn_a_trajectory_does_not() -> None:
    class Copier:
        """Likes what stands in the context word for word."""

        def score(self, contexts, continuations):
            def likes(context, ids):
                return np.full(len(ids), -0.01 if bytes(ids.tobytes()) in context.tobytes() else -3.0)

            return [[likes(context, ids) for ids in rows] for context, rows in zip(contexts, continuations, strict=True)]

    batch = batch_of(*[episode(p, [[10 + p, 50 + t, 60 + t] for t in range(3)]) for p in range(6)])
    (leaky,) = mixed_view(batch, rng(), per_trajectory=None).slices
    sums_SN = cross_score(Copier(), leaky.contexts, leaky.reasonings)
    assert mutual_information(sums_SN, leaky.lengths_S, leaky.source_S)["mi_sequence"] < -2
    metrics = Monitor(MonitorConfig(views=("mixed",))).measure(batch, Copier(), rng())
    assert metrics["collapse/mixed/mi_sequence"] == pytest.approx(0.0, abs=1e-9)
    assert metrics["collapse/mixed/leaking_pairs"] == 0


def test_leaking_pairs_match_whole_ids_only() -> None:
    # As bytes, id 1 stands inside ids 256, 0: one byte further on.
    contexts = (as_ids([7, 8, 9]), as_ids([256, 0, 5]), as_ids([1]))
    part = Slice("lake", 0, contexts, (as_ids([8, 9]), as_ids([1]), as_ids([]), as_ids([9, 7])), np.array([2, 0, 1, 1]))
    assert leaking_pairs(part).tolist() == [[True, False, False], [False, False, True], [False] * 3, [False] * 3]


def test_monitor_gives_p_value_curve_and_reasons() -> None:
    batch = batch_of(*[episode(p, [[10 + p], [10 + p]]) for p in range(8) for _ in range(2)])
    metrics = Monitor(MonitorConfig(views=("first_turn", "trajectory"))).measure(batch, Speller(), rng())
    assert metrics["collapse/first_turn/mi_p_value"] == 0.001
    assert metrics["collapse/trajectory/lake/turn_1/mi_sequence"] == pytest.approx(metrics["collapse/trajectory/mi_sequence"])
    assert metrics["collapse/trajectory/lake/turn_1/mi_upper_bound"] == pytest.approx(math.log(8))
    low, high = metrics["collapse/trajectory/lake/turn_0/mi_low"], metrics["collapse/trajectory/lake/turn_0/mi_high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert low < high
    few = Monitor(MonitorConfig(views=("first_turn",))).measure(
        batch_of(*[episode(p, [[10 + p]]) for p in range(2)]), Speller(), rng()
    )
    assert "only 2 distinct permutations" in str(few["collapse/first_turn/p_value_skipped"])
    assert "collapse/first_turn/mi_p_value" not in few
    assert few["collapse/first_turn/mi_sequence"] == pytest.approx(math.log(2), abs=0.01)
    one = batch_of(episode(0, [[10]]), episode(1, [None]), episode(2, [None]))
    single = Monitor(MonitorConfig(views=("first_turn",))).measure(one, Speller(), rng())
    assert "one prompt only" in str(single["collapse/first_turn/interval_skipped"])
    assert "collapse/first_turn/mi_low" not in single
    off = Monitor(MonitorConfig(views=("first_turn",), permutations=0, resamples=0)).measure(batch, Speller(), rng())
    assert not any("p_value" in name or "mi_low" in name or name.endswith("skipped") for name in off)
    with pytest.raises(ConfigError, match="permutations"):
        MonitorConfig(permutations=-1)
