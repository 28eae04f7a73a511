"""What a workdir holds besides checkpoints and metrics, so that every reader needs just the directory."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from jax.experimental import multihost_utils

from bert_jax.data.locks import locked
from bert_jax.data.object_store import is_url
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.writing import write_json
from bert_jax.tasks import Task
from bert_jax.training.settings import Config, TrainSettings, differences, plain, read_config
from bert_jax.training.source import CONFIG, MODEL_CONFIG, TOKENIZER, read_run_config

ENVIRONMENT = "environment.json"
PATHS = ("corpus", "data_dir", "tokenizer", "init_from", "right_to_left_from", "features_dir")
# What a run cannot change on its way, but for what changes neither the parameters nor their meaning.
FIXED = (
    *("task:", "objective:", "optimizer.name:", "model", "labels", "bilstm_size:", "concatenated:"),
    *("right_to_left_from:", "features:", "data.kind:", "version:", "start:"),
)
FREE = tuple(
    f"model.{name}:"
    for name in (
        *("dtype", "scan_layers", "remat", "attention_implementation", "initializer_range"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob"),
    )
)
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "tokenizers", "sentencepiece")


@contextmanager
def prepared_workdir(workdir: str | Path, config: Config, task: Task) -> Iterator[None]:
    """``prepare_workdir``, and while open no other run in this workdir.

    Raises:
        ValueError: another run is going on there, or processes do not share it.
    """
    with ExitStack() as stack:
        if jax.process_index() == 0:
            Path(workdir).mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(Path(workdir)))
        prepare_workdir(workdir, config, task)
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("the workdir is prepared")
            if not (Path(workdir) / CONFIG).is_file():
                raise ValueError(
                    f"process {jax.process_index()} does not see what process 0 wrote into {workdir}; give a directory"
                    " that all processes share"
                )
        yield


def without_paths(config: Config) -> dict[str, Any]:
    """The config as JSON values, but for where things lie, which may differ between machines."""
    values = json.loads(json.dumps(plain(config)))
    return {name: value for name, value in values.items() if name not in PATHS}


def absolute_paths(config: Mapping[str, Any]) -> dict[str, str]:
    """Its fields that say where things lie, fit for every working directory; URLs are as they were."""
    given = {name: config[name] for name in PATHS if config.get(name)}
    return {name: path if is_url(path) else str(Path(path).absolute()) for name, path in given.items()}


def prepare_workdir(workdir: str | Path, config: Config, task: Task) -> None:
    """Writes ``config.json``, ``bert_config.json``, ``environment.json`` and ``tokenizer/``; process 0 only.

    A config that differs from the one the workdir began with is named on standard error, field by field, and used.
    Paths are kept absolute: every reader needs just the directory.

    Raises:
        ValueError: what differs makes it another run: its checkpoints could not be read, or would mean something else.
    """
    if jax.process_index() != 0:
        return
    directory = Path(workdir)
    directory.mkdir(parents=True, exist_ok=True)
    new = json.loads(json.dumps(plain(config)))
    new |= absolute_paths(new)
    if task.labels is not None:
        new["labels"] = list(task.labels)  # those of the training data, which a reader need not have
    # Every refusal comes before anything is written.
    kept = load_tokenizer(directory / TOKENIZER) if (directory / TOKENIZER).exists() else task.tokenizer
    if kept.fingerprint() != task.tokenizer.fingerprint():
        raise ValueError(f"{workdir} holds a run with another tokenizer; give another --workdir or delete it")
    if (directory / CONFIG).exists():
        changes = differences(json.loads((directory / CONFIG).read_text()), new)
        if another := [change for change in changes if change.startswith(FIXED) and not change.startswith(FREE)]:
            raise ValueError(f"{workdir} holds another run ({'; '.join(another)}); give another --workdir or delete it")
        if changes:
            print(f"config differs from the run in {workdir}: {'; '.join(changes)}", file=sys.stderr)
    write_json(directory / CONFIG, new)
    write_json(directory / ENVIRONMENT, environment())
    task.model.to_json(directory / MODEL_CONFIG)
    if not (directory / TOKENIZER).exists():
        temporary = directory / f"{TOKENIZER}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        task.tokenizer.save(temporary)
        os.replace(temporary, directory / TOKENIZER)


def read_workdir(workdir: str | Path) -> tuple[TrainSettings, Task]:
    """The settings and the task of a run, from its directory alone where the task needs no training data.

    Raises:
        FileNotFoundError: the directory holds no run.
    """
    directory = Path(workdir)
    if not (directory / CONFIG).is_file():
        raise FileNotFoundError(f"{workdir} holds no {CONFIG}; give the --workdir of a training run")
    config = read_run_config(directory)
    if "task" not in config:
        raise ValueError(
            f"{workdir} holds a model, but no run of a task; give it as init_from to a recipe, or use bert_jax.load"
        )
    return read_config(config | ({"tokenizer": None} if "tokenizer" in config else {}), directory)


def environment() -> dict[str, Any]:
    """Versions and hardware, for reports and results files."""
    devices = jax.devices()
    return {
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": processor(),
        "cpu_cores": os.cpu_count(),
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "processes": jax.process_count(),
    }


def processor() -> str:
    """The processor's name where the system tells it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
