"""Results files: where they are looked for, what they must carry, and which are refused.

A sweep's is its ``sweep.json``. The ``result.json`` of a run of ``experiments.train`` is brought into the same form,
with one point. What is collected has the same content, but for where things lay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_jax.data.writing import write_json
from bert_jax.training.metric_log import read_metrics
from bert_jax.training.result import read_result
from bert_jax.training.settings import differences
from bert_jax.training.source import CONFIG
from bert_jax.training.workdir import PATHS
from experiments.paper_tables.run import TRAIN, Run
from experiments.sweep_points import RESULTS, name_of

CARRIED = ("point", "figure", "mode", "result", "environment", "data", "seconds", "date")
CARRIED_ENVIRONMENT = ("python", "packages", "processor", "cpu_cores", "devices", "code")
# What a run begins with is part of what it is; where other things lie, and how it goes on, is not.
STARTS = ("init_from", "right_to_left_from")
FREE = (
    *("mesh.", "accumulation_steps:", "keep_last:", "log_every_steps:", "eval_every_steps:", "checkpoint_every_steps:"),
    *("allow_download:", "data.allow_download:"),
    *("model.remat:", "model.scan_layers:", "model.attention_implementation:"),
)
Results = dict[str, Any]


class Unfinished(ValueError):
    """A run that goes on."""


class Library:
    """The results below a folder of runs, and those that are kept in ``kept``; each is read once.

    Attributes:
        refused, unfinished: name of a run -> a line that says why its file is not used, or how far it is.
    """

    def __init__(self, runs: Mapping[str, Run], folder: str | Path, kept: str | Path) -> None:
        self.runs, self.folder, self.kept = runs, Path(folder), Path(kept)
        self.refused: dict[str, str] = {}
        self.unfinished: dict[str, str] = {}
        self._found: dict[str, tuple[Results, Path] | None] = {}

    def find(self, name: str) -> Results | None:
        """The whole results of a run, if there are any, and of all that it began with."""
        if name not in self._found:
            self._found[name] = self._find(self.runs[name])
        found = self._found[name]
        return found[0] if found else None

    def complaints(self, name: str) -> list[str]:
        return [lines[name] for lines in (self.refused, self.unfinished) if name in lines]

    def collect(self, names: Iterable[str]) -> list[Path]:
        """Copies what is finished below ``folder`` to ``kept``; the files written."""
        written = []
        for name in names:
            if self.find(name) is None:
                continue
            found = self._found[name]
            if found is not None and found[1] == self.folder / name:
                path = self.kept / f"{name}.json"
                write_json(path, found[0] | {"config": without_places(found[0]["config"])})
                written.append(path)
        return written

    def _find(self, run: Run) -> tuple[Results, Path] | None:
        for path in (self.folder / run.name, self.kept / f"{run.name}.json"):
            try:
                found = read(run, path)
                if found is None:
                    continue
                check(run, found, path)
                if lacking := next(self._lacking(run), None):
                    raise ValueError(f"{path}: no results of {lacking}, with which it began; it is not used")
                return found, path
            except Unfinished as error:
                self.unfinished[run.name] = str(error)
            except (ValueError, OSError) as error:
                self.refused.setdefault(run.name, " ".join(str(error).split()))
            except (KeyError, TypeError, AttributeError) as error:  # JSON of another form
                self.refused.setdefault(run.name, f"{path} is damaged ({type(error).__name__}: {error}); make it again")
        return None

    def _lacking(self, run: Run) -> Iterator[str]:
        """Names of earlier runs without results."""
        for name in run.after:
            if not self.runs[name].has_results:
                yield from self._lacking(self.runs[name])
            elif self.find(name) is None:
                yield name


def read(run: Run, path: Path) -> Results | None:
    """Of the folder of a run, or of a file that was collected; None where there is nothing.

    Raises:
        ValueError: it is damaged. Unfinished: training goes on.
    """
    if path.is_dir():
        if run.program == TRAIN:
            return of_training(path)
        path = path / RESULTS
    if not path.exists():
        return None
    results = parse(path)
    parts = [results.get(name) for name in ("config", "points")] if isinstance(results, dict) else [None]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"{path} is damaged (it has no config and points); make it again")
    return results


def parse(path: Path) -> Any:
    """ValueError: it is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); make it again") from None


def of_training(workdir: Path) -> Results | None:
    """A finished run of ``experiments.train`` in the form of a sweep of one point; None where none has begun."""
    if not (workdir / CONFIG).exists():
        return None
    found = read_result(workdir)
    if found is None:
        lines = read_metrics(workdir)
        step = lines[-1]["step"] if lines else 0
        raise Unfinished(f"{workdir} is not finished (step {step:,}); the same command goes on")
    config = found.pop("config")
    config.pop("labels", None)  # found in the data
    figure, mode = ("mlm_loss", "min") if config.get("task") == "pretraining" else ("f1", "max")
    return {"config": config, "points": {"": found | {"point": {}, "figure": figure, "mode": mode}}}


def check(run: Run, results: Results, path: Path) -> None:
    """ValueError: another config than the run's, a point that is not its own, or something not said. Unfinished: points
    are missing."""
    if changes := [change for change in changes_of(run.wanted(), results["config"]) if not change.startswith(FREE)]:
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        raise ValueError(f"{path} is of another config than {run.name} ({changes[0]}{more}); it is not used")
    wanted = {name_of(point): point for point in run.points()}
    for name, found in results["points"].items():
        if unsaid := unsaid_of(found):
            raise ValueError(f"{path} does not say {unsaid[0]} of {name or 'the run'}; make it again")
        if wanted.get(name_of(found["point"])) != found["point"]:
            raise ValueError(f"{path} has a point that is not {run.name}'s ({name}); it is not used")
    if missing := len(wanted) - len(results["points"]):
        raise Unfinished(f"{path}: {missing} of {len(wanted)} points are not finished; the same command goes on")


def unsaid_of(found: Any) -> list[str]:
    """What a point's results must say and do not."""
    if not isinstance(found, dict):
        return list(CARRIED)
    unsaid = [key for key in CARRIED if found.get(key) is None]
    if not unsaid:
        unsaid = [f"environment.{key}" for key in CARRIED_ENVIRONMENT if found["environment"].get(key) is None]
    if not unsaid and not math.isfinite(found["result"].get(found["figure"], math.nan)):
        unsaid = [f"result.{found['figure']}"]
    return unsaid


def changes_of(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """``field: wanted -> found`` of all that differs, but for places."""
    return differences(without_places(wanted), without_places(found))


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without where things lie; of what a run begins with the name stays."""
    result = {name: value for name, value in config.items() if name not in PATHS or name in STARTS}
    return result | {name: Path(result[name]).name for name in STARTS if result.get(name)}
