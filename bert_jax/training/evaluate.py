"""Held-out evaluation: every example exactly once, as one ratio of sums over all batches, devices and hosts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.data.object_cache import local_copy, local_output
from bert_jax.data.object_store import is_url
from bert_jax.data.packing import Unpacked
from bert_jax.data.prefetch import one_behind
from bert_jax.data.writing import check_output
from bert_jax.tasks.fine_tuning import whole_pass
from bert_jax.tasks.task import Evaluation, Outputs, Params, Task
from bert_jax.training.checkpoint import best_step, read_params
from bert_jax.training.sharding import MeshShape, batch_sharding, make_mesh, put_whole_batch, row_devices
from bert_jax.training.step import Means, eval_step
from bert_jax.training.stored_run import local_run
from bert_jax.training.workdir import read_workdir

Evaluate = Callable[[Params, Evaluation, int], tuple[dict[str, float], dict[str, Any]]]
Forward = Callable[[Params, Evaluation, int], tuple[dict[str, float], Outputs]]


def make_evaluate(task: Task, mesh: Mesh, param_shardings: Params) -> Evaluate:
    """``evaluate(params, evaluation, seed)`` -> the task's figures and details; compiled once a shape.

    A split without examples gives no figures.
    """
    forward = make_forward(task, mesh, param_shardings)

    def evaluate(params: Params, evaluation: Evaluation, seed: int) -> tuple[dict[str, float], dict[str, Any]]:
        means, outputs = forward(params, evaluation, seed)
        if not means:
            return {}, {}
        if evaluation.dataset is None:
            return task.summary(means), {}
        scores = evaluation.dataset.scores(outputs)
        if not scores:  # without labels the means are of placeholders
            return {}, {}
        return task.summary(means) | scores, evaluation.dataset.details(outputs)

    return evaluate


def make_forward(task: Task, mesh: Mesh, param_shardings: Params) -> Forward:
    """``forward(params, evaluation, seed)`` -> ratios of the figures, and the outputs of all examples in their order.

    The randomness of ``task.prepare`` (the masks) depends on the seed and the batch's number alone, so that every
    evaluation of a run sees the same masked text.
    """
    replicated = NamedSharding(mesh, PartitionSpec())
    compiled = jax.jit(
        partial(eval_step, task=task),
        in_shardings=(param_shardings, replicated, batch_sharding(mesh)),
        out_shardings=replicated,
    )

    def forward(params: Params, evaluation: Evaluation, seed: int) -> tuple[dict[str, float], Outputs]:
        means, key = Means(), jax.random.key(seed)
        unpacked = Unpacked(evaluation.dataset.examples) if evaluation.dataset else None

        running = (
            (batch, compiled(params, jax.random.fold_in(key, index), put_whole_batch(batch, mesh)))
            for index, batch in enumerate(evaluation.batches)
        )
        for batch, (figures, outputs) in one_behind(running):
            means.add([figures])
            if unpacked is not None:
                unpacked.add(batch, jax.device_get(outputs))
        return means.ratios(), unpacked.arrays if unpacked is not None else {}

    return forward


def evaluate_workdir(workdir: str | Path, split: str | None = None, *, best: bool = False) -> dict[str, float]:
    """Evaluates a run's newest checkpoint, or its best, on every device at hand; None: the split of its training.

    Raises:
        FileNotFoundError: no run or no finished checkpoint in ``workdir``.
        ValueError: a split that the task does not have, or one without examples.
    """
    workdir = local_run(workdir, every=best)
    settings, task = read_workdir(workdir)
    last = settings.phases[-1] if settings.phases else settings
    params, _ = read_params(workdir, best_step(workdir, task.selection) if best else None)
    mesh, params, shardings = on_all_devices(params)
    with jax.set_mesh(mesh):
        evaluation = task.evaluation(split or task.eval_split, last.batch_size, last.max_seq_length, row_devices(mesh))
        result, _ = make_evaluate(task, mesh, shardings)(params, evaluation, settings.seed)
    if not result:
        raise ValueError(
            f"split {split or task.eval_split!r} holds no labelled example; give one that does, or for pre-training a"
            " corpus of more documents or with more --held_out"
        )
    return result


def predict_workdir(workdir: str | Path, source: str | Path, output: str | Path, *, best: bool = False) -> int:
    """Writes the predictions for a file, or for a split of the task, in the task's own form; how many predictions.

    Raises:
        FileNotFoundError: no run in ``workdir``, or no file ``source``.
        ValueError: a task without predictions (pre-training), or a file that does not fit it.
    """
    workdir, source = local_run(workdir, every=best), local_copy(source) if is_url(source) else source
    settings, task = read_workdir(workdir)
    if task.read_file is None:
        raise ValueError(f"{workdir} is a run of {task.name}, which predicts no file; use bert_jax.load to fill masks")
    step = best_step(workdir, task.selection) if best else None
    params, meta = read_params(workdir, step)
    mesh, params, shardings = on_all_devices(params)
    last = settings.phases[-1] if settings.phases else settings
    length, rows = last.max_seq_length, row_devices(mesh)
    if Path(source).is_file():
        evaluation = whole_pass(task.read_file(Path(source), length), task.tokenizer, length, rows)
    elif Path(source).suffix or len(Path(source).parts) > 1:
        raise FileNotFoundError(f"no file {source}; give a file or the name of a split as input")
    else:
        evaluation = task.evaluation(str(source), last.batch_size, length, rows)
    if evaluation.dataset is None or not len(evaluation.dataset.examples):
        raise ValueError(f"{source} holds nothing to predict; give a file or a split that does")
    if not is_url(output):
        check_output(Path(output), folder=evaluation.dataset.writes_folder)  # not after all the work
    with jax.set_mesh(mesh):
        _, outputs = make_forward(task, mesh, shardings)(params, evaluation, settings.seed)
    if jax.process_index() == 0:
        with local_output(output) as place:
            evaluation.dataset.write(outputs, place, meta["figures"])
    items = evaluation.dataset.num_items
    return len(evaluation.dataset.examples) if items is None else items


def on_all_devices(params: Params) -> tuple[Mesh, Params, Params]:
    """A mesh over which rows go over all devices, the parameters whole on each of them, and their shardings.

    Whatever mesh the run had: evaluation needs no optimizer state, which is what takes the room.
    """
    mesh = make_mesh(MeshShape())
    replicated = NamedSharding(mesh, PartitionSpec())
    return mesh, jax.device_put(params, replicated), jax.tree.map(lambda _: replicated, params)
