"""Line charts as SVG: a few dozen lines that follow the page's colours, in light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 44
MOST_POINTS = 400

Number = int | float


@dataclass(frozen=True)
class Series:
    """A line of a chart. ``kind`` names its colour in the style sheet; ``marked`` draws every point as a dot."""

    label: str
    steps: Sequence[Number]
    values: Sequence[Number]
    kind: str
    marked: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with: a baseline, chance."""

    label: str
    value: Number


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    write: Callable[[Number], str],
    levels: Sequence[Level] = (),
    changes: Sequence[tuple[Number, str]] = (),
    tick: Callable[[Number], str] | None = None,
    limits: tuple[Number | None, Number | None] = (None, None),
) -> str:
    """A figure with caption, legend and plot over steps; the empty string where no series has a finite value.

    Args:
        write: a value as text, for the legend and the dots' tooltips.
        levels: always inside the range shown.
        changes: (step, label) of vertical marks.
        tick: a value as text on the axis; None writes it short.
        limits: fixed lowest and highest value; None takes the data's.
    """
    series = [finite(one) for one in series]
    series = [one for one in series if one.steps]
    if not series:
        return ""
    values = [v for one in series for v in one.values] + [level.value for level in levels]
    low, high = widened(min(values), max(values), limits)
    first = min(min(one.steps) for one in series)
    last = max(max(one.steps) for one in series)
    # From step 0, unless the record begins late in the run.
    first = 0 if first < 0.2 * last else first
    plot = _Plot(first, last if last > first else first + 1, low, high)
    described = "; ".join(f"{one.label}: {write(one.values[0])} to {write(one.values[-1])}" for one in series)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{title}. {described}")}">',
        *plot.axes(tick or tick_label),
        *(part for change in changes for part in plot.change(*change)),
        *(plot.level(level) for level in levels),
        *(part for one in series for part in plot.line(one, write)),
        "</svg>",
    ]
    return f"<figure><figcaption>{escape(title)}</figcaption>{legend(series, levels, write)}{''.join(parts)}</figure>"


def legend(series: Sequence[Series], levels: Sequence[Level], write: Callable[[Number], str]) -> str:
    """The lines' names with their last values."""
    items = [(one.kind, one.label, one.values[-1]) for one in series]
    items += [("level", level.label, level.value) for level in levels]
    return '<p class="legend">{}</p>'.format(
        "".join(
            f'<span class="key {kind}"><i></i>{escape(label)} <b>{escape(write(value))}</b></span>'
            for kind, label, value in items
        )
    )


def ticks(low: Number, high: Number, most: int = 6) -> list[Number]:
    """Round numbers (1, 2 or 5 times a power of ten apart) inside the range, at most ``most`` steps apart."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def tick_label(value: Number) -> str:
    """Short: 20k, 1.5M, 0.25, 5e-05."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"


def widened(low: Number, high: Number, limits: tuple[Number | None, Number | None]) -> tuple[Number, Number]:
    """The range to show: the data's with a little air, never empty, or the fixed limits."""
    air = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return (low - air if limits[0] is None else limits[0], high + air if limits[1] is None else limits[1])


def finite(series: Series) -> Series:
    """Without values that cannot be drawn, and thinned to what a screen can show (means of neighbours)."""
    points = [(s, v) for s, v in zip(series.steps, series.values, strict=True) if math.isfinite(v)]
    size = -(-len(points) // MOST_POINTS) or 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    steps = [group[-1][0] for group in groups]
    values = [sum(v for _, v in group) / len(group) for group in groups]
    return Series(series.label, steps, values, series.kind, series.marked)


@dataclass(frozen=True)
class _Plot:
    """The mapping from (step, value) to the drawing, and the marks in it."""

    first: Number
    last: Number
    low: Number
    high: Number

    def x(self, step: Number) -> Number:
        return round(LEFT + (step - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: Number) -> Number:
        return round(TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM), 1)

    def axes(self, tick: Callable[[Number], str]) -> list[str]:
        bottom = HEIGHT - BOTTOM
        parts = []
        for value in ticks(self.low, self.high):
            y = self.y(value)
            parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
            parts.append(f'<text class="left" x="{LEFT - 8}" y="{y + 4}">{tick(value)}</text>')
        for step in ticks(self.first, self.last, 5):
            if step == int(step):
                parts.append(f'<text class="below" x="{self.x(step)}" y="{bottom + 19}">{tick_label(step)}</text>')
        parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="name" x="{WIDTH - RIGHT}" y="{HEIGHT - 4}">step</text>')
        return parts

    def change(self, step: Number, label: str) -> list[str]:
        x = self.x(step)
        side = "before" if x > (WIDTH + LEFT) / 2 else "after"
        shift = -6 if side == "before" else 6
        return [
            f'<path class="change" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>',
            f'<text class="change {side}" x="{x + shift}" y="{TOP + 10}">{escape(label)}</text>',
        ]

    def level(self, level: Level) -> str:
        return f'<path class="level" d="M{LEFT} {self.y(level.value)}H{WIDTH - RIGHT}"/>'

    def line(self, series: Series, write: Callable[[Number], str]) -> list[str]:
        places = [(self.x(step), self.y(value)) for step, value in zip(series.steps, series.values, strict=True)]
        parts = []
        if len(places) > 1:
            path = "L".join(f"{x} {y}" for x, y in places)
            parts.append(f'<path class="line {series.kind}" d="M{path}"/>')
        if series.marked or len(places) == 1:
            for (x, y), step, value in zip(places, series.steps, series.values, strict=True):
                tip = escape(f"{series.label} at step {step:,}: {write(value)}")
                parts.append(f'<circle class="{series.kind}" cx="{x}" cy="{y}" r="3"><title>{tip}</title></circle>')
        return parts
