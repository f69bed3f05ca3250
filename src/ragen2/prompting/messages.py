"""The words the model is shown: the system text, each turn's text and the notice after a reply that did nothing.

Terse on purpose: the smallest model reads them with a vocabulary of a few hundred words. The collector puts exactly these
texts into the context that is sampled from, so what the policy was told is by construction also what it is trained on.
"""

from __future__ import annotations

SEPARATOR = "||"
"""Stands between the actions of one answer."""


def system_text(
    instructions: str, *, multi_action: bool, actions_per_turn: int, think: bool = True, word_limit: int | None = 30
) -> str:
    """The system message: a helper line, the environment's instructions, the format.

    `word_limit` is the advised length of the reasoning in words (None: none is named).
    """
    several = multi_action and actions_per_turn > 1
    answer = f"action {SEPARATOR} action" if several else "action"
    budget = f" with at most {actions_per_turn} actions" if several else ""
    if think:
        limit = f" in at most {word_limit} words" if word_limit is not None else ""
        how = f"Think first{limit}, then answer{budget}: <think> reasoning </think> <answer> {answer} </answer>"
    else:
        how = f"Answer{budget}: <answer> {answer} </answer>"
    return f"You solve a task in turns.\n{instructions.strip()}\n{how}"


def turn_text(
    turn: int,
    max_turns: int,
    actions_left: int,
    observation: str,
    *,
    last_reward: float | None = None,
    last_notice: str | None = None,
) -> str:
    """The user message of turn `turn` (counted from 1): budgets, what the last reply earned, last the observation as it is."""
    head = [f"Turn {turn} of {max_turns}, {actions_left} actions left."]
    if last_reward is not None:
        head.append(f"Reward {format_reward(last_reward)}.")
    if last_notice:
        head.append(last_notice)
    return f"{' '.join(head)}\n{observation}"


def format_reward(reward: float) -> str:
    """One decimal where that is exact, else four significant digits."""
    short = f"{reward:.1f}"
    text = short if abs(float(short) - reward) < 1e-9 else f"{reward:.4g}"
    return text.removeprefix("-") if float(text) == 0 else text


def notice_text(parse_status: str, valid_action: bool) -> str | None:
    """What the model is told after a reply without a legal action; None when it had one."""
    if valid_action:
        return None
    if parse_status == "truncated":
        return "The last reply was too long."
    if parse_status != "ok":
        return "The last reply broke the format."
    return "No legal action in the last reply."
