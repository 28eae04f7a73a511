"""A step looked into: the run is repeated up to it, bit for bit, since a batch is a function of (seed, step)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.data.locks import locked
from bert_jax.data.writing import write_json
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.rules import path_of
from bert_jax.training.settings import Config, plan, read_config
from bert_jax.training.sharding import make_mesh
from bert_jax.training.step import gradients, prepared
from bert_jax.training.stored_run import working_copy
from bert_jax.training.train import begin, device_batches, spans


def debug_step(config: Config, workdir: str | Path, step: int) -> str:
    """What step number ``step`` (from 1) works on and gives; the text to show.

    The run goes on later as if this had not been. ``workdir/debug_step_N`` receives ``batch.npz`` (what the step is
    given, masked) and ``report.json``: the loss's parts, the examples, and of every parameter, before the step, and of
    its gradient the largest absolute value, the norm and the share that is not finite.

    Raises:
        FileNotFoundError: there is no such workdir.
        ValueError: the newest checkpoint is not before ``step``, the run has fewer steps, or is going on.
    """
    with working_copy(workdir) as directory:
        return _debug_step(config, directory, step)


def _debug_step(config: Config, workdir: Path, step: int) -> str:
    if not workdir.is_dir():
        raise FileNotFoundError(f"no directory {workdir}; give the --workdir of the run to look into")
    settings, task = read_config(config, workdir)
    phases, mesh = plan(settings, task), make_mesh(settings.mesh)
    total = sum(phase.train_steps for phase in phases)
    with (
        jax.set_mesh(mesh),
        locked(workdir),
        Checkpoints(workdir, settings.keep_last, task.selection) as checkpoints,
    ):
        state, step_function, _ = begin(settings, phases, task, mesh, checkpoints)
        first = int(state.step)
        if not first < step <= total:
            raise ValueError(
                f"debug_step={step} must be after the newest checkpoint, {first}, and up to the run's last step,"
                f" {total}; move newer checkpoints away to look at an earlier one"
            )
        for phase, last in spans(phases, first):
            batches = device_batches(task, phase, mesh)
            for number in range(int(state.step), min(last, step - 1)):
                state, _ = step_function(state, batches(number)[0], phase.accumulation_steps)
            if step <= last:
                batch, dropout_key = prepared(state, batches(step - 1)[0], task)
                compute = jax.jit(partial(gradients, task=task, accumulation_steps=phase.accumulation_steps))
                grads, figures = compute(state.params, batch, dropout_key)
                break
    parameters = {
        path_of(path): {"parameter": _numbers(leaf), "gradient": _numbers(grad)}
        for (path, leaf), grad in zip(
            jax.tree_util.tree_leaves_with_path(state.params), jax.tree.leaves(grads), strict=True
        )
    }
    sums = {name: [float(part) for part in pair] for name, pair in figures.items()}
    folder = workdir / f"debug_step_{step}"
    folder.mkdir(exist_ok=True)
    np.savez(folder / "batch.npz", allow_pickle=False, **{name: np.asarray(value) for name, value in batch.items()})
    report = {"step": step, "figures": sums, "examples": _examples(batch), "parameters": parameters}
    write_json(folder / "report.json", report)
    return _summary(report, folder)


def _numbers(x: Any) -> dict[str, float]:
    values = np.asarray(x, np.float64)
    return {
        "largest": float(np.abs(values).max(initial=0)),
        "norm": float(np.sqrt(np.square(values).sum())),
        "not_finite": float(1 - np.isfinite(values).mean()) if values.size else 0.0,
    }


def _examples(batch: dict[str, Any]) -> list[int]:
    """Which examples of the training set; [] where the task makes them anew, as pre-training does."""
    indices = np.asarray(batch.get("example_indices", ()))
    return sorted(int(index) for index in indices.ravel() if index >= 0)


def _summary(report: dict[str, Any], folder: Path) -> str:
    parameters = report["parameters"]
    lines = [
        f"step {report['step']}: {name} {total} over {weight}" for name, (total, weight) in report["figures"].items()
    ]
    if report["examples"]:
        lines.append(f"examples: {', '.join(map(str, report['examples']))}")
    for kind in ("parameter", "gradient"):
        bad = [path for path, numbers in parameters.items() if numbers[kind]["not_finite"]]
        lines.append(f"{kind}s that are not finite: {', '.join(bad) or 'none'}")
        largest = sorted(parameters, key=lambda path: -parameters[path][kind]["norm"])[:3]
        norms = (f"{path} {parameters[path][kind]['norm']:.3g}" for path in largest)
        lines.append(f"{kind}s of the largest norm: {', '.join(norms)}")
    return "\n".join([*lines, f"batch and numbers of every parameter: {folder}"])
