"""Training rows against what the policy saw and sampled, and the settings of the rollouts."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import (
    AFRESH,
    APPEND,
    APPEND_MANY,
    UP,
    UP_UP,
    alone,
    answer,
    fake_logprobs,
    play,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen2.errors import ConfigError
from ragen2.rollout.config import RolloutConfig
from ragen2.rollout.rows import rows_of
from ragen2.trajectory import RolloutBatch


def test_golden_row_of_one_trajectory():
    batch, _, _ = play(UP_UP, chat=APPEND)
    (row,) = rows_of(alone(batch), 5)
    reply = APPEND.reply_ids(UP_UP).tolist()
    bridge = APPEND.bridge_ids("Turn 2 of 5, 8 actions left. Reward 0.2.\ncount 2", ended=True).tolist()
    assert row.trajectory == 5
    assert row.prompt_ids.tolist() == alone(batch).turns[0].context_ids.tolist()
    assert row.suffix_ids.tolist() == [*reply, *bridge, *reply]
    mask = [True] * len(reply) + [False] * len(bridge) + [True] * len(reply)
    assert row.mask.tolist() == mask
    assert row.turn_of_token.tolist() == [0] * len(reply) + [-1] * len(bridge) + [1] * len(reply)
    expected = np.where(mask, fake_logprobs(row.suffix_ids), np.float32(0))
    assert row.logprobs.tolist() == expected.tolist()
    assert len(row) == len(row.prompt_ids) + len(row.suffix_ids)


_REPLIES = st.lists(
    st.tuples(
        st.sampled_from(
            [UP, UP_UP, "no tags", answer("fly"), "<|im_end|> x</think><answer>up</answer>", "", "é\U0001f600</think>"]
        ),
        st.booleans(),
    ),
    min_size=5,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(
    replies=_REPLIES,
    chat=st.sampled_from([APPEND, APPEND_MANY, AFRESH]),
    context=st.sampled_from(["full", "limited", "single-turn"]),
    turn_tokens=st.sampled_from([3, 12, 100]),
    room=st.integers(1, 400),
)
def test_a_trained_token_is_a_sampled_token_after_exactly_what_the_policy_saw(replies, chat, context, turn_tokens, room):
    prompt = len(chat.initial_ids("", "")) + 250
    batch, engine, _ = play(
        lambda row, turn, text: replies[turn],
        chat=chat,
        context=context,
        turn_tokens=turn_tokens,
        context_tokens=max(prompt + room, turn_tokens + 1),
        word_limit=None,
    )
    trajectory = alone(batch)
    trained: list[tuple[bytes, int, float]] = []
    for row in rows_of(trajectory):
        whole = np.concatenate([row.prompt_ids, row.suffix_ids])
        assert len(row.suffix_ids) == len(row.mask) == len(row.logprobs) == len(row.turn_of_token)
        for place in np.nonzero(row.mask)[0]:
            at = len(row.prompt_ids) + int(place)
            trained.append((whole[:at].tobytes(), int(whole[at]), float(row.logprobs[place])))
        assert not row.logprobs[~row.mask].any()
        assert ((row.turn_of_token >= 0) == row.mask).all()
    seen: list[tuple[bytes, int, float]] = []
    for shown, sampled in zip(engine.contexts[0], engine.sampled[0], strict=True):
        for place, token in enumerate(sampled):
            before = np.concatenate([shown, sampled[:place]])
            seen.append((before.tobytes(), int(token), float(fake_logprobs(sampled)[place])))
    assert trained == seen


def test_a_batch_survives_its_file(tmp_path):
    batch, _, _ = play(lambda row, turn, text: answer("raise") if row == 1 else UP, size=3)
    batch.to_jsonl(tmp_path / "rollouts.jsonl")
    again = RolloutBatch.from_jsonl(tmp_path / "rollouts.jsonl")
    for before, after in zip(batch.trajectories, again.trajectories, strict=True):
        assert (before.fault, before.valid, before.task_return) == (after.fault, after.valid, after.task_return)
        assert [row.suffix_ids.tolist() for row in rows_of(before)] == [row.suffix_ids.tolist() for row in rows_of(after)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("groups", 0),
        ("group_size", True),
        ("max_turns", 1.5),
        ("context_tokens", 64),
        ("temperature", float("nan")),
        ("temperature", -1),
        ("format_penalty", 0.1),
        ("step_timeout_s", 0),
        ("word_limit", 0),
        ("context", "window"),
    ],
)
def test_settings_are_checked(setting: str, value: object):
    with pytest.raises(ConfigError, match=setting):
        RolloutConfig(**{setting: value})  # pyright: ignore[reportArgumentType]
