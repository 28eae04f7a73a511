"""The points of a sweep, their configs, folders and commands, and ``sweep.json``, which keeps what they reached."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from bert_jax.data.object_cache import local_output
from bert_jax.data.object_store import Store, is_url
from bert_jax.data.writing import write_json

RESULTS = "sweep.json"
Point = dict[str, Any]


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
    from bert_jax.training.settings import plain, without_fields
    from bert_jax.training.workdir import absolute_paths

    values = plain(config)
    return without_fields(values | absolute_paths(values), {name for point in points for name in point})


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
        ValueError: it has no sweep or adds nothing, or two points are the same.
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
    if not points:
        raise ValueError(f"{path}: sweep adds no point; add at least one")
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


def config_arguments(arguments: Sequence[str]) -> list[str]:
    """Those of a command line that make the config: ``--config=...``, ``--config.field=value``, also in two words."""
    found: list[str] = []
    for word, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        name = word.lstrip("-").split("=", 1)[0]
        if word.startswith("-") and (name.startswith(("config.", "noconfig.")) or name == "config"):
            found.append(word)
            if "=" not in word and not name.startswith("noconfig."):
                found += [following] if not following.startswith("--") else []
    return found


def command_of(arguments: Sequence[str], point: Point, workdir: str | Path) -> list[str]:
    """The training of a point as words of a command line, after the Python interpreter.

    Raises:
        ValueError: a value that no command line can give.
    """
    for name, value in point.items():
        if not isinstance(value, (bool, int, float, str)):
            raise ValueError(
                f"the sweep sets {name} to a {type(value).__name__}, which no command line can; run it without --list"
                " and --at_a_time"
            )
    own = [f"--config.{name}={value}" for name, value in point.items()]
    folder = str(folder_of(workdir, name_of(point)))
    return ["-m", "experiments.train", *arguments, *own, "--workdir", folder]
