"""Line charts as SVG: a few dozen lines that follow the page's colours, in light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 66, 14, 14, 44
# Of all lines of a chart together, and the least of one.
MOST_POINTS, LEAST_POINTS = 400, 40

Number = int | float
Points = Sequence[tuple[Number, Number, str]]


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        label: its name in the legend; "" leaves it out there.
        kind: names its colour in the style sheet.
        marked: every point of the line is a dot.
        band: lowest and highest value at every ``x``: what is shaded around the line.
        dots: (x, y, tooltip) of single values, which the line need not go through.
        value: beside the name in the legend; None: the last of ``y``.
    """

    label: str
    x: Sequence[Number]
    y: Sequence[Number]
    kind: str
    marked: bool = False
    band: tuple[Sequence[Number], Sequence[Number]] | None = None
    dots: Points = ()
    value: Number | None = None

    @property
    def named_value(self) -> Number:
        """What the legend says beside the name."""
        return self.y[-1] if self.value is None else self.value


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with: a baseline, chance."""

    label: str
    value: Number


@dataclass(frozen=True)
class Across:
    """The horizontal axis: its name, whether it is logarithmic, and where its labels stand (None: round steps)."""

    name: str = "step"
    log: bool = False
    ticks: Sequence[Number] | None = None


STEPS = Across()


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    write: Callable[[Number], str],
    levels: Sequence[Level] = (),
    changes: Sequence[tuple[Number, str]] = (),
    tick: Callable[[Number], str] | None = None,
    limits: tuple[Number | None, Number | None] = (None, None),
    across: Across = STEPS,
) -> str:
    """A figure with caption, legend and plot; the empty string where no series has a finite value.

    Args:
        write: a value as text, for the legend and the dots' tooltips.
        levels: always inside the range shown.
        changes: (x, label) of vertical marks.
        tick: a value as text on the axis; None writes it short.
        limits: fixed lowest and highest value; None takes the data's.
    """
    most = max(LEAST_POINTS, 2 * MOST_POINTS // max(2, len(series)))
    series = [finite(one, most) for one in series]
    series = [one for one in series if one.x]
    if not series:
        return ""
    plot = _plot(series, levels, limits, across)
    named = [one for one in series if one.label]
    described = "; ".join(f"{one.label}: {write(one.y[0])} to {write(one.y[-1])}" for one in named)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{title}. {described}")}">',
        *plot.axes(tick or tick_label),
        *(part for change in changes for part in plot.change(*change)),
        *(plot.level(level) for level in levels),
        *(plot.band(one) for one in series if one.band),
        *(part for one in series for part in plot.line(one, write)),
        "</svg>",
    ]
    return f"<figure><figcaption>{escape(title)}</figcaption>{legend(named, levels, write)}{''.join(parts)}</figure>"


def legend(series: Sequence[Series], levels: Sequence[Level], write: Callable[[Number], str]) -> str:
    """The lines' names with a value each."""
    items = [(one.kind, one.label, one.named_value) for one in series]
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


def finite(series: Series, most: int = MOST_POINTS) -> Series:
    """Without values that cannot be drawn, and thinned to what a screen can show (means of neighbours)."""
    rows = [row for row in zip(series.x, series.y, *(series.band or ()), strict=True) if all(map(math.isfinite, row))]
    size = -(-len(rows) // most) or 1
    groups = [rows[i : i + size] for i in range(0, len(rows), size)]
    x = [group[-1][0] for group in groups]
    y, *band = [
        [sum(row[k] for row in group) / len(group) for group in groups] for k in range(1, 4 if series.band else 2)
    ]
    dots = [dot for dot in series.dots if all(map(math.isfinite, dot[:2]))]
    return replace(series, x=x, y=y, band=(band[0], band[1]) if band else None, dots=dots)


def _plot(
    series: Sequence[Series], levels: Sequence[Level], limits: tuple[Number | None, Number | None], across: Across
) -> _Plot:
    """The frame in which all values have a place."""
    values = [v for one in series for part in (one.y, *(one.band or ()), [dot[1] for dot in one.dots]) for v in part]
    values += [level.value for level in levels]
    low, high = widened(min(values), max(values), limits)
    places = [x for one in series for x in (*one.x, *(dot[0] for dot in one.dots))]
    first, last = min(places), max(places)
    if across.log:
        air = (last / first) ** 0.08 if last > first else 2.0
        return _Plot(first / air, last * air, low, high, across)
    # From step 0, unless the record begins late in the run.
    first = 0 if first < 0.2 * last else first
    return _Plot(first, last if last > first else first + 1, low, high, across)


@dataclass(frozen=True)
class _Plot:
    """The mapping from (x, y) to the drawing, and the marks in it."""

    first: Number
    last: Number
    low: Number
    high: Number
    across: Across

    def x(self, x: Number) -> Number:
        if self.across.log:
            share = math.log(x / self.first) / math.log(self.last / self.first)
        else:
            share = (x - self.first) / (self.last - self.first)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: Number) -> Number:
        return round(TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM), 1)

    def axes(self, tick: Callable[[Number], str]) -> list[str]:
        bottom = HEIGHT - BOTTOM
        parts = []
        for value in ticks(self.low, self.high):
            y = self.y(value)
            parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
            parts.append(f'<text class="left" x="{LEFT - 8}" y="{y + 4}">{tick(value)}</text>')
        places = self.across.ticks
        if places is None:
            places = [x for x in ticks(self.first, self.last, 5) if x == int(x)]
        for x in places:
            if self.first <= x <= self.last:
                parts.append(f'<text class="below" x="{self.x(x)}" y="{bottom + 19}">{tick_label(x)}</text>')
        parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="name" x="{WIDTH - RIGHT}" y="{HEIGHT - 4}">{escape(self.across.name)}</text>')
        return parts

    def change(self, x: Number, label: str) -> list[str]:
        x = self.x(x)
        side = "before" if x > (WIDTH + LEFT) / 2 else "after"
        shift = -6 if side == "before" else 6
        return [
            f'<path class="change" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>',
            f'<text class="change {side}" x="{x + shift}" y="{TOP + 10}">{escape(label)}</text>',
        ]

    def level(self, level: Level) -> str:
        return f'<path class="level" d="M{LEFT} {self.y(level.value)}H{WIDTH - RIGHT}"/>'

    def band(self, series: Series) -> str:
        """From the lowest to the highest values, there and back."""
        low, high = series.band or ((), ())
        there = [f"{self.x(x)} {self.y(y)}" for x, y in zip(series.x, low, strict=True)]
        back = [f"{self.x(x)} {self.y(y)}" for x, y in zip(series.x, high, strict=True)][::-1]
        return f'<path class="band {series.kind}" d="M{"L".join(there + back)}Z"/>'

    def line(self, series: Series, write: Callable[[Number], str]) -> list[str]:
        points = list(zip(series.x, series.y, strict=True))
        parts = []
        if len(points) > 1:
            path = "L".join(f"{self.x(x)} {self.y(y)}" for x, y in points)
            parts.append(f'<path class="line {series.kind}" d="M{path}"/>')
        dots = list(series.dots)
        if series.marked or (len(points) == 1 and not dots):
            dots += [(x, y, f"{series.label} at {self.across.name} {x:,}: {write(y)}") for x, y in points]
        for x, y, tip in dots:
            place = f'cx="{self.x(x)}" cy="{self.y(y)}"'
            parts.append(f'<circle class="{series.kind}" {place} r="3"><title>{escape(tip)}</title></circle>')
        return parts
