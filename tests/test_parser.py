"""Reading replies: what is valid, what is not and why, hostile text, and the reasoning's range in tokens."""

from __future__ import annotations

import pytest
from fakes import byte_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen2.prompting.chat_format import ChatFormat
from ragen2.prompting.reply import MAX_ACTION_CHARS, ParsedReply, parse_reply, reasoning_span


def read(text: str, **options) -> ParsedReply:
    return parse_reply(text, **{"multi_action": True, "max_actions": 2, **options})


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("x</think><answer>Up</answer>", "ok"),
        (" x \n</think> \n <answer> Up </answer> \n", "ok"),
        ("</think><answer>Up</answer>", "ok"),
        ("x</think><answer></answer>", "ok"),
        ("so <answer>Up</answer>", "no_think_end"),
        ("", "no_think_end"),
        ("<answer>Up</answer></think>", "no_answer"),
        ("x</think>", "no_answer"),
        ("x</think><answer>Up", "no_answer"),
        ("x</think>Up</answer>", "no_answer"),
        ("x</think></answer><answer>", "no_answer"),
        ("x</think>y</think><answer>Up</answer>", "repeated_think"),
        ("x</think><answer>Up</think></answer>", "repeated_think"),
        ("x</think><answer>Up</answer><answer>Down</answer>", "repeated_answer"),
        ("x</think><answer>Let me <answer>Up</answer>", "repeated_answer"),
        ("x</think><answer>Up</answer></answer>", "repeated_answer"),
        ("x</think> then <answer>Up</answer>", "stray_text"),
        ("x</think><answer>Up</answer> done", "stray_text"),
        ("x</think><answer>Up</answer><|im_end|>", "stray_text"),
    ],
)
def test_status(text: str, status: str):
    parsed = read(text)
    assert parsed.status == status
    assert parsed.valid_think == (status == "ok")
    if status != "ok":
        assert parsed == ParsedReply(parsed.status)


def test_only_the_answer_region_is_read():
    parsed = read("maybe <answer>Left</answer>? no.</think><answer>Right</answer>")
    assert parsed.actions == ("Right",)
    assert parsed.reasoning == "maybe <answer>Left</answer>? no."


def test_a_cut_reply_is_truncated_even_if_it_looks_right():
    assert read("x</think><answer>Up</answer>", ended=False) == ParsedReply("truncated")


def test_parser_knows_whether_the_opening_tag_was_prefilled():
    assert read("x</think><answer>Up</answer>", think_prefilled=False).status == "no_think_start"
    parsed = read(" <think>x</think><answer>Up</answer>", think_prefilled=False)
    assert (parsed.status, parsed.reasoning) == ("ok", "x")
    assert read("<think>x</think><answer>Up</answer>").reasoning == "<think>x"


def test_without_thinking_the_tag_is_ordinary_text():
    parsed = read('<answer>I typed "<think>"</answer>', think=False)
    assert (parsed.status, parsed.reasoning, parsed.actions) == ("ok", None, ('I typed "<think>"',))
    assert read('I typed "<think>" <answer>Up</answer>', think=False).status == "stray_text"
    assert read("<answer>Let me think <answer>Up</answer>", think=False).status == "repeated_answer"


def test_tags_count_in_any_case_and_actions_keep_their_text():
    parsed = read("İ wonder</THINK><Answer> Up. || \uff35\uff50 </ANSWER>")
    assert parsed.actions == ("Up.", "\uff35\uff50")
    assert parsed.reasoning == "İ wonder"


def test_actions_split_only_where_several_are_taken():
    text = "x</think><answer>search[a||b]</answer>"
    assert read(text, multi_action=False, max_actions=1).actions == ("search[a||b]",)
    assert read(text).actions == ("search[a", "b]")


def test_surplus_actions_are_dropped_and_counted():
    parsed = read("x</think><answer>a || b|| ||c||d</answer>")
    assert (parsed.actions, parsed.surplus_actions) == (("a", "b"), 2)
    assert read("x</think><answer>a||b</answer>", max_actions=0).surplus_actions == 2


def test_actions_are_bounded():
    parsed = read(f"x</think><answer>{'y' * 50_000}</answer>", multi_action=False, max_actions=1)
    assert len(parsed.actions[0]) == MAX_ACTION_CHARS


@pytest.mark.parametrize("piece", ["<think>", "</think>", "<answer>", "</answer>", "<answer></answer>", "||", "<", " "])
def test_long_hostile_text_is_read_in_linear_time(piece: str):
    # Half a million tags: a quadratic scan would run for hours.
    for text in (piece * 500_000, f"x</think><answer>{piece * 500_000}</answer>"):
        parsed = read(text)
        assert len(parsed.actions) <= 2


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "||", " ", "up", "\n", "<ANSWER>", "ſ", "\x00"]))
)
def test_any_text_reads_and_ok_means_the_definition(pieces: list[str]):
    text = "".join(pieces)
    parsed = read(text)
    if parsed.status == "ok":
        assert parsed.reasoning is not None and parsed.answer is not None
        low = text.lower()
        assert low.count("</think>") == 1
        after = low.partition("</think>")[2].strip()
        assert after.startswith("<answer>")
        assert after.endswith("</answer>")
        assert (after.count("<answer>"), after.count("</answer>")) == (1, 1)
        assert text[: parsed.reasoning_end] == parsed.reasoning
    else:
        assert parsed.actions == ()


@pytest.mark.parametrize("tags", [False, True])
def test_reasoning_span_is_the_tokens_before_the_tag(tags: bool):
    chat = ChatFormat(byte_tokenizer(tags=tags))
    ids = chat.without_end(chat.reply_ids(" why \u00e9\U0001f600 \n</think><answer>up</answer>"))
    end = parse_reply(chat.decode(ids), multi_action=True, max_actions=1).reasoning_end
    assert end is not None
    start, stop = reasoning_span(ids, chat.decode, end)
    assert start == 0
    assert chat.decode(ids[:stop]) == " why \u00e9\U0001f600 \n"
    assert chat.decode(ids[stop:]).startswith("</think>")


def test_a_token_that_straddles_the_tag_is_left_out():
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["y</"])
    chat = ChatFormat(tokenizer)
    ids = chat.without_end(chat.reply_ids("why</think><answer>up</answer>"))
    end = parse_reply(chat.decode(ids), multi_action=True, max_actions=1).reasoning_end
    assert end == 3
    assert chat.decode(ids[: reasoning_span(ids, chat.decode, end)[1]]) == "wh"


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40), tags=st.booleans())
def test_reasoning_span_agrees_with_a_search_over_every_prefix(text: str, tags: bool):
    chat = _CHATS[tags]
    ids = chat.without_end(chat.reply_ids(f"{text}</think><answer>up</answer>"))
    end = parse_reply(chat.decode(ids), multi_action=True, max_actions=1).reasoning_end
    if end is None:
        return
    wholly_before = [n for n in range(len(ids) + 1) if len(chat.decode(ids[:n])) <= end]
    assert reasoning_span(ids, chat.decode, end) == (0, max(wholly_before))
    assert wholly_before == list(range(len(wholly_before)))


def test_reasoning_span_of_an_empty_reasoning_is_empty():
    chat = _CHATS[False]
    ids = chat.reply_ids("</think><answer>up</answer>")
    assert reasoning_span(ids, chat.decode, 0) == (0, 0)


_CHATS = {tags: ChatFormat(byte_tokenizer(tags=tags)) for tags in (False, True)}
