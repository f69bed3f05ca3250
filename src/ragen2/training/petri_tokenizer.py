"""A small tokenizer for the petri model: byte-level BPE in which the words that carry a level are one token each.

A model of two million parameters learns to read its prompt when a cell, a number or an action is one token, and does not when
they are spelled. Two things guarantee that. The pre-tokenizer cuts text into pieces, so that such a word is a piece of its own
with or without one space before it. The vocabulary holds those pieces whole, and `ignore_merges` takes a piece that is in the
vocabulary as it stands, whatever the merges would have made of it. All other text falls back to merges and then to bytes, so any
text survives encoding and decoding.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
TAGS = ("<think>", "</think>", "<answer>", "</answer>", "||")
CELLS = tuple(f"{column}{row}" for column in "abcdefghij" for row in range(11))
INTEGERS = tuple(str(number) for number in range(100))
ACTION_WORDS = ("Up", "Down", "Left", "Right", "up", "down", "left", "right")
ROLES = ("system", "user", "assistant")
MOST_WHOLE = 3072
"""Most pieces of the environments that are richer in words than the built-in grids and numbers."""

PIECES = "|".join(
    (
        r" ?[a-j](?:10|\d)(?![\p{L}\d])",  # a cell name
        r"(?<!\d) ?\d{1,2}(?!\d)",  # an integer below 100
        r"\d",  # longer numbers go digit by digit
        r" ?\p{Lu}(?![\p{Ll}\p{M}])",  # letters of a drawn board stay apart
        r" ?\p{Lu}?[\p{Ll}\p{M}]+",
        r" ?\p{L}",
        r" ?[^\s\p{L}\d]",  # one symbol at a time, also in a drawn board
        r"\s",
    )
)
"""Every character belongs to exactly one alternative, and none can be matched in two ways: linear on hostile text."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(
    texts: Iterable[str],
    words: Iterable[str] = (),
    *,
    whole: Iterable[str] = (),
    size: int = 1200,
    merges: int = 128,
    max_length: int = 8192,
) -> PreTrainedTokenizerFast:
    """Train a tokenizer on `texts`; the same texts give the same tokenizer in any process.

    texts: prompts and replies of the environments to serve.
    words: words that must be one token besides cells, integers 0..99 and moves (each must be one piece: see `split_pieces`).
    whole: texts whose pieces are all to be tokens where they occur more than once, beyond `size` (up to `MOST_WHOLE` pieces).
    size: most tokens, special and guaranteed ones included; what is left goes to the pieces that occur most often.
    merges: byte-pair merges, for text that none of these pieces covers.
    """
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    texts = list(texts)
    vocabulary, learnt = _train(texts, 256 + merges)
    for piece in guaranteed_pieces(words):
        vocabulary.setdefault(piece, len(vocabulary))
    for piece in _frequent_pieces(texts):
        if len(vocabulary) + len(TAGS) + 3 >= size:
            break
        vocabulary.setdefault(piece, len(vocabulary))
    for piece in _frequent_pieces(list(whole))[:MOST_WHOLE]:
        vocabulary.setdefault(piece, len(vocabulary))
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=learnt, ignore_merges=True))
    tokenizer.pre_tokenizer = _pre_tokenizer()  # type: ignore[assignment]
    tokenizer.decoder = ByteLevelDecoder()  # type: ignore[assignment]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in (PAD, START, END)])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
        padding_side="left",
        extra_special_tokens=[START, END],
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def guaranteed_pieces(words: Iterable[str] = ()) -> list[str]:
    """The pieces (in byte-level letters) that are one token each: every word alone and after one space, sorted.

    Raises ValueError for a word that the pre-tokenizer cuts.
    """
    wanted = sorted({*CELLS, *INTEGERS, *ACTION_WORDS, *ROLES, *words})
    for word in wanted:
        if not is_word(word):
            raise ValueError(
                f"{word!r} cannot be one token: it is cut into {split_pieces(word)}. Give its parts as words instead."
            )
    return [split_pieces(text)[0] for word in wanted for text in (word, f" {word}")]


def is_word(text: str) -> bool:
    """Whether `text` is a piece of its own, alone and after a space, and so can be one token."""
    return len(split_pieces(text)) == 1 and len(split_pieces(f" {text}")) == 1 and text.strip() == text


def split_pieces(text: str) -> list[str]:
    """The pieces, in byte-level letters, that `text` is cut into before tokens are looked up."""
    return [piece for piece, _ in _pre_tokenizer().pre_tokenize_str(text)]


def _pre_tokenizer():
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    return Sequence([Split(Regex(PIECES), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


def _frequent_pieces(texts: Sequence[str]) -> list[str]:
    """Pieces that occur more than once, the most frequent first."""
    cut = _pre_tokenizer().pre_tokenize_str
    counts = Counter(piece for text in texts for piece, _ in cut(text))
    return sorted((piece for piece, count in counts.items() if count > 1), key=lambda piece: (-counts[piece], piece))


def _train(texts: Sequence[str], size: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Byte-pair merges learnt from `texts`, at most `size` entries, all 256 bytes included."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer()  # type: ignore[assignment]
    trainer = BpeTrainer(vocab_size=size, initial_alphabet=sorted(ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return dict(model["vocab"]), [(left, right) for left, right in model["merges"]]
