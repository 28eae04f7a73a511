"""All points of a config's sweep, one after the other: learning rates, seeds, or anything else.

    python -m experiments.sweep --config configs/glue.py:task=rte --config.init_from=runs/large --workdir runs/rte-sweep

A config has a sweep if its file has a function ``sweep(add)``: a call ``add(**{"optimizer.learning_rate": 5e-5})``
is a point. Every point is a run of its own in a folder of the workdir. A stopped sweep goes on where it was; a point
that is finished is not run again. The table at the end has a line for each setting but the seed: mean, standard
deviation, median, best and number of runs of the figure that selects, and how many runs learned nothing.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from experiments.program import run_program

_CONFIG = config_flags.DEFINE_config_file("config", None, "configs/NAME.py[:key=value,...]", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "directory of the sweep, a folder a point", required=True)
_LIST = flags.DEFINE_bool("list", False, "print the points and stop")
flags.mark_flag_as_required("config")

RESULTS = "sweep.json"
Point = dict[str, Any]


def main() -> None:
    """Runs what is missing and prints the table."""
    from bert_jax import train
    from bert_jax.training.settings import read_config
    from bert_jax.training.workdir import write_json

    workdir = Path(_WORKDIR.value)
    points = points_of(config_flags.get_config_filename(flags.FLAGS["config"]))
    if _LIST.value:
        print("\n".join(name_of(point) for point in points))
        return
    workdir.mkdir(parents=True, exist_ok=True)
    finished = json.loads((workdir / RESULTS).read_text()) if (workdir / RESULTS).exists() else {}
    figure = ""
    for number, point in enumerate(points, 1):
        name = name_of(point)
        config = with_point(_CONFIG.value, point)
        figure, mode = read_config(config)[1].selection
        if name not in finished:
            print(f"[{number}/{len(points)}] {name}", flush=True)
            result = train(config, workdir / name)
            finished[name] = {"point": point, "figure": figure, "mode": mode, "result": result}
            write_json(workdir / RESULTS, finished)
    print(table([finished[name_of(point)] for point in points]))


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
    """A copy of the config with the point's values."""
    result = ConfigDict(config.to_dict())
    result.update_from_flattened_dict(point)
    return result


def table(runs: list[dict[str, Any]]) -> str:
    """A line for each setting but the seed, and which is best by its median."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        setting = {key: value for key, value in run["point"].items() if key != "seed"}
        groups.setdefault(name_of(setting) or "all", []).append(run)
    figure, mode = runs[0]["figure"], runs[0]["mode"]
    better = max if mode == "max" else min
    width = max(len(name) for name in groups)
    lines = [f"{figure:{width}}{'mean':>10}{'std':>10}{'median':>10}{'best':>10}{'n':>5}{'degenerate':>12}"]
    medians = {}
    for name, members in groups.items():
        values = [run["result"][figure] for run in members]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        medians[name] = statistics.median(values)
        row = (statistics.fmean(values), spread, medians[name], better(values))
        degenerate = sum(bool(run["result"].get("degenerate", 0)) for run in members)
        lines.append(f"{name:{width}}" + "".join(f"{v:10.4f}" for v in row) + f"{len(values):5}{degenerate:12}")
    best = better(medians, key=lambda name: medians[name])
    return "\n".join([*lines, f"best by median: {best}"])


if __name__ == "__main__":
    run_program(main)
