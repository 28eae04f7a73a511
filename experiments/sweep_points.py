"""The points of a sweep: reading, running and comparing them; ``experiments.sweep`` is the program."""

from __future__ import annotations

import importlib.util
import json
import shlex
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax.data.object_cache import local_output
from bert_jax.data.object_store import Store, is_url
from bert_jax.data.writing import write_json

RESULTS = "sweep.json"
Point = dict[str, Any]


def run_points(config: ConfigDict, points: list[Point], workdir: str | Path) -> str:
    """Trains the points that ``workdir`` has no result of; the table of all.

    Raises:
        ValueError: the workdir holds a sweep of another config, a point has a field that the config has not, or there
            is nothing to choose by.
    """
    from bert_jax import train
    from bert_jax.training.workdir import environment

    configs = {name_of(point): with_point(config, point) for point in points}
    results = begin(workdir, common(config, points))
    finished = results["points"]
    runs, looked = [], False
    for number, (name, point) in enumerate(zip(configs, points, strict=True), 1):
        before = ", finished before" if name in finished else ""
        if not before:
            figure, mode = selection_of(configs[name], look=not looked)
            looked = True
            write_results(workdir, results)  # what the sweep is of, before anything is trained
            print(f"[{number}/{len(points)}] {name}", flush=True)
            result = train(configs[name], folder_of(workdir, name))
            if figure not in result:
                raise ValueError(
                    f"{folder_of(workdir, name)} has no {figure} to choose by; give a labelled dev set and another"
                    " --workdir"
                )
            about = {"point": point, "figure": figure, "mode": mode}
            finished[name] = about | {"result": result, "environment": environment()}
            write_results(workdir, results)
        runs.append(finished[name])
        reached = f"{runs[-1]['figure']} {value_of(runs[-1]):.4f}"
        print(f"[{number}/{len(points)}] {name}: {reached} (best so far {value_of(best_of(runs)):.4f}{before})")
    return f"{table(runs)}\n{hint(best_of(runs), workdir, str(config.task))}"


def begin(workdir: str | Path, config: dict[str, Any]) -> dict[str, Any]:
    """What ``sweep.json`` holds, or a new one's content. ValueError: it is of another config."""
    from bert_jax.training.workdir import differences

    path, content = f"{workdir}/{RESULTS}", read_results(workdir)
    if content is None:
        return {"config": config, "points": {}}
    try:
        results = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); give another --workdir or delete it") from None
    if not isinstance(results, dict) or not {"config", "points"} <= results.keys():
        raise ValueError(f"{path} does not say what config it is of; give another --workdir or delete it")
    if changes := differences(results["config"], config):
        more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
        raise ValueError(f"{workdir} holds a sweep of another config ({changes[0]}{more}); give another --workdir")
    return results


def folder_of(workdir: str | Path, name: str) -> str | Path:
    """Of a point, in a directory or below a URL."""
    return f"{workdir}/{name}" if is_url(workdir) else Path(workdir) / name


def read_results(workdir: str | Path) -> bytes | None:
    """What ``sweep.json`` holds; None where there is none."""
    if is_url(workdir):
        return Store(str(workdir)).read(RESULTS)
    path = Path(workdir) / RESULTS
    return path.read_bytes() if path.exists() else None


def write_results(workdir: str | Path, results: dict[str, Any]) -> None:
    """Writes ``sweep.json``."""
    with local_output(f"{workdir}/{RESULTS}") as path:
        write_json(path, results)


def common(config: ConfigDict, points: list[Point]) -> dict[str, Any]:
    """The config as JSON keeps it, with absolute paths and without what the points set."""
    from bert_jax.training.settings import plain
    from bert_jax.training.workdir import absolute_paths

    values: dict[str, Any] = json.loads(json.dumps(plain(config)))
    values |= absolute_paths(values)
    for name in {name for point in points for name in point}:
        *path, last = name.split(".")
        inner = values
        for part in path:
            inner = inner[part]
        inner.pop(last, None)
    return values


def selection_of(config: ConfigDict, *, look: bool) -> tuple[str, str]:
    """The figure that selects and "min" or "max".

    Raises:
        ValueError: ``look``, and there is no example to evaluate, which features alone say only after training.
    """
    from bert_jax.training.settings import read_config

    settings, task = read_config(config)
    if look and task.name != "features":  # where to look means to compute all features
        found = task.evaluation(task.eval_split, settings.batch_size, settings.max_seq_length, 1)
        if found.dataset is not None and not len(found.dataset.examples):
            raise ValueError(f"the split {task.eval_split} is empty: nothing to choose by; give the config a dev set")
    return task.selection


def points_of(config_file: str) -> list[Point]:
    """The points that the config file's ``sweep`` adds.

    Raises:
        ValueError: it has no sweep, or two points are the same.
    """
    path = Path(config_file.split(":", 1)[0])
    spec = importlib.util.spec_from_file_location("swept_config", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "sweep"):
        raise ValueError(f"{path} has no sweep(add); write one, or use experiments.train for a single run")
    points: list[Point] = []
    module.sweep(lambda **point: points.append(point))
    names = [name_of(point) for point in points]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path}: sweep adds {twice[0]} twice; every point must differ")
    return points


def name_of(point: Mapping[str, Any]) -> str:
    """The folder of a point: ``learning_rate=5e-05,seed=1``."""
    return ",".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in point.items())


def with_point(config: ConfigDict, point: Point) -> ConfigDict:
    """A copy of the config with the point's values. ValueError: the config has no such field."""
    result = ConfigDict(config.to_dict())
    for name, value in point.items():
        *path, last = name.split(".")
        inner: Any = result
        for part in path:
            inner = inner.get(part) if isinstance(inner, ConfigDict) else None
        if not isinstance(inner, ConfigDict) or last not in inner:
            raise ValueError(f"the sweep sets {name}, which the config does not have")
        inner[last] = value
    return result


def value_of(run: dict[str, Any]) -> float:
    """The figure that selects."""
    return float(run["result"][run["figure"]])


def best_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The best run by the figure that selects; the first of equals."""
    return (max if runs[0]["mode"] == "max" else min)(runs, key=value_of)


def hint(run: dict[str, Any], workdir: str | Path, task: str) -> str:
    """How to go on with the best run."""
    program = "evaluate" if task == "pretraining" else "predict"
    rest = "" if task == "pretraining" else " --input FILE --output FILE"
    best = shlex.quote(str(folder_of(workdir, name_of(run["point"]))))
    command = f"python -m experiments.{program} --workdir {best}{rest}"
    return f"best run: {name_of(run['point'])}, {run['figure']} {value_of(run):.4f}\n{command}"


def table(runs: list[dict[str, Any]]) -> str:
    """A line for each setting but the seed, and which is best by its median."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        setting = {key: value for key, value in run["point"].items() if key != "seed"}
        groups.setdefault(name_of(setting) or "all", []).append(run)
    figure, mode = runs[0]["figure"], runs[0]["mode"]
    better = max if mode == "max" else min
    width = max(len(name) for name in (*groups, figure))
    told = any("degenerate" in run["result"] for run in runs)
    head = f"{figure:{width}}{'mean':>10}{'std':>10}{'median':>10}{'best':>10}{'n':>5}"
    lines = [head + (f"{'degenerate':>12}" if told else "")]
    medians = {}
    for name, members in groups.items():
        values = [value_of(run) for run in members]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        medians[name] = statistics.median(values)
        row = (statistics.fmean(values), spread, medians[name], better(values))
        degenerate = sum(bool(run["result"].get("degenerate", 0)) for run in members)
        line = f"{name:{width}}" + "".join(f"{value:10.4f}" for value in row) + f"{len(values):5}"
        lines.append(line + (f"{degenerate:12}" if told else ""))
    best = better(medians, key=lambda name: medians[name])
    return "\n".join([*lines, f"best by median: {best}"])
