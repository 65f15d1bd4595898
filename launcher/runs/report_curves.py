"""Curves as SVG text, drawn from numbers alone: no script, no font, no other file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

WIDTH, HEIGHT = 560, 230
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 30
"""Margins around the plot, in the drawing's own units."""
MOST_POINTS = 400
"""Points drawn of a line; of more, each stretch's lowest and highest are kept, so that no spike is lost."""
FEWEST_SMOOTHED = 60
"""Points from which a noisy line is drawn pale under its moving mean."""

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One quantity over steps."""

    name: str
    points: tuple[Point, ...]
    """(step, value), by step; a value that is no number breaks the line."""
    is_sparse: bool = False
    """Drawn with a mark at each point: evaluations, say."""
    is_noisy: bool = False
    """Drawn with its moving mean."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over the same axis."""

    title: str
    lines: tuple[Line, ...]
    show: Callable[[float], str]
    """A value as text, for ticks and tooltips."""
    is_binary: bool = False
    """Ticks are round in KiB, MiB or GiB, whichever the values call for."""
    planned: float | None = None
    """Drawn as a dashed level."""
    resumed_at: tuple[int, ...] = ()
    """Steps at which a later attempt went on."""


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """From values to the drawing's units."""

    first: float
    last: float
    low: float
    high: float

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)


def drawing(chart: Chart) -> str:
    """The chart as an ``<svg>`` element; its colours are the page's classes. Empty without a finite point."""
    points = [point for line in chart.lines for point in line.points if math.isfinite(point[1])]
    if not points:
        return ""
    frame = _frame(points, chart.planned)
    body = [*_axes(frame, chart), *_resumptions(frame, chart.resumed_at), *_level(frame, chart)]
    for index, line in enumerate(chart.lines):
        body += _line(frame, line, index, chart.show)
    label = escape(f"{chart.title}: {', '.join(line.name for line in chart.lines)} over steps")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(body)}</svg>'


def ticks(low: float, high: float, *, most: int) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) inside ``[low, high]``, about ``most`` of them."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(width for width in (power, 2 * power, 5 * power, 10 * power) if high - low <= most * width)
    return [index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1)]


def thinned(points: Sequence[Point], *, most: int = MOST_POINTS) -> list[Point]:
    """At most about ``most`` points: of each stretch of neighbours the lowest and the highest, by step."""
    if len(points) <= most:
        return list(points)
    stretch = math.ceil(2 * len(points) / most)
    kept = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


def smoothed(points: Sequence[Point]) -> list[Point]:
    """The moving mean over a twentieth of the points, centred."""
    half = max(1, len(points) // 40)
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    found = []
    for index, (step, _) in enumerate(points):
        begin, end = max(0, index - half), min(len(points), index + half + 1)
        found.append((step, (sums[end] - sums[begin]) / (end - begin)))
    return found


def _frame(points: Sequence[Point], planned: float | None) -> _Frame:
    steps = [step for step, _ in points]
    values = [value for _, value in points] + ([] if planned is None else [planned])
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    first, last = min(steps), max(steps)
    floor = 0.0 if low >= 0 else -math.inf  # nothing here falls below zero that does not start there
    return _Frame(first=first, last=max(last, first + 1), low=max(low - room, floor), high=high + room)


def _axes(frame: _Frame, chart: Chart) -> Iterator[str]:
    unit = 1024.0 ** math.floor(math.log(frame.high, 1024)) if chart.is_binary else 1.0
    for value in ticks(frame.low / unit, frame.high / unit, most=6):
        y, text = frame.y(value * unit), escape(chart.show(value * unit))
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
    for step in ticks(frame.first, frame.last, most=7):
        if step == int(step):
            place = f'x="{frame.x(step):.1f}" y="{HEIGHT - 8}"'
            yield f'<text class="tick" {place} text-anchor="middle">{int(step):,}</text>'


def _resumptions(frame: _Frame, steps: Iterable[int]) -> Iterator[str]:
    for step in steps:
        x = frame.x(step)
        line = f'<line class="resumed" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">'
        yield f"{line}<title>resumed at step {step:,}</title></line>"


def _level(frame: _Frame, chart: Chart) -> Iterator[str]:
    if chart.planned is not None:
        y, text = frame.y(chart.planned), escape(chart.show(chart.planned))
        line = f'<line class="planned" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}">'
        yield f"{line}<title>planned {text}</title></line>"


def _line(frame: _Frame, line: Line, index: int, show: Callable[[float], str]) -> Iterator[str]:
    has_mean = line.is_noisy and len(line.points) >= FEWEST_SMOOTHED
    for piece in _unbroken(line.points):
        yield _path(frame, thinned(piece), f"line line{index}{' pale' if has_mean else ''}")
        if has_mean:
            yield _path(frame, thinned(smoothed(piece)), f"line line{index}")
    finite = [point for point in line.points if math.isfinite(point[1])]
    radius = 3 if line.is_sparse or len(finite) == 1 else 6
    kind = "mark" if radius == 3 else "hover"
    for step, value in thinned(finite):
        title = escape(f"step {step:,.0f}: {line.name} {show(value)}")
        place = f'cx="{frame.x(step):.1f}" cy="{frame.y(value):.1f}"'
        yield f'<circle class="{kind} line{index}" {place} r="{radius}"><title>{title}</title></circle>'


def _unbroken(points: Iterable[Point]) -> Iterator[list[Point]]:
    for is_finite, piece in groupby(points, key=lambda point: math.isfinite(point[1])):
        if is_finite:
            yield list(piece)


def _path(frame: _Frame, points: Iterable[Point], kind: str) -> str:
    corners = " L".join(f"{frame.x(step):.1f},{frame.y(value):.1f}" for step, value in points)
    return f'<path class="{kind}" d="M{corners}"/>'
