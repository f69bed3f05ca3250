"""Interval, permutation test and saturation of mutual information, on toys whose information is known."""

import math

import numpy as np
import pytest

from ragen2.diagnostics import NotMeasurable, mi_interval, mutual_information, permutation_test, saturation
from ragen2.diagnostics.bootstrap import mi_resamples, prompt_gaps, resampled_mean
from ragen2.diagnostics.permutation import combined_test, null_draws

LETTERS = 4


class Language:
    """Reasonings of two letters with p(first | x) and p(second | x, first) known: everything by enumeration."""

    def __init__(self, first_NV: np.ndarray, second_NVV: np.ndarray) -> None:
        self.first_NV, self.second_NVV = first_NV, second_NVV
        self.p_NZ = (first_NV[:, :, None] * second_NVV).reshape(len(first_NV), -1)

    @classmethod
    def random(cls, contexts: int, sharpness: float, rng: np.random.Generator) -> "Language":
        def rows(*shape: int) -> np.ndarray:
            odds = np.exp(sharpness * rng.normal(size=shape))
            return odds / odds.sum(axis=-1, keepdims=True)

        return cls(rows(contexts, LETTERS), rows(contexts, LETTERS, LETTERS))

    @classmethod
    def own_word(cls, contexts: int, probability: float) -> "Language":
        """Context n says its own word, and with the rest of the probability any other: errors are rare and costly."""
        p_NZ = np.full((contexts, 64), (1 - probability) / 63)
        p_NZ[np.arange(contexts), np.arange(contexts)] = probability
        first_NV = p_NZ.reshape(contexts, 8, 8).sum(axis=2)
        return cls(first_NV, p_NZ.reshape(contexts, 8, 8) / first_NV[:, :, None])

    @property
    def information(self) -> float:
        """I(X;Z), X uniform: the sum over all contexts and all words."""
        return float((self.p_NZ * np.log(self.p_NZ / self.p_NZ.mean(axis=0))).sum() / len(self.p_NZ))

    def draw(self, each: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Cross-scores of `each` sampled words a context, and their sources."""
        source_S = np.repeat(np.arange(len(self.p_NZ)), each)
        words = (rng.random((len(source_S), 1)) > self.p_NZ[source_S].cumsum(axis=1)).sum(axis=1).clip(max=self.p_NZ.shape[1] - 1)
        return np.log(self.p_NZ[:, words]).T, source_S


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def blind(contexts: int) -> Language:
    one = Language.random(1, 1.0, rng(7))
    return Language(np.repeat(one.first_NV, contexts, axis=0), np.repeat(one.second_NVV, contexts, axis=0))


TOYS = {
    "weak 8x16": (Language.random(8, 0.3, rng(1)), 16),
    "strong 8x16": (Language.random(8, 3.0, rng(2)), 16),
    "medium 8x1": (Language.random(8, 1.0, rng(3)), 1),
    "medium 64x1": (Language.random(64, 1.0, rng(4)), 1),
    "independent 8x16": (blind(8), 16),
    "rare errors 8x16": (Language.own_word(8, 0.99), 16),
    "rare errors 64x1": (Language.own_word(64, 0.99), 1),
}


@pytest.mark.parametrize("name", TOYS)
def test_known_information_lies_in_its_interval(name: str) -> None:
    language, each = TOYS[name]
    draws, generator = 200, rng(11)
    covered = 0
    for _ in range(draws):
        sums_SN, source_S = language.draw(each, generator)
        low, high = mi_interval(sums_SN, source_S, rng=generator, resamples=500)
        assert high <= math.log(len(language.p_NZ)) + 1e-9
        covered += low <= language.information <= high
    assert covered >= 0.9 * draws


def test_the_estimate_itself_has_no_bias() -> None:
    language = Language.random(8, 1.0, rng(5))
    found = [
        mutual_information(s, np.full(len(z), 2), z)["mi_sequence"] for s, z in (language.draw(16, rng(i)) for i in range(200))
    ]
    assert np.mean(found) == pytest.approx(language.information, abs=4 * float(np.std(found)) / math.sqrt(200))


def test_interval_is_not_blind_to_errors_the_sample_does_not_hold() -> None:
    language = Language.own_word(8, 0.95)
    source_S = np.arange(8)
    typical_SN = np.log(language.p_NZ[:, source_S]).T  # every context said its own word: all gaps are equal
    low, high = mi_interval(typical_SN, source_S, rng=rng())
    assert low < language.information < high
    certain = np.full((8, 8), -np.inf)
    np.fill_diagonal(certain, -3.0)
    low, high = mi_interval(certain, source_S, rng=rng())  # no other context can say it: nothing is unseen
    assert (low, high) == pytest.approx((math.log(8), math.log(8)))


def test_an_interval_needs_two_prompts_with_reasonings_and_two_prompts_are_enough() -> None:
    with pytest.raises(NotMeasurable, match="one prompt only"):
        mi_interval([[-1.0, -2.0], [-1.0, -3.0]], [0, 0], rng=rng())
    low, high = mi_interval([[-1.0, -2.0], [-3.0, -1.0]], [0, 1], rng=rng())
    assert low < mutual_information([[-1.0, -2.0], [-3.0, -1.0]], [1, 1], [0, 1])["mi_sequence"] < high
    with pytest.raises(NotMeasurable, match="no gaps"):
        resampled_mean([], rng())
    with pytest.raises(NotMeasurable, match="names 3 prompts"):
        prompt_gaps(np.zeros((2, 2)), [0, 1], prompts_N=["a", "b", "c"])


def test_turns_of_one_prompt_are_resampled_together() -> None:
    sums_SN, source_S = Language.random(16, 1.5, rng(6)).draw(2, rng(6))
    one = prompt_gaps(sums_SN, source_S, prompts_N=range(16))
    apart = prompt_gaps(sums_SN, source_S, prompts_N=range(16, 32))
    alone, same, other = (resampled_mean(parts, rng(1), 8000).std() for parts in ([one], [one, one], [one, apart]))
    assert same == pytest.approx(alone, rel=0.05)  # the same prompts twice teach nothing new
    assert other == pytest.approx(alone / math.sqrt(2), rel=0.05)
    assert mi_resamples(sums_SN, source_S, rng=rng(1), resamples=8000).std() == pytest.approx(alone, rel=0.05)


@pytest.mark.parametrize("exchange", ["reasonings", "prompts"])
def test_permutation_test_rejects_a_true_null_at_its_level(exchange) -> None:
    # Scores that differ between contexts while the samples are drawn without looking at them: no dependence.
    language, generator = Language.random(8, 1.0, rng(8)), rng(9)
    p_values = []
    for _ in range(400):
        words = generator.integers(16, size=32)
        sums_SN = np.log(language.p_NZ[:, words]).T
        source_S = np.repeat(np.arange(8), 4)
        p_values.append(permutation_test(sums_SN, source_S, rng=generator, permutations=99, exchange=exchange).p_value)
    rejected = np.mean(np.array(p_values) <= 0.05)
    assert 0.05 - 3 * math.sqrt(0.05 * 0.95 / 400) <= rejected <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.06)
    assert min(p_values) >= 0.01


def test_permutation_test_finds_dependence() -> None:
    language, generator = Language.random(8, 1.0, rng(10)), rng(10)
    single = [permutation_test(*language.draw(4, generator), rng=generator, permutations=99).p_value for _ in range(50)]
    blocks = [
        permutation_test(*language.draw(4, generator), rng=generator, permutations=99, exchange="prompts").p_value
        for _ in range(50)
    ]
    assert np.mean(np.array(single) <= 0.05) >= 0.95
    assert np.mean(np.array(blocks) <= 0.05) >= 0.95
    result = permutation_test(*Language.random(8, 3.0, rng(1)).draw(16, generator), rng=generator)
    assert result.p_value == result.smallest_p_value == 1 / 1000
    assert result.permutations == 999


def test_permutation_test_is_mutual_information_and_depends_on_the_generator_only() -> None:
    sums_SN, _ = Language.random(4, 1.0, rng(2)).draw(3, rng(2))
    source_S = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 0, 1])  # unequal numbers a context
    result = permutation_test(sums_SN, source_S, rng=rng(3))
    assert result.observed == pytest.approx(mutual_information(sums_SN, np.full(12, 2), source_S)["mi_sequence"])
    assert result == permutation_test(sums_SN, source_S, rng=rng(3))
    blocks = permutation_test(sums_SN, source_S, rng=rng(3), exchange="prompts")
    assert blocks.observed == pytest.approx(result.observed)


def test_permutation_p_value_matches_enumeration() -> None:
    from itertools import permutations

    sums_SN = -rng(4).gamma(2.0, 3.0, size=(5, 5))
    gap_SN = sums_SN - np.log(np.exp(sums_SN).mean(axis=1, keepdims=True))
    figures = np.array([gap_SN[np.arange(5), list(order)].mean() for order in permutations(range(5))])
    exact = np.mean(figures >= figures[0] - 1e-12)
    assert permutation_test(sums_SN, range_(5), rng=rng(), permutations=20_000).p_value == pytest.approx(exact, abs=0.01)


def test_permutation_test_refuses_what_cannot_get_small() -> None:
    sharp = np.where(np.eye(3, dtype=bool), -1.0, -90.0)
    with pytest.raises(NotMeasurable, match=r"only 6 distinct permutations: the p-value cannot fall below 0\.17"):
        permutation_test(sharp, range_(3), rng=rng())
    with pytest.raises(NotMeasurable, match="only 1 distinct"):
        permutation_test(np.tile(sharp[0], (9, 1)), [0] * 9, rng=rng())
    many_S = np.repeat(range_(3), 8)
    assert permutation_test(sharp[many_S], many_S, rng=rng()).p_value == 0.001
    with pytest.raises(NotMeasurable, match="only 6 distinct"):
        permutation_test(sharp[many_S], many_S, rng=rng(), exchange="prompts")
    with pytest.raises(NotMeasurable, match="one distinct prompt"):
        permutation_test(sharp, range_(3), [1, 1, 1], rng=rng())
    with pytest.raises(NotMeasurable, match="exchange"):
        permutation_test(sharp, range_(3), rng=rng(), permutations=0)
    with pytest.raises(NotMeasurable, match="no cross-scores"):
        combined_test([])


def test_permutation_test_of_equal_reasonings_and_of_equal_scores_is_one() -> None:
    constant = permutation_test(np.tile(-rng(1).gamma(2.0, size=8), (8, 1)), range_(8), rng=rng())
    assert constant.p_value == constant.smallest_p_value == 1.0
    silent = permutation_test(np.zeros((8, 8)), range_(8), rng=rng())
    assert silent.p_value == 1.0
    nearly = np.tile(-rng(1).gamma(2.0, size=8), (8, 1))
    nearly[0] = [-1.0, *[-50.0] * 7]
    assert permutation_test(nearly, range_(8), rng=rng()).smallest_p_value == pytest.approx(1 / 8)
    impossible = np.where(np.eye(6, dtype=bool), -1.0, -np.inf)
    assert permutation_test(impossible, range_(6), rng=rng()).p_value <= 0.01


def test_combined_test_weighs_matrices_by_reasonings() -> None:
    sums_SN, source_S = Language.random(3, 2.0, rng(3)).draw(1, rng(3))
    parts = [null_draws(sums_SN, source_S, rng=rng(i), permutations=99) for i in range(2)]  # 6 * 6 orderings together
    assert combined_test(parts).observed == pytest.approx(parts[0].observed)


def test_saturation_tells_a_figure_stuck_at_log_n() -> None:
    sharp = np.full((64, 64), -400.0)
    np.fill_diagonal(sharp, -10.0)
    result = saturation(sharp, range_(64), rng=rng(), subsets=5)
    assert [point.prompts for point in result.points] == [2, 4, 8, 16, 32, 64]
    assert all(point.ratio == pytest.approx(1.0) for point in result.points)
    assert result.saturated
    assert result.slope == pytest.approx(1.0)
    assert result.sentence.startswith("saturated: raise the number of prompts")


def test_saturation_levels_off_where_few_things_are_told_apart() -> None:
    # Forty-eight contexts of four kinds: information ends at log 4 however many there are.
    kind_N = np.arange(48) % 4
    sums_SN = np.where(kind_N[:, None] == kind_N[None, :], -5.0, -300.0)
    result = saturation(sums_SN, range_(48), rng=rng())
    assert [point.prompts for point in result.points] == [2, 4, 8, 16, 32, 48]
    assert result.points[-1].mi == pytest.approx(math.log(4)) == mutual_information(sums_SN, [3] * 48, range_(48))["mi_sequence"]
    assert [point.mi for point in result.points] == sorted(point.mi for point in result.points)
    assert not result.saturated
    assert result.sentence.startswith("not saturated")
    assert "levelled off" in result.sentence
    assert result == saturation(sums_SN, range_(48), rng=rng())


def test_saturation_of_half_a_reader_and_of_two_prompts() -> None:
    half = np.full((32, 32), -200.0)
    np.fill_diagonal(half, -10.0)
    half[::2] = -10.0  # every other reasoning says nothing
    grows = saturation(half, range_(32), rng=rng())
    assert grows.slope == pytest.approx(0.5, abs=0.1)
    assert not grows.saturated
    two = saturation([[-1.0, -99.0], [-99.0, -1.0]], [0, 1], rng=rng())
    assert [point.prompts for point in two.points] == [2]
    assert two.saturated
    merged = saturation(np.zeros((3, 4)), [0, 1, 2], [0, 1, 2, 2], rng=rng())
    assert [point.prompts for point in merged.points] == [2, 3]
    assert merged.points[-1].mi == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(NotMeasurable, match="subsets is 0"):
        saturation(half, range_(32), rng=rng(), subsets=0)


def test_saturation_where_few_contexts_have_reasonings() -> None:
    sums_SN = np.where(np.arange(16) == 3, -1.0, -50.0)[None, :]
    result = saturation(sums_SN, [3], rng=rng(), subsets=20)
    assert result.points[-1].mi == pytest.approx(math.log(16))
    assert all(point.mi == pytest.approx(point.ceiling) for point in result.points)  # subsets without it say nothing, not 0


def range_(count: int) -> list[int]:
    return list(range(count))
