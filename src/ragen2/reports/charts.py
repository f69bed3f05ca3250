"""Line charts as inline SVG: no scripts, nothing fetched, colours from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragen2.reports.text import escape, number

WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 12, 30
COLOURS = 8
MOST_HOVER_POINTS = 200
LARGEST = 1e100


@dataclass(frozen=True)
class Series:
    """A line: its label and its (step, value) points, finite, in order of step. `dashed` for ceilings and references. `colour`
    is a number below COLOURS, None for the line's place in the chart."""

    label: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class Mark:
    """A vertical line at a step, in the colour of a line of the chart (None: the colour of onsets)."""

    step: float
    label: str
    colour: int | None = None


@dataclass(frozen=True)
class Axes:
    """Data ranges and the linear map from data to picture units."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.y_low) / (self.y_high - self.y_low) * (HEIGHT - TOP - BOTTOM)


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    unit: str = "",
    rate: bool = False,
    onset: float | None = None,
    marks: Sequence[Mark] = (),
    about: str = "",
) -> str:
    """A `<figure>` with the lines, a legend and hover titles on the points.

    `rate` fixes the vertical axis to 0..1, `onset` draws the marked step, `marks` further ones, `about` is a sentence under the
    title. Series without points are left out; with none left the result is an empty string.
    """
    series = [line for line in map(_drawable, series) if line.points]
    if not series:
        return ""
    axes = _axes(series, rate)
    drawn = [*marks, *([] if onset is None else [Mark(onset, f"onset {_tick(onset)}")])]
    parts = _grid(axes)
    for row, mark in enumerate(mark for mark in drawn if axes.x_low <= mark.step <= axes.x_high):
        parts += _mark(axes, mark, row)
    for k, line in enumerate(series):
        parts += _line(axes, line, _colour(line, k))
    caption = f"<figcaption>{escape(title)}{f' <small>{escape(unit)}</small>' if unit else ''}</figcaption>"
    legend = "".join(
        f'<span class="key{" dashed" if line.dashed else ""}"><i class="c{_colour(line, k)}"></i>{escape(line.label)}'
        f" <b>{number(line.points[-1][1])}</b></span>"
        for k, line in enumerate(series)
    )
    note = f'<p class="about">{escape(about)}</p>' if about else ""
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f'<figure class="chart">{caption}{note}{svg}<div class="legend">{legend}</div></figure>'


def _drawable(line: Series) -> Series:
    """Without points so large that the range of the axis would be infinite."""
    if all(abs(value) <= LARGEST for _, value in line.points):
        return line
    return replace(line, points=[(step, value) for step, value in line.points if abs(value) <= LARGEST])


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) inside [low, high], about `wanted` of them."""
    raw = (high - low) / max(1, wanted - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.7)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _axes(series: Sequence[Series], rate: bool) -> Axes:
    steps = [x for line in series for x, _ in line.points]
    values = [y for line in series for _, y in line.points]
    x_low, x_high = min(steps), max(steps)
    if x_low == x_high:
        x_low, x_high = x_low - 1, x_high + 1
    if rate:
        return Axes(x_low, x_high, min(0.0, *values, 0.0), max(1.0, *values, 1.0))
    low, high = min(values), max(values)
    if 0 < low < 0.5 * high:
        low = 0.0
    space = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return Axes(x_low, x_high, low if low == 0 else low - space, high + space)


def _grid(axes: Axes) -> list[str]:
    parts = []
    for value in ticks(axes.y_low, axes.y_high):
        y = axes.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{_tick(value)}</text>')
    for value in ticks(axes.x_low, axes.x_high, 6):
        if value == int(value):
            place = f'x="{axes.x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle"'
            parts.append(f'<text class="tick" {place}>{_tick(value)}</text>')
    return parts


def _tick(value: float) -> str:
    return f"{value:.6g}" if abs(value) < 1e5 else f"{value:.2g}"


def _colour(line: Series, place: int) -> int:
    return (place if line.colour is None else line.colour) % COLOURS


def _mark(axes: Axes, mark: Mark, row: int) -> list[str]:
    x = axes.x(mark.step)
    anchor, side = ("end", -4) if x > WIDTH / 2 else ("start", 4)
    kind = "onset" if mark.colour is None else f"mark s{mark.colour % COLOURS}"
    # Labels of neighbouring marks would lie on one another: each has its own line.
    y = TOP + 9 + 12 * (row % 8)
    return [
        f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>',
        f'<text class="{kind}" x="{x + side:.1f}" y="{y}" text-anchor="{anchor}">{escape(mark.label, 40)}</text>',
    ]


def _line(axes: Axes, line: Series, colour: int) -> list[str]:
    placed = [(axes.x(x), axes.y(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    parts = [f'<polyline class="line s{colour}{" dashed" if line.dashed else ""}" points="{path}"/>']
    every = math.ceil(len(placed) / MOST_HOVER_POINTS)
    radius = 0.8 if line.dashed or len(placed) > 60 else 2.4
    label = escape(line.label)
    for (step, value), (x, y) in list(zip(line.points, placed, strict=True))[::every]:
        parts.append(
            f'<g class="point"><circle class="c{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'
            f'<circle class="hit" cx="{x:.1f}" cy="{y:.1f}" r="7"/><title>step {_tick(step)}: {label} {number(value)}</title></g>'
        )
    return parts
