"""A sweep under way: what is finished, what is run next and how, and ``sweep.json`` after every point."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from tqdm import tqdm

from experiments.sweep_points import (
    Point,
    begin,
    command_of,
    common,
    folder_of,
    name_of,
    selection_of,
    with_point,
    write_results,
)
from experiments.sweep_processes import run_at_a_time
from experiments.sweep_table import Result, best_of, hint, table, value_of


def run_points(
    config: ConfigDict,
    points: Sequence[Point],
    workdir: str | Path,
    *,
    together: int = 1,
    at_a_time: int = 1,
    arguments: Sequence[str] = (),
) -> str:
    """Trains the points that ``workdir`` has no result of; the table of all.

    Args:
        together: so many are trained as one program, where their shapes allow.
        at_a_time: so many processes at once, each with its share of the devices.
        arguments: the words of a command line that make the config, for these processes.

    Raises:
        ValueError: the workdir holds a sweep or a run of another config, a point has a field that the config has not,
            there is nothing to choose by, or a point failed; the others are run all the same, and their table printed.
    """
    if together < 1 or at_a_time < 1 or (together > 1 and at_a_time > 1):
        raise ValueError(f"together={together} and at_a_time={at_a_time}: both at least 1, and one of them 1")
    sweep = Sweep(config, points, workdir)
    waiting = sweep.take_over()
    if waiting:
        sweep.check(waiting[0])
        write_results(workdir, sweep.results)  # what the sweep is of, before anything is trained
    if at_a_time > 1:
        commands = {name: command_of(arguments, sweep.points[name], workdir) for name in waiting}
        sweep.failed = run_at_a_time(commands, workdir, at_a_time, sweep.figure, sweep.record)
    else:
        sweep.run_in_order(waiting, together)
    runs = [sweep.finished[name] for name in sweep.points if name in sweep.finished]
    said = f"{table(runs)}\n{hint(best_of(runs), workdir, str(config.task))}" if runs else ""
    if sweep.failed:
        print(said)
        name, reason = next(iter(sweep.failed.items()))
        raise ValueError(f"{len(sweep.failed)} of {len(points)} points failed, {name} first: {reason}")
    return said


class Sweep:
    """The points by their names, and the results of those that are finished."""

    def __init__(self, config: ConfigDict, points: Sequence[Point], workdir: str | Path) -> None:
        self.workdir = workdir
        self.points = {name_of(point): point for point in points}
        self.configs = {name: with_point(config, point) for name, point in self.points.items()}
        self.results = begin(workdir, common(config, list(points)))
        self.finished: dict[str, Result] = self.results["points"]
        self.failed: dict[str, str] = {}
        self.figure, self.mode = "", ""

    def take_over(self) -> list[str]:
        """Which points are still to be run; what was finished by commands of ``--list`` is taken into the results.

        Raises:
            ValueError: a finished run has another config than its point.
        """
        from bert_jax.training.result import read_result

        waiting = []
        for name in self.points:
            before = name in self.finished
            if not before and (found := read_result(folder_of(self.workdir, name))):
                self._keep(name, found)
            if name in self.finished:
                self._say(name, ", finished before" if before else ", finished by itself")
            else:
                waiting.append(name)
        return waiting

    def check(self, name: str) -> None:
        """ValueError: there is nothing to choose by."""
        self.figure, self.mode = selection_of(self.configs[name], look=True)

    def run_in_order(self, waiting: Sequence[str], together: int) -> None:
        """Trains one after another, or so many together."""
        started = time.monotonic()
        for first in range(0, len(waiting), together):
            names = waiting[first : first + together]
            for name in names:
                print(f"{self._place(name)} {name}", flush=True)
            self._train(names)
            done = first + len(names)
            seconds = (time.monotonic() - started) / done * (len(waiting) - done)
            left = f"; about {tqdm.format_interval(seconds)} left" if seconds else ""
            for name in names:
                if name not in self.failed:
                    self.record(name, left if name == names[-1] else "")

    def _train(self, names: Sequence[str]) -> None:
        """Notes whose loss is not finite; where one of several is so, each is trained alone."""
        from bert_jax import train, train_grid

        folders = [folder_of(self.workdir, name) for name in names]
        try:
            if len(names) > 1:
                train_grid([self.configs[name] for name in names], folders)
            else:
                train(self.configs[names[0]], folders[0])
        except FloatingPointError as error:
            print(error, flush=True)
            if len(names) > 1:
                for name in names:
                    self._train([name])
            else:
                self.failed[names[0]] = str(error)

    def record(self, name: str, more: str = "") -> float:
        """Takes a finished run's result into ``sweep.json``, and says it; the figure that selects.

        Raises:
            ValueError: it has none.
        """
        from bert_jax.training.result import read_result

        folder = folder_of(self.workdir, name)
        found = read_result(folder)
        if found is None:
            raise ValueError(f"{folder} has no result; start the sweep again")
        self._keep(name, found)
        self._say(name, more)
        return value_of(self.finished[name])

    def _keep(self, name: str, found: dict[str, Any]) -> None:
        self._check_config(name, found)
        if not self.figure:
            self.figure, self.mode = selection_of(self.configs[name], look=False)
        if self.figure not in found["result"]:
            raise ValueError(
                f"{folder_of(self.workdir, name)} has no {self.figure} to choose by; give a labelled dev set and"
                " another --workdir"
            )
        about = {"point": self.points[name], "figure": self.figure, "mode": self.mode}
        self.finished[name] = about | {key: value for key, value in found.items() if key not in ("step", "config")}
        write_results(self.workdir, self.results)

    def _say(self, name: str, more: str) -> None:
        run, runs = self.finished[name], [self.finished[one] for one in self.points if one in self.finished]
        best = f"best so far {value_of(best_of(runs)):.4f}"
        print(f"{self._place(name)} {name}: {run['figure']} {value_of(run):.4f} ({best}){more}", flush=True)

    def _place(self, name: str) -> str:
        return f"[{list(self.points).index(name) + 1}/{len(self.points)}]"

    def _check_config(self, name: str, found: dict[str, Any]) -> None:
        from bert_jax.training.settings import differences, plain
        from bert_jax.training.workdir import absolute_paths

        folder, wanted = folder_of(self.workdir, name), json.loads(json.dumps(plain(self.configs[name])))
        wanted |= absolute_paths(wanted)
        kept = (found.get("config") or {}) | {"labels": wanted.setdefault("labels", None)}  # found in the data
        if changes := differences(kept, wanted):
            raise ValueError(f"{folder} holds a run of another config ({changes[0]}); give another --workdir")
