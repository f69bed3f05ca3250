"""A replayed trajectory as one HTML page that needs no network (pictures, the model's text, buttons), and as terminal text."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from ragen2.reports.examples import split_reply
from ragen2.reports.png import png_uri
from ragen2.reports.replay import Frame, Replay
from ragen2.reports.text import escape, number, visible
from ragen2.trajectory import Turn

SAME = "The replay shows the same observations, rewards and end as the record."


def replay_html(replayed: Replay) -> str:
    """The whole page. Text of the model and the environment is escaped; only the page's own script may run."""
    reports = files("ragen2.reports")
    style = reports.joinpath("replay.css").read_text(encoding="utf-8")
    script = reports.joinpath("replay.js").read_text(encoding="utf-8")
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'"
    item = replayed.trajectory
    title = f"{escape(item.environment, 60)} · level seed {item.level_seed} · noise seed {item.noise_seed}"
    frames = "".join(_frame_html(replayed, k) for k in range(len(replayed.frames)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{title} · ragen2 replay</title><style>{style}</style></head>\n<body><main><h1>{title}</h1>"
        f'{_head_html(replayed)}{_BUTTONS}<div id="frames">{frames}</div></main><script>{script}</script></body></html>\n'
    )


_BUTTONS = (
    '<nav><button id="back" type="button">◀ step</button><button id="play" type="button">play</button>'
    '<button id="on" type="button">step ▶</button><input id="place" type="range" min="0" value="0" aria-label="frame">'
    '<span id="count"></span></nav>'
)


def replay_text(replayed: Replay) -> str:
    """The frames as plain text, control characters made visible."""
    item = replayed.trajectory
    lines = [f"{item.environment} · level seed {item.level_seed} · noise seed {item.noise_seed} · {_outcome(replayed)}"]
    for frame in replayed.frames:
        lines.append(f"\n== {_heading(frame)}")
        lines.append(frame.text)
        if frame.action is None:
            lines.append(f"-- model: {item.turns[frame.turn].reply.strip()}")
    lines.append("\n" + _comparison(replayed))
    return visible("\n".join(lines))


def _head_html(replayed: Replay) -> str:
    mark = "bad" if replayed.differences else "good"
    return f'<p>{escape(_outcome(replayed), 300)}</p><p class="{mark}">{escape(_comparison(replayed))}</p>'


def _outcome(replayed: Replay) -> str:
    item = replayed.trajectory
    end = "success" if item.success else "no success"
    if not item.valid:
        end = f"left out: {item.fault}"
    return f"{end}, return {number(item.return_)}, {len(item.turns)} turns, stopped: {item.stop_reason}"


def _comparison(replayed: Replay) -> str:
    if not replayed.differences:
        return SAME
    return "The replay differs from the record (other options, or chance outside the seeds?): " + "; ".join(replayed.differences)


def _heading(frame: Frame) -> str:
    if frame.action is None:
        return f"turn {frame.turn + 1}"
    legal = "" if frame.legal else ", not legal"
    return f"turn {frame.turn + 1}, after {frame.action}: reward {number(frame.reward)}{legal}{', the end' if frame.done else ''}"


def _frame_html(replayed: Replay, place: int) -> str:
    frame = replayed.frames[place]
    image = ""
    if frame.image is not None:
        height, width = frame.image.shape[:2]
        image = f'<img alt="the board" width="{width}" height="{height}" src="{png_uri(frame.image)}">'
    turn = replayed.trajectory.turns[frame.turn]
    return (
        f'<section class="frame"><h2>{escape(_heading(frame), 300)}</h2><div class="sides">'
        f'<div class="shown">{image}<pre>{escape(frame.text)}</pre></div>'
        f'<div class="said">{_turn_html(turn)}</div></div></section>'
    )


def _turn_html(turn: Turn) -> str:
    reasoning, answer = split_reply(turn.reply)
    parts = [] if reasoning is None else [("reasoning", reasoning.removeprefix("<think>").strip("\n"))]
    parts.append(("answer" if reasoning is not None else "reply that does not close its thinking", answer.strip()))
    return "".join(f"<h3>{escape(label)}</h3><pre>{escape(text)}</pre>" for label, text in parts)
