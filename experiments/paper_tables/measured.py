"""Our figure of a cell, from results: a statistic over points, with what it was measured on."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from experiments.paper_tables.cell import BEST, Cell
from experiments.paper_tables.results import Library, Results
from experiments.sweep_points import name_of
from experiments.sweep_table import best_of, value_of


@dataclass(frozen=True)
class Measured:
    """A cell's figure in the paper's unit.

    Attributes:
        spread: standard deviation (n - 1) over the seeds of the chosen setting; None of one.
        seeds: of that setting. points: of the whole sweep, which took ``seconds`` on ``hardware``.
    """

    value: float
    spread: float | None
    seeds: int
    points: int
    seconds: float
    hardware: str


def measure(cell: Cell, library: Library) -> Measured | None:
    """None where there are no results yet, or cannot be."""
    results = library.find(cell.run) if cell.run and not cell.reason else None
    chooser = library.find(cell.chosen_by) if cell.chosen_by else results
    if results is None or chooser is None:
        return None
    runs = list(results["points"].values())
    if any(cell.figure not in run["result"] for run in runs):
        library.refused.setdefault(cell.run, f"the results of {cell.run} have no {cell.figure}; make them again")
        return None
    best = best_of(runs)
    group = settings_of(results)[setting(best) if cell.statistic == BEST else best_setting(chooser)]
    values = [cell.factor * float(run["result"][cell.figure]) for run in group]
    return Measured(
        cell.factor * float(best["result"][cell.figure]) if cell.statistic == BEST else statistics.fmean(values),
        statistics.stdev(values) if len(values) > 1 else None,
        len(values),
        len(runs),
        sum(run["seconds"] for run in runs),
        hardware_of(best["environment"]),
    )


def setting(run: dict[str, Any]) -> str:
    """A point without its seed."""
    return name_of({name: value for name, value in run["point"].items() if name != "seed"})


def settings_of(results: Results) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in results["points"].values():
        groups.setdefault(setting(run), []).append(run)
    return groups


def best_setting(results: Results) -> str:
    """By the mean over its seeds of the figure that the sweep chooses by; the first of equals."""
    groups = settings_of(results)
    better = max if next(iter(results["points"].values()))["mode"] == "max" else min
    return better(groups, key=lambda name: statistics.fmean(value_of(run) for run in groups[name]))


def hardware_of(environment: dict[str, Any]) -> str:
    """The accelerators, or of CPUs the processor and its cores."""
    if "cpu" in environment["devices"].lower():
        return f"{environment['processor']}, {environment['cpu_cores']} cores"
    return str(environment["devices"])
