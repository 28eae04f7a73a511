"""A folder of runs: finished, stopped and broken ones, at any depth, and what the results of their sweeps say."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_jax.report import masked_accuracy
from bert_jax.report.run import MARKS, Run, read_json, read_run
from bert_jax.training.metric_log import DETAILS, FILE
from bert_jax.training.workdir import CONFIG, ENVIRONMENT, MODEL_CONFIG

SWEEP, PAGE = "sweep.json", "report.html"
# All that is read of a folder of runs.
FILES = (FILE, SWEEP, CONFIG, MODEL_CONFIG, ENVIRONMENT, DETAILS, masked_accuracy.FILE, PAGE)
# Folders in which no run is.
PASSED_OVER = ("checkpoints", "damaged_checkpoints", "tensorboard", "profile", "tokenizer")
# What decides between the runs of a task where no sweep says it: the first that they have.
SELECTED = (("score", "max"), ("f1", "max"), ("accuracy", "max"), ("mlm_loss", "min"), ("loss", "min"))


@dataclass(frozen=True)
class Entry:
    """A run of a folder.

    Attributes:
        path: its directory's, relative to the folder.
        run: what it records; of a point that has no record (any more) what the sweep's results say.
        point: its entry in ``sweep.json``, which only finished points have.
        by_sweep: whether the run is what the sweep's results say.
    """

    path: str
    run: Run
    point: dict[str, Any] | None = None
    by_sweep: bool = False

    @property
    def selection(self) -> tuple[str, str] | None:
        """The figure by which runs are compared, and "max" or "min"; None: nothing was evaluated."""
        if self.point is not None:
            return self.point["figure"], self.point["mode"]
        return next((one for one in SELECTED if one[0] in self.run.last_evaluation), None)

    @property
    def finished(self) -> bool | None:
        """None: it counts in epochs, and its lines are from a time when they did not say of how many steps."""
        if self.point is not None:
            return True
        planned = self.run.planned_steps
        return None if planned is None else self.run.step >= planned

    @property
    def state(self) -> str:
        if self.by_sweep:
            return f"finished, says {SWEEP}"
        if self.finished:
            return f"finished, {self.run.step:,} steps"
        return f"at step {self.run.step:,}" + (f" of {self.run.planned_steps:,}" if self.finished is False else "")


@dataclass(frozen=True)
class Folder:
    """``unreadable``: (path, why) of what could not be read, or only in part."""

    directory: Path
    entries: tuple[Entry, ...]
    unreadable: tuple[tuple[str, str], ...]


def read_folder(folder: str | Path) -> Folder:
    """All runs below a folder, by their paths.

    Raises:
        FileNotFoundError: there is none.
    """
    directory = Path(folder).resolve()
    runs, sweeps = find_runs(directory)
    points, unreadable = read_sweeps(directory, sweeps)
    entries: dict[str, Entry] = {}
    for path in runs:
        try:
            run = read_run(directory / path)
        except (OSError, ValueError) as error:
            unreadable.append((path, str(error).removeprefix(f"{directory / path} ").removeprefix(f"{directory}/")))
            continue
        entries[path] = Entry(path, run, points.get(path, (None, {}))[0])
        if not run.config:
            unreadable.append((path, f"{CONFIG} is missing or damaged: what it was a run of is not known"))
    for path, (point, config) in points.items():
        if path not in entries:
            entries[path] = Entry(path, run_of_point(directory / path, point, config), point, by_sweep=True)
    if not entries and not unreadable:
        raise FileNotFoundError(f"no run is in {folder}; give the --workdir of a run, or a folder with some in it")
    return Folder(directory, tuple(entries[path] for path in sorted(entries)), tuple(sorted(unreadable)))


def find_runs(directory: Path) -> tuple[list[str], list[str]]:
    """Relative paths of the workdirs, and of the folders that hold a sweep's results."""
    runs, sweeps = [], []
    for place, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER and not name.startswith("."))
        path = Path(place).relative_to(directory).as_posix()
        if any(name in names for name in MARKS):
            runs.append(path)
        if SWEEP in names:
            sweeps.append(path)
    return runs, sweeps


def read_sweeps(
    directory: Path, sweeps: list[str]
) -> tuple[dict[str, tuple[dict[str, Any], dict[str, Any]]], list[tuple[str, str]]]:
    """{path of a finished point: (its entry, the sweep's config)}, and which sweeps could not be read."""
    points, unreadable = {}, []
    for sweep in sweeps:
        found = read_json(directory / sweep / SWEEP)
        if not isinstance(found.get("points"), dict):
            unreadable.append((f"{sweep}/{SWEEP}".removeprefix("./"), "is damaged, or of another program"))
            continue
        for name, point in found["points"].items():
            if is_point(point):
                points[(Path(sweep) / name).as_posix()] = point, found.get("config") or {}
            else:
                unreadable.append((f"{sweep}/{SWEEP}".removeprefix("./"), f"its point {name} is damaged"))
    return points, unreadable


def is_point(value: Any) -> bool:
    """Whether an entry of ``sweep.json`` is as a sweep writes it."""
    kinds = {"point": dict, "figure": str, "mode": str, "result": dict}
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in kinds.items())


def run_of_point(directory: Path, point: dict[str, Any], common: dict[str, Any]) -> Run:
    """What a sweep's results say of a point: its config, last evaluation and environment."""
    config = copy.deepcopy(common)
    for name, value in point["point"].items():
        *path, last = name.split(".")
        inner = config
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    line = {"step": 0} | {f"eval/{name}": value for name, value in point["result"].items()}
    environment = point.get("environment") or {}
    return Run(directory, [], [line], config, {}, environment, {}, {})
