"""Mini- and micro-batches: every row once, within budget, dealt evenly."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen2.training.batches import PADDING, plan_micro_batches, spread_over_steps

ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 2000))
def test_every_row_is_planned_once_and_within_budget(rows, budget):
    prefixes = [prefix for prefix, _ in rows]
    prefix_lengths = [10 + 7 * prefix for prefix, _ in rows]
    lengths = [length for _, length in rows]
    plan = plan_micro_batches(prefixes, prefix_lengths, lengths, budget)
    assert sorted(row for batch in plan for row in batch.rows) == list(range(len(rows)))
    for batch in plan:
        widths = {len(group) for group in batch.rows_PR}
        assert len(widths) == 1
        for group in batch.rows_PR:
            assert len({prefixes[row] for row in group if row != PADDING}) == 1
        tokens = len(batch.rows_PR) * (
            max(prefix_lengths[row] for row in batch.rows) + widths.pop() * max(lengths[row] for row in batch.rows)
        )
        alone = len(batch.rows) == 1
        assert alone or tokens <= max(budget, max(a + b for a, b in zip(prefix_lengths, lengths, strict=True)))


def test_no_rows_make_no_batches():
    assert plan_micro_batches([], [], [], 100) == []


def test_groups_share_their_prefix_when_the_budget_allows():
    plan = plan_micro_batches([0] * 16 + [1] * 16, [200] * 32, [100] * 32, 10**6)
    assert len(plan) == 1
    assert [len(group) for group in plan[0].rows_PR] == [16, 16]


def test_members_are_dealt_evenly_and_once():
    groups = [list(range(0, 16)), list(range(16, 32)), list(range(32, 39))]
    dealt = spread_over_steps(groups, 4, np.random.default_rng(0))
    assert sorted(member for step in dealt for member in step) == list(range(39))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    for step in dealt:
        assert sum(member < 16 for member in step) == 4


def test_dealing_depends_on_the_generator_only():
    groups = [list(range(8)), list(range(8, 16))]
    first = spread_over_steps(groups, 3, np.random.default_rng(5))
    assert first == spread_over_steps(groups, 3, np.random.default_rng(5))
    assert first != spread_over_steps(groups, 3, np.random.default_rng(6))
