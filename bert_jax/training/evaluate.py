"""Held-out evaluation: every example exactly once, as one ratio of sums over all batches, devices and hosts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.tasks.task import Figures, Params, Task
from bert_jax.training.sharding import batch_sharding, local_rows, put_batch
from bert_jax.training.step import Means, eval_step

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
