"""The figures of a gradient analysis as table cells, and as one HTML page that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from ragen2 import __version__
from ragen2.diagnostics.gradient_norms import BoundCheck, BucketGradients, GradientReport, SplitHalf, reading
from ragen2.reports.charts import ticks
from ragen2.reports.text import DASH, escape, number
from ragen2.storage import write_whole

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 12, 44

PLAIN_COLUMNS = ("bucket", "|A = R - mean|", "signal", "noise floor", "cosine", "p", "|reg| weighted", "|total|")
BOUND_COLUMNS = ("group", "G", "variance (ddof 0)", "|g task|", "sqrt(mean |s|²)", "bound", "slack")
Cells = tuple[str, ...]


def headline(report: GradientReport) -> str:
    """What was analysed, in a line."""
    tokens = report.buckets[0].tokens
    return (
        f"{report.checkpoint} · {report.algorithm} · {report.group_count} groups x {report.group_size} · {report.parameters:,} "
        f"parameters · each bucket on {tokens:,} model tokens · seed {report.seed}"
    )


def bucket_columns(report: GradientReport) -> Cells:
    """Headings of `bucket_cells`."""
    return (
        "bucket", "groups", report.spread, "tokens", "|task|", "signal", "noise floor", "cosine", "p", "|KL|", "|entropy|",
        "SNR", "rho",
    )  # fmt: skip


def bucket_cells(bucket: BucketGradients) -> Cells:
    """A bucket's figures, a cell a heading; an en dash where one was not measured."""
    tokens = number(bucket.tokens) + ("" if bucket.tokens == bucket.tokens_there else f"/{number(bucket.tokens_there)}")
    spread = number(bucket.low) + ("" if bucket.low == bucket.high else f"-{number(bucket.high)}")
    kl = None if bucket.kl is None else bucket.kl.norm
    figures = (*_half(bucket.task), kl, bucket.entropy.norm, bucket.snr, bucket.rho)
    return (bucket.label, number(len(bucket.groups)), spread, tokens, *(number(value) for value in figures))


def plain_cells(bucket: BucketGradients) -> Cells:
    """The gradient with A = R - mean R, and what the run's loss sums, a cell a heading of PLAIN_COLUMNS."""
    return (bucket.label, *(number(value) for value in (*_half(bucket.plain), bucket.regulariser, bucket.total)))


def _half(part: SplitHalf) -> tuple[float | None, ...]:
    return part.norm, part.signal, part.noise, part.cosine, part.p_value


def bound_cells(check: BoundCheck) -> Cells:
    """A prompt's bound, a cell a heading."""
    figures = (check.variance, check.norm, check.score_norm, check.bound, check.slack)
    return (str(check.group), str(check.trajectories), *(number(value) for value in figures))


def write_gradient_page(report: GradientReport, path: Path) -> None:
    """Write the page, whole. Raises StorageError when it cannot be written."""
    write_whole(path, gradient_page(report).encode("utf-8"))


def gradient_page(report: GradientReport) -> str:
    """The page: reading, charts of the norms with their floors, tables, notes."""
    style = files("ragen2.reports").joinpath("report.css").read_text(encoding="utf-8")
    said = "".join(f"<li>{escape(line)}</li>" for line in reading(report))
    notes = "".join(f"<li>{escape(line)}</li>" for line in report.notes)
    sections = [
        f"<h1>Gradients by reward {escape(report.spread)}</h1>",
        f'<p class="dim">{escape(report.target)} · {escape(headline(report))}</p>',
        f"<ul>{said}</ul>",
        _charts(report),
        f"<h2>Buckets</h2>{_table(bucket_columns(report), [bucket_cells(bucket) for bucket in report.buckets])}",
        "<h2>A = R - mean R, and everything the loss sums</h2>",
        _table(PLAIN_COLUMNS, [plain_cells(bucket) for bucket in report.buckets]),
        f"<h2>Halves of every part</h2>{_halves(report)}",
    ]
    if report.bound:
        sections.append(
            "<h2>Bound by reward variance</h2><p>|g| ≤ sqrt(variance) · sqrt(mean |s|²) for A = R - mean R, prompt by prompt.</p>"
            + _table(BOUND_COLUMNS, [bound_cells(check) for check in report.bound])
        )
    if notes:
        sections.append(f"<h2>Notes</h2><ul>{notes}</ul>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Gradients · {escape(report.checkpoint, 200)} · ragen2</title><style>{style}</style></head>\n"
        f"<body><main>{''.join(sections)}<footer>ragen2 {escape(__version__)}</footer></main></body></html>\n"
    )


PARTS: tuple[tuple[str, Callable[[BucketGradients], SplitHalf | None], str], ...] = (
    ("Task gradient, the run's advantages", lambda bucket: bucket.task, "c0"),
    ("Task gradient, A = R - mean R", lambda bucket: bucket.plain, "c1"),
    ("KL gradient, not weighted", lambda bucket: bucket.kl, "c2"),
    ("Entropy gradient, not weighted", lambda bucket: bucket.entropy, "c3"),
)


def _charts(report: GradientReport) -> str:
    labels = [bucket.label for bucket in report.buckets]
    charts = [bar_chart(title, labels, [get(bucket) for bucket in report.buckets], colour) for title, get, colour in PARTS]
    about = (
        "Bars: norm of the gradient. Line across a bar: its noise floor, the norm that sampling noise alone gives at this number "
        "of tokens. Dot: signal, what is left without the noise."
    )
    return f'<h2>Norms</h2><p>{about}</p><div class="charts">{"".join(charts)}</div>'


def bar_chart(title: str, labels: Sequence[str], parts: Sequence[SplitHalf | None], colour: str) -> str:
    """A `<figure>` with a bar for each bucket, its floor and its signal; empty when nothing was measured."""
    values = [value for part in parts if part is not None for value in (part.norm, part.noise, part.signal) if value is not None]
    if not values:
        return ""
    top = 1.08 * max(values) or 1.0
    step = (WIDTH - LEFT - RIGHT) / len(labels)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    drawn = []
    for value in ticks(0.0, top):
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        drawn.append(f'<text class="tick" x="{LEFT - 6}" y="{y(value) + 3.5:.1f}" text-anchor="end">{value:.3g}</text>')
    for place, (label, part) in enumerate(zip(labels, parts, strict=True)):
        left, middle = LEFT + place * step, LEFT + (place + 0.5) * step
        drawn.append(
            f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(label, 24)}</text>'
        )
        if part is None:
            continue
        hover = f"{label}: norm {number(part.norm)}, noise floor {number(part.noise)}, signal {number(part.signal)}"
        drawn.append(
            f'<g class="point"><rect x="{left + 0.2 * step:.1f}" width="{0.6 * step:.1f}" y="{y(part.norm):.1f}" '
            f'height="{HEIGHT - BOTTOM - y(part.norm):.1f}" style="fill:var(--{colour});opacity:.55"/>'
            f"<title>{escape(hover)}</title></g>"
        )
        if part.noise is not None:
            ends = f'x1="{left + 0.1 * step:.1f}" x2="{left + 0.9 * step:.1f}" y1="{y(part.noise):.1f}" y2="{y(part.noise):.1f}"'
            drawn.append(f'<line class="floor" {ends} style="stroke:var(--ink);stroke-width:2"/>')
        if part.signal is not None:
            drawn.append(f'<circle class="{colour}" cx="{middle:.1f}" cy="{y(part.signal):.1f}" r="4"/>')
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg>'
    return f'<figure class="chart"><figcaption>{escape(title)}</figcaption>{svg}</figure>'


def _halves(report: GradientReport) -> str:
    rows = []
    for title, get, _ in PARTS:
        for bucket in report.buckets:
            part = get(bucket)
            if part is not None:
                above = {True: "yes", False: "no", None: DASH}[part.above_floor]
                figures = (part.norm, part.signal_squared, part.signal, part.noise, part.cosine, part.p_value)
                shown = [number(value) for value in figures]
                rows.append((title, bucket.label, *shown, above, f"{part.halves} of {part.blocks} blocks"))
    heads = ("part", "bucket", "norm", "g1·g2", "signal", "noise floor", "cosine", "p", "above floor", "pairs of halves")
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    header = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'
