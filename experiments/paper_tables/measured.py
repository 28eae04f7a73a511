"""Our figure of a cell, from results: a statistic over points, with what it was measured on."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from experiments.paper_tables.cell import BEST, Cell
from experiments.paper_tables.results import Library
from experiments.sweep_table import best_of, best_setting, settings_of


@dataclass(frozen=True)
class Measured:
    """A cell's figure in the paper's unit.

    Attributes:
        values: of the chosen setting, in the order of its seeds.
        points: of the whole sweep, which took ``seconds`` on ``hardware``.
    """

    value: float
    values: tuple[float, ...]
    points: int
    seconds: float
    hardware: str

    @property
    def spread(self) -> float | None:
        """Standard deviation (n - 1) over the seeds; None of one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None


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
    settings = settings_of(runs)
    if cell.statistic == BEST:
        group = next(members for members in settings.values() if best in members)
    else:
        group = settings[best_setting(settings_of(chooser["points"].values()))]
    # A sweep of several processes keeps its points in the order in which they ended.
    group = sorted(group, key=lambda run: run["point"].get("seed", 0))
    values = [cell.factor * float(run["result"][cell.figure]) for run in group]
    return Measured(
        cell.factor * float(best["result"][cell.figure]) if cell.statistic == BEST else statistics.fmean(values),
        tuple(values),
        len(runs),
        sum(run["seconds"] for run in runs),
        hardware_of(best["environment"]),
    )


def hardware_of(environment: dict[str, Any]) -> str:
    """The accelerators, or of CPUs the processor and its cores."""
    if "cpu" in environment["devices"].lower():
        return f"{environment['processor']}, {environment['cpu_cores']} cores"
    return str(environment["devices"])
