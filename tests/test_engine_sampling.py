"""Drawing tokens by inverting the cumulative distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ragen2.engines.sampling import BLOCK, RowUniforms, sample_tokens
from ragen2.errors import NonFiniteLoss


def test_frequencies_follow_the_distribution() -> None:
    logits = torch.tensor([0.0, 2.0, -1.0, float("-inf"), 1.0])
    count = 20_000
    ids, logprobs = sample_tokens(logits.expand(count, -1), np.random.default_rng(0).random(count), 1.5)
    expected = (logits / 1.5).softmax(-1).numpy()
    found = np.bincount(ids, minlength=5) / count
    np.testing.assert_allclose(found, expected, atol=4 * np.sqrt(0.25 / count))
    np.testing.assert_allclose(logprobs, np.log(expected[ids]), atol=1e-6)


@pytest.mark.parametrize("uniform", [0.0, 0.5, np.nextafter(1.0, 0.0)])
def test_a_token_of_probability_zero_is_never_drawn(uniform: float) -> None:
    nothing = float("-inf")
    logits = torch.tensor([[nothing, nothing, 3.0, nothing], [nothing, 0.1, nothing, nothing], [-1e9, 0.0, 0.0, -1e9]])
    ids, _ = sample_tokens(logits, np.full(3, uniform), 1.0)
    assert ids.tolist() == [2, 1, 1 if uniform < 0.5 else 2]


def test_greedy_takes_the_likeliest_at_temperature_one() -> None:
    logits = torch.tensor([[0.0, 5.0, 1.0]])
    ids, logprobs = sample_tokens(logits, None, 0.0)
    assert ids.tolist() == [1]
    assert logprobs[0] == pytest.approx(float(logits.log_softmax(-1)[0, 1]), abs=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(bad: float, temperature: float) -> None:
    with pytest.raises(NonFiniteLoss, match="in 1 of 2 rows"):
        sample_tokens(torch.tensor([[0.0, 1.0], [bad, 0.0]]), np.array([0.3, 0.3]), temperature)


def test_each_row_draws_from_its_own_stream() -> None:
    alone = RowUniforms([7])
    together = RowUniforms([3, 7, 7])
    expected = [alone.draw(np.array([0]))[0] for _ in range(2 * BLOCK + 3)]
    found = []
    for step in range(2 * BLOCK + 3):
        rows = np.array([0, 1]) if step % 3 else np.array([1])
        found.append(together.draw(rows)[-1])
    assert found == expected
    assert together.draw(np.array([2]))[0] == expected[0]
    assert len(set(found)) == len(found)
