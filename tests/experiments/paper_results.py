"""Results of the paper's tables as runs would leave them, with figures made up."""

import json
from collections.abc import Mapping
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


def write_training(run: Run, runs: Path, figures: Mapping[str, float], steps: int | None = None) -> Path:
    """A pre-training of 10 steps a second that has reached ``steps``; all by default. Its folder."""
    folder, config = runs / run.name, run.wanted()
    corpus = Path(config["corpus"])
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "corpus.json").write_text(json.dumps({"content_sha256": "c0ffee"}))
    total = sum(phase["train_steps"] for phase in config["phases"])
    step = total if steps is None else steps
    lines = [
        {"step": step // 2, "time": 1e9, "loss": 7.0, "steps_per_second": 10.0},
        {"step": step, "time": 1e9 + 5, "loss": 6.0, "steps_per_second": 5.0},
        {"step": step, "time": 1e9 + 9} | {f"eval/{name}": value for name, value in figures.items()},
    ]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def write_sweep(run: Run, runs: Path, figure: str, results: list[Mapping[str, float]]) -> Path:
    """A sweep whose first points have these results, chosen by ``figure``; 60 seconds a point. Its ``sweep.json``."""
    points: dict[str, Any] = {}
    for point, result in zip(run.points(), results, strict=False):
        about = {"environment": ENVIRONMENT, "data": "da7a", "seconds": 60.0, "date": "2026-11-30"}
        points[name_of(point)] = {"point": point, "figure": figure, "mode": "max", "result": dict(result)} | about
    path = runs / run.name / "sweep.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"config": run.wanted(), "points": points}))
    return path
