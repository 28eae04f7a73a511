"""Results of the paper's tables as runs would leave them, with figures made up."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.paper_tables.run import Run
from experiments.sweep_points import name_of

ENVIRONMENT = {
    "python": "3.11.7",
    "packages": {"jax": "0.10.2"},
    "platform": "Linux",
    "processor": "Some CPU",
    "cpu_cores": 2,
    "devices": "1 x cpu",
    "processes": 1,
    "code": "0123abc",
}


def write_training(run: Run, runs: Path, figures: Mapping[str, float] | None) -> Path:
    """A pre-training of an hour that has reached these figures; None: one that is at step 100. Its folder."""
    folder = runs / run.name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(run.wanted()))
    (folder / "metrics.jsonl").write_text('{"step": 50, "loss": 7.0}\n{"step": 100, "loss": 6.0}\n')
    if figures is not None:
        about = {"environment": ENVIRONMENT, "data": "c0ffee", "seconds": 3600.0, "date": "2026-11-30"}
        content = {"step": 1_000_000, "result": dict(figures), "config": run.wanted()} | about
        (folder / "result.json").write_text(json.dumps(content))
    return folder


def write_sweep(run: Run, runs: Path, figure: str, results: Sequence[Mapping[str, float]]) -> Path:
    """A sweep whose first points have these results, chosen by ``figure``; 60 seconds a point. Its ``sweep.json``."""
    points: dict[str, Any] = {}
    for point, result in zip(run.points(), results, strict=False):
        about = {"environment": ENVIRONMENT, "data": "da7a", "seconds": 60.0, "date": "2026-11-30"}
        points[name_of(point)] = {"point": point, "figure": figure, "mode": "max", "result": dict(result)} | about
    path = runs / run.name / "sweep.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"config": run.wanted(), "points": points}))
    return path
