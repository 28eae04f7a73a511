"""What a sweep says at its end: a line for each setting, the best run, how to go on with it."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from experiments.sweep_points import folder_of, name_of

Result = dict[str, Any]


def value_of(run: Result) -> float:
    """The figure that selects."""
    return float(run["result"][run["figure"]])


def best_of(runs: list[Result]) -> Result:
    """The best run by the figure that selects; the first of equals."""
    return (max if runs[0]["mode"] == "max" else min)(runs, key=value_of)


def hint(run: Result, workdir: str | Path, task: str) -> str:
    """How to go on with the best run."""
    program = "evaluate" if task == "pretraining" else "predict"
    rest = "" if task == "pretraining" else " --input FILE --output FILE"
    best = shlex.quote(str(folder_of(workdir, name_of(run["point"]))))
    command = f"python -m experiments.{program} --workdir {best}{rest}"
    return f"best run: {name_of(run['point'])}, {run['figure']} {value_of(run):.4f}\n{command}"


def settings_of(runs: Iterable[Result]) -> dict[str, list[Result]]:
    """The runs of each setting: a point but for its seed, "all" where there is nothing else."""
    groups: dict[str, list[Result]] = {}
    for run in runs:
        setting = {key: value for key, value in run["point"].items() if key != "seed"}
        groups.setdefault(name_of(setting) or "all", []).append(run)
    return groups


def best_setting(groups: Mapping[str, list[Result]]) -> str:
    """By the median over its seeds; the first of equals."""
    better = max if next(iter(groups.values()))[0]["mode"] == "max" else min
    return better(groups, key=lambda name: statistics.median(map(value_of, groups[name])))


def table(runs: list[Result]) -> str:
    """A line for each setting but the seed, and which is best by its median."""
    groups = settings_of(runs)
    figure, mode = runs[0]["figure"], runs[0]["mode"]
    better = max if mode == "max" else min
    width = max(len(name) for name in (*groups, figure))
    told = any("degenerate" in run["result"] for run in runs)
    head = f"{figure:{width}}{'mean':>10}{'std':>10}{'median':>10}{'best':>10}{'n':>5}"
    lines = [head + (f"{'degenerate':>12}" if told else "")]
    for name, members in groups.items():
        values = [value_of(run) for run in members]
        spread = f"{statistics.stdev(values):.4f}" if len(values) > 1 else "-"
        row = f"{statistics.fmean(values):10.4f}{spread:>10}{statistics.median(values):10.4f}{better(values):10.4f}"
        degenerate = sum(bool(run["result"].get("degenerate", 0)) for run in members)
        line = f"{name:{width}}{row}{len(values):5}"
        lines.append(line + (f"{degenerate:12}" if told else ""))
    return "\n".join([*lines, f"best by median: {best_setting(groups)}"])
