"""Mutual information by hand-made matrices, its interval and its errors; cross-scoring; log-probability mismatch."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen2.diagnostics import NotMeasurable, cross_score, logprob_mismatch, mi_interval, mutual_information
from ragen2.diagnostics.mutual_information import mi_resamples, sequence_gaps, weighted_mean
from ragen2.errors import TokenMismatch
from ragen2.trajectory import as_ids


def test_perfect_dependence_reaches_log_n_and_none_is_zero() -> None:
    sharp = np.full((4, 4), -400.0)
    np.fill_diagonal(sharp, -10.0)
    figures = mutual_information(sharp, [5] * 4, range_(4))
    assert figures["mi_sequence"] == pytest.approx(math.log(4))
    assert figures["mi_upper_bound"] == pytest.approx(math.log(4))
    assert figures["mi_rate"] == pytest.approx(math.log(4) / 5)
    assert figures["conditional_entropy_token"] == pytest.approx(2.0)
    assert figures["retrieval_accuracy"] == 1.0
    flat = mutual_information(np.full((4, 4), -10.0), [5] * 4, range_(4))
    assert flat["mi_sequence"] == pytest.approx(0.0, abs=1e-12)
    assert flat["retrieval_accuracy"] == pytest.approx(0.25)  # a tie of all, credited by chance


def test_duplicate_contexts_are_merged_before_the_mixture_and_the_ceiling() -> None:
    sums = np.array([[-1.0, -1.0, -50.0], [-50.0, -50.0, -1.0], [-1.0, -1.0, -50.0]])
    figures = mutual_information(sums, [3, 3, 3], [0, 2, 1], [7, 7, 2])
    assert figures["num_prompts"] == 2
    assert figures["mi_upper_bound"] == pytest.approx(math.log(2))
    assert figures["mi_sequence"] == pytest.approx(math.log(2))


def test_result_does_not_depend_on_what_the_classes_are_called() -> None:
    rng = np.random.default_rng(0)
    sums = -rng.gamma(2.0, 5.0, size=(6, 4))
    sums[:, 3] = sums[:, 0]
    left = mutual_information(sums, [4] * 6, [0, 1, 2, 3, 0, 1], [0, 1, 2, 0])
    right = mutual_information(sums, [4] * 6, [0, 1, 2, 3, 0, 1], [9, 5, 1, 9])
    assert left == right


def test_averages_run_within_a_context_first() -> None:
    sums = np.array([[-1.0, -1.0], [-1.0, -90.0], [-1.0, -90.0], [-1.0, -90.0]])
    figures = mutual_information(sums, [2] * 4, [1, 0, 0, 0])
    # One uninformative reasoning of context 1 weighs as much as three informative ones of context 0.
    assert figures["mi_sequence"] == pytest.approx(math.log(2) / 2)


def test_an_empty_reasoning_counts_in_the_sequence_form_only() -> None:
    sums = np.array([[-2.0, -80.0], [0.0, 0.0]])
    figures = mutual_information(sums, [2, 0], [0, 1])
    assert figures["mi_sequence"] == pytest.approx(math.log(2) / 2)
    assert figures["num_samples"] == 2
    assert figures["retrieval_accuracy"] == pytest.approx(0.75)
    assert figures["mi_token"] == pytest.approx(-1.0 - math.log((math.exp(-1.0) + math.exp(-40.0)) / 2))
    assert figures["mi_rate"] == pytest.approx(figures["mi_sequence"] / 1.0)


def test_only_empty_reasonings_is_zero_information_and_no_token_figure() -> None:
    figures = mutual_information(np.zeros((3, 3)), [0, 0, 0], range_(3))
    assert figures["mi_sequence"] == 0.0
    assert figures["retrieval_accuracy"] == pytest.approx(1 / 3)
    assert math.isnan(figures["mi_token"])
    assert math.isnan(figures["mi_rate"])


def test_minus_infinity_is_allowed_in_other_contexts_only() -> None:
    figures = mutual_information([[-1.0, -np.inf], [-np.inf, -1.0]], [1, 1], [0, 1])
    assert figures["mi_sequence"] == pytest.approx(math.log(2))
    with pytest.raises(NotMeasurable, match="NaN or infinite"):
        mutual_information([[-np.inf, -1.0], [-1.0, -1.0]], [1, 1], [0, 1])


@pytest.mark.parametrize(
    ("sums", "lengths", "source", "classes", "words"),
    [
        (np.zeros((0, 3)), [], [], None, "no scored reasonings"),
        (np.zeros((2, 1)), [1, 1], [0, 0], None, "one distinct prompt"),
        (np.zeros((2, 3)), [1, 1], [0, 1], [4, 4, 4], "one distinct prompt"),
        (np.zeros((2, 2)), [1], [0, 1], None, "lengths_S has shape"),
        (np.zeros((2, 2)), [1, 1], [0], None, "source_S has shape"),
        (np.zeros((2, 2)), [1, 1], [0, 1], [1], "prompt_class_N has shape"),
        (np.zeros((2, 2)), [1, 1], [0, 2], None, "column numbers 0 to 1"),
        (np.zeros((2, 2)), [1, 1], [0.0, 1.0], None, "column numbers"),
        (np.zeros((2, 2)), [1, -1], [0, 1], None, "not negative"),
        (np.array([[0.0, np.nan], [0.0, 0.0]]), [1, 1], [0, 1], None, "NaN or infinite"),
    ],
)
def test_what_cannot_be_measured_says_why(sums, lengths, source, classes, words) -> None:
    with pytest.raises(NotMeasurable, match=words):
        mutual_information(sums, lengths, source, classes)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_never_above_the_ceiling_and_unmoved_by_a_shift_per_reasoning(prompts: int, each: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums = -rng.gamma(2.0, 8.0, size=(prompts * each, prompts))
    source = np.repeat(np.arange(prompts), each)
    lengths = rng.integers(1, 20, size=prompts * each)
    figures = mutual_information(sums, lengths, source)
    assert figures["mi_sequence"] <= figures["mi_upper_bound"] + 1e-9
    shifted = mutual_information(sums - rng.uniform(0, 5, size=(prompts * each, 1)), lengths, source)
    assert shifted["mi_sequence"] == pytest.approx(figures["mi_sequence"], abs=1e-9)
    assert shifted["retrieval_accuracy"] == pytest.approx(figures["retrieval_accuracy"])
    assert sequence_gaps(sums, source).mean() == pytest.approx(figures["mi_sequence"])


def test_interval_holds_the_figure_and_keeps_the_mixture() -> None:
    rng = np.random.default_rng(3)
    sums = -rng.gamma(2.0, 3.0, size=(64, 16))
    source = np.repeat(np.arange(16), 4)
    figure = mutual_information(sums, [5] * 64, source)["mi_sequence"]
    low, high = mi_interval(sums, source, rng=np.random.default_rng(0))
    assert low < figure < high
    assert (low, high) == mi_interval(sums, source, rng=np.random.default_rng(0))
    draws = mi_resamples(sums, source, rng=np.random.default_rng(0), resamples=4000)
    assert draws.mean() == pytest.approx(figure, abs=0.02)  # unbiased: N has not shrunk


def test_weighted_mean_counts_reasonings() -> None:
    sharp = mutual_information([[-1.0, -99.0], [-99.0, -1.0]], [1, 1], [0, 1])
    flat = mutual_information(np.zeros((6, 2)) - 1.0, [1] * 6, [0, 1] * 3)
    mean = weighted_mean([sharp, flat])
    assert mean["mi_sequence"] == pytest.approx(math.log(2) * 2 / 8)
    assert mean["num_samples"] == 8
    silent = mutual_information(np.zeros((6, 2)), [0] * 6, [0, 1] * 3)
    assert weighted_mean([sharp, silent])["mi_token"] == pytest.approx(sharp["mi_token"])


class CountingScorer:
    """A reasoning is likely after a context that holds its first token."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def score(self, contexts, continuations):
        self.calls.append((len(contexts), len(continuations[0])))
        return [
            [np.full(len(ids), -0.5 if ids[0] in context else -3.0, dtype=np.float32) for ids in rows]
            for context, rows in zip(contexts, continuations, strict=True)
        ]


def test_cross_score_merges_equal_contexts_and_reasonings() -> None:
    scorer, seen = CountingScorer(), []
    contexts = [as_ids([1, 2]), as_ids([3]), as_ids([1, 2])]
    reasonings = [as_ids([1, 9]), as_ids([]), as_ids([3]), as_ids([1, 9])]
    sums = cross_score(scorer, contexts, reasonings, lambda done, total: seen.append((done, total)))
    assert sums.dtype == np.float64
    assert sums.tolist() == [[-1.0, -6.0, -1.0], [0.0, 0.0, 0.0], [-3.0, -0.5, -3.0], [-1.0, -6.0, -1.0]]
    assert scorer.calls == [(1, 2), (1, 2)]  # two distinct contexts, each with both distinct spoken reasonings
    assert seen == [(1, 2), (2, 2)]


def test_cross_score_of_empty_reasonings_asks_nothing() -> None:
    scorer = CountingScorer()
    assert cross_score(scorer, [as_ids([1]), as_ids([2])], [as_ids([])]).tolist() == [[0.0, 0.0]]
    assert scorer.calls == []


def test_cross_score_refuses_a_scorer_that_loses_tokens() -> None:
    class Short:
        def score(self, contexts, continuations):
            return [[np.zeros(1) for _ in rows] for rows in continuations]

    with pytest.raises(TokenMismatch, match="2"):
        cross_score(Short(), [as_ids([1])], [as_ids([1, 2])])
    with pytest.raises(NotMeasurable, match="nothing to score"):
        cross_score(Short(), [], [as_ids([1])])


def test_mismatch_by_hand_and_masked_out_values_do_not_matter() -> None:
    figures = logprob_mismatch([[-1.0, -2.0, 99.0]], [[-1.0, -1.0, np.nan]], [[1, 1, 0]])
    assert figures["k1"] == pytest.approx(-0.5)
    assert figures["k3"] == pytest.approx((math.e - 2) / 2)
    assert figures["max_abs"] == 1.0
    assert figures["mean_abs"] == 0.5
    assert figures["tokens"] == 2
    assert figures["mean_abs_ratio"] == pytest.approx((math.e - 1) / 2)
    same = logprob_mismatch([-1.0], [-1.0], [True])
    assert same["k1"] == same["k3"] == same["max_abs"] == 0.0
    assert math.isfinite(logprob_mismatch([-5000.0], [0.0], [1])["k3"])


def test_mismatch_errors() -> None:
    with pytest.raises(NotMeasurable, match="no token"):
        logprob_mismatch([0.0], [0.0], [0])
    with pytest.raises(NotMeasurable, match="not finite"):
        logprob_mismatch([np.nan], [0.0], [1])
    with pytest.raises(TokenMismatch, match="one shape"):
        logprob_mismatch([0.0, 1.0], [0.0], [1])


def range_(count: int) -> list[int]:
    return list(range(count))
