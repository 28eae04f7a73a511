"""The figures that compare settings: learning curves with their spread over seeds, and what a learning rate does."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_jax.report.charts import Across, Number, Series, line_chart
from bert_jax.report.elements import percent
from bert_jax.report.figures import SHARE, TO_THREE, figure_of
from bert_jax.report.masked_accuracy import accuracy_charts, added, read_accuracy
from bert_jax.report.studies import COLOURS, Study, colour

Curve = tuple[Sequence[Number], Sequence[Number]]
PRETRAINING = ("mlm_loss", "mlm_accuracy", "nsp_accuracy")


def learning_curves(study: Study) -> Iterator[str]:
    """Training loss and held-out figures: a line for each setting, the mean over its seeds, in a band from the lowest
    to the highest of them."""
    yield curves(study, "Training loss", "loss", TO_THREE)
    for name in held_out_figures(study):
        title, _, write = figure_of(name)
        yield curves(study, f"{title}, held out", f"eval/{name}", write)


def held_out_figures(study: Study) -> list[str]:
    """Those worth a chart: the one that decides, the loss, and pre-training's."""
    names = [study.figure, "loss", *PRETRAINING]
    return list(dict.fromkeys(name for name in names if name))


def curves(study: Study, title: str, name: str, write: Callable[[Number], str]) -> str:
    """A chart of one figure; pale settings lie below, and have no names."""
    drawn = []
    for setting in sorted(study.settings, key=lambda one: one.kind != "rest"):
        steps, mean, low, high = spread([entry.run.curve(name) for entry in setting.counted])
        pale = setting.kind == "rest"
        label = "" if pale else setting.name
        drawn.append(
            Series(
                label,
                steps,
                mean,
                setting.kind,
                marked=len(steps) < 4 and not pale,
                band=(low, high) if len(setting.counted) > 1 and not pale else None,
            )
        )
    return line_chart(title, drawn, write=write, **axis(write))


def axis(write: Callable[[Number], str]) -> dict[str, Any]:
    return {"tick": percent} if write is SHARE else {}


def spread(curves: Sequence[Curve]) -> tuple[list[Number], list[float], list[Number], list[Number]]:
    """(steps, mean, lowest, highest) at the steps that all curves have; curves without any are left out."""
    # What is known from a sweep's results alone stands at step 0.
    found = [dict(zip(*curve, strict=True)) for curve in curves if any(curve[0])]
    steps = sorted(set.intersection(*(set(curve) for curve in found))) if found else []
    columns = [[curve[step] for curve in found] for step in steps]
    return steps, [statistics.fmean(column) for column in columns], list(map(min, columns)), list(map(max, columns))


def sensitivity(study: Study) -> str:
    """The figure against the learning rate, where the settings differ in it: a dot a seed, a line through the medians.

    Where they differ in more, a line for everything else that is the same. The legend says the best median of each.
    """
    if not study.figure:
        return ""
    lines: dict[str, list[tuple[float, float, str]]] = {}
    for setting in study.settings:
        rate = setting.learning_rate
        for entry in setting.counted if rate else ():
            if (value := study.value(entry)) is not None:
                lines.setdefault(setting.name_without_rate, []).append((rate or 0.0, value, entry.path))
    rates = sorted({rate for dots in lines.values() for rate, _, _ in dots})
    if len(rates) < 2:
        return ""
    title, _, write = figure_of(study.figure)
    series = []
    for place, (name, dots) in enumerate(lines.items()):
        own = sorted({rate for rate, _, _ in dots})
        medians = [statistics.median(value for other, value, _ in dots if other == rate) for rate in own]
        kind = colour(place, len(lines)) if len(lines) <= COLOURS else "rest"
        tips = [(rate, value, f"{path}: {write(value)}") for rate, value, path in dots]
        best = (max if study.mode == "max" else min)(medians)
        series.append(Series(name or "median", own, medians, kind, dots=tips, value=best))
    across = Across("learning rate", log=True, ticks=rates if len(rates) <= COLOURS else (rates[0], rates[-1]))
    return line_chart(f"{title} by learning rate", series, write=write, across=across, **axis(write))


def accuracy_by_place(study: Study) -> Iterator[str]:
    """Of pre-training runs whose own page was written: accuracy by position and by frequency, summed over seeds."""
    found = []
    for setting in study.settings:
        own = [one for entry in setting.counted if (one := read_accuracy(entry.run.directory)) is not None]
        if own and setting.kind != "rest":
            found.append((setting.name, setting.kind, added(own)))
    if found:
        yield from accuracy_charts(found)
