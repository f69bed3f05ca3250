"""Reads the actions of SearchQA: `search[query]` and `finish[answer]`, from hostile text."""

from __future__ import annotations

from ragen2.envs.answer_match import MAX_CHARS

VERBS = ("search", "finish")


def read_action(action: str) -> tuple[str, str]:
    """("search" or "finish", argument on one line); two empty texts where it is neither.

    Brackets inside the argument must be balanced, so that two actions in one answer are none. `||` in it is text.
    """
    if len(action) > MAX_CHARS + 20:
        return "", ""
    name, bracket, rest = action.strip().partition("[")
    verb = name.strip()
    if not bracket or not verb.isascii() or verb.lower() not in VERBS or not rest.endswith("]"):
        return "", ""
    argument = rest[:-1]
    depth = 0
    for char in argument:
        depth += (char == "[") - (char == "]")
        if depth < 0:
            return "", ""
    # Lone surrogates can neither be sent nor shown.
    clean = " ".join(argument.encode("utf-8", "ignore").decode().split())
    return (verb.lower(), clean) if clean and depth == 0 and len(clean) <= MAX_CHARS else ("", "")
