"""Held-out evaluation: every example exactly once, as one ratio of sums over all batches, devices and hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.tasks.task import Figures, Params, Task
from bert_jax.training.checkpoint import best_step, read_params
from bert_jax.training.settings import plan, read_config
from bert_jax.training.sharding import MeshShape, batch_sharding, local_rows, make_mesh, put_batch
from bert_jax.training.step import Means, eval_step
from bert_jax.training.workdir import CONFIG

Evaluate = Callable[[Params, str, int, int], dict[str, float]]


def make_evaluate(task: Task, mesh: Mesh, param_shardings: Params, seed: int) -> Evaluate:
    """``evaluate(params, split, batch_size, max_seq_length)`` -> the task's summary; compiled once a shape.

    A split without examples gives an empty summary.

    The randomness of ``task.prepare`` (the masks) depends on the seed and the batch's number alone, so that every
    evaluation of a run sees the same masked text.
    """
    replicated = NamedSharding(mesh, PartitionSpec())
    compiled = jax.jit(
        partial(eval_step, task=task),
        in_shardings=(param_shardings, replicated, batch_sharding(mesh)),
        out_shardings=replicated,
    )
    key = jax.random.key(seed)

    def evaluate(params: Params, split: str, batch_size: int, max_seq_length: int) -> dict[str, float]:
        means = Means()
        rows = local_rows(mesh, batch_size)
        running: list[Figures] = []
        for index, batch in enumerate(task.evaluation(split, batch_size, max_seq_length)):
            device_batch = put_batch({name: value[rows] for name, value in batch.items()}, mesh, batch_size)
            figures = compiled(params, jax.random.fold_in(key, index), device_batch)
            means.add(running)  # the batch before: the host prepares while the device computes
            running = [figures]
        means.add(running)
        return task.summary(means.ratios()) if running else {}

    return evaluate


def evaluate_workdir(workdir: str | Path, split: str, *, best: bool = False) -> dict[str, float]:
    """Evaluates a run's newest checkpoint, or its best, on every device at hand.

    Raises:
        FileNotFoundError: no run or no finished checkpoint in ``workdir``.
        ValueError: a split that the task does not have, or one without examples.
    """
    path = Path(workdir) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{workdir} holds no {CONFIG}; give the --workdir of a training run")
    settings, task = read_config(json.loads(path.read_text()))
    last = plan(settings, task)[-1]
    params, _ = read_params(workdir, best_step(workdir, task.selection) if best else None)
    # Whatever mesh the run had: here the rows go over all devices, the parameters lie whole on each.
    mesh = make_mesh(MeshShape())
    replicated = NamedSharding(mesh, PartitionSpec())
    with jax.set_mesh(mesh):
        params = jax.device_put(params, replicated)
        evaluate = make_evaluate(task, mesh, jax.tree.map(lambda _: replicated, params), settings.seed)
        batch_size = -(-last.batch_size // mesh.size) * mesh.size
        result = evaluate(params, split, batch_size, last.max_seq_length)
    if not result:
        raise ValueError(f"split {split!r} holds no example; build the corpus with a larger --held_out")
    return result
