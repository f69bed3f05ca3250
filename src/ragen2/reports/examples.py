"""Ten example trajectories, turn by turn, showing who wrote each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ragen2.reports.png import png_uri
from ragen2.reports.text import escape, number
from ragen2.trajectory import Trajectory, Turn

EXAMPLES = 10
EXTREMES = 3
CLOSE = "</think>"


@dataclass(frozen=True)
class Example:
    """A trajectory and why it was chosen (best, worst or random)."""

    choice: str
    trajectory: Trajectory


def choose_examples(trajectories: Sequence[Trajectory], rng: np.random.Generator) -> list[Example]:
    """Up to EXAMPLES trajectories: the best and the worst EXTREMES by return, the rest drawn from `rng`. No trajectory twice;
    those an environment broke come last, as examples of faults."""
    order = sorted((k for k, item in enumerate(trajectories) if item.valid), key=lambda k: -trajectories[k].return_)
    extremes = min(EXTREMES, len(order) // 2)
    best, worst = order[:extremes], order[len(order) - extremes :][::-1]
    rest = order[extremes : len(order) - extremes]
    broken = [k for k, item in enumerate(trajectories) if not item.valid][:1]
    free = EXAMPLES - len(best) - len(worst) - len(broken)
    drawn = [int(k) for k in rng.permutation(rest)[:free]]
    chosen = [("best", best), ("worst", worst), ("random", drawn), ("fault", broken)]
    return [Example(choice, trajectories[k]) for choice, found in chosen for k in found]


def example_html(example: Example, *, opened: bool = False, picture: np.ndarray | None = None) -> str:
    """One trajectory as a folding block, with the `picture` of its end (H x W x 3 uint8) where there is one."""
    item = example.trajectory
    end, mark = ("success", "good") if item.success else ("no success", "bad")
    if not item.valid:
        end, mark = "left out", "warn"
    head = (
        f'<span class="choice">{escape(example.choice)}</span><span class="badge {mark}">{end}</span>'
        f"<span>{escape(item.environment, 60)}</span><span>return <b>{number(item.return_)}</b></span>"
        f"<span>{len(item.turns)} turn{'' if len(item.turns) == 1 else 's'}</span>"
        f"<span>stopped: {escape(item.stop_reason, 60)}</span>"
        f'<span class="dim">prompt {escape(item.prompt_id, 60)} · level seed {item.level_seed} ·'
        f" noise seed {item.noise_seed}</span>"
    )
    parts = [_turn_html(turn) for turn in item.turns]
    if item.final_observation:
        parts.append(_part("environment", "last observation, never shown to the model", item.final_observation))
    if picture is not None:
        parts.append(f'<p><img alt="the board at the end" src="{png_uri(picture)}"></p>')
    if item.fault:
        parts.append(_part("fault", "fault", item.fault))
    return f'<details class="example"{" open" if opened else ""}><summary>{head}</summary>{"".join(parts)}</details>'


def split_reply(reply: str) -> tuple[str | None, str]:
    """(reasoning, the rest) of a reply, cut at its first closing think tag; (None, reply) where there is none."""
    before, tag, after = reply.partition(CLOSE)
    return (before, after) if tag else (None, reply)


def _turn_html(turn: Turn) -> str:
    reasoning, answer = split_reply(turn.reply)
    parts = [_part("environment", f"observation · {len(turn.context_ids):,} tokens of context", turn.observation)]
    if reasoning is None:
        parts.append(_part("model", "reply without a closing think tag", answer))
    else:
        parts.append(_part("model reasoning", "reasoning", reasoning.removeprefix("<think>").strip("\n")))
        parts.append(_part("model", "answer", answer.strip()))
    return f'<section class="turn"><h4>Turn {turn.index + 1}</h4>{"".join(parts)}<p class="facts">{_facts(turn)}</p></section>'


def _part(kind: str, label: str, text: str) -> str:
    writer = kind.split()[0]
    return f'<div class="part {kind}"><span class="who"><b>{writer}</b> {escape(label)}</span><pre>{escape(text)}</pre></div>'


def _facts(turn: Turn) -> str:
    actions = " || ".join(turn.actions) if turn.actions else "none"
    facts = [
        f"actions done: <code>{escape(actions, 200)}</code>",
        f"reward <b>{number(turn.reward)}</b>",
        f"{len(turn.sampled_ids):,} tokens sampled",
    ]
    if turn.penalty:
        facts.append(f"format penalty <b>{number(turn.penalty)}</b>")
    if len(turn.logprobs):
        facts.append(f"mean log-probability {number(float(np.mean(turn.logprobs)))} nats a token")
    if not turn.valid_think:
        facts.append(f'<span class="badge bad">does not parse: {escape(turn.parse_status, 80)}</span>')
    elif not turn.valid_action:
        facts.append('<span class="badge warn">no legal action</span>')
    if turn.truncated:
        facts.append('<span class="badge warn">cut at the token limit</span>')
    return " · ".join(facts)
