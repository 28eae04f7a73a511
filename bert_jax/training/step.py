"""``train_step`` and ``eval_step``: pure functions of arrays, compiled by the loop with the mesh's shardings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from bert_jax.tasks.task import Batch, Figures, Params, Task

Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]
# A mean over nothing is 0 with zero gradient; any real weight is far larger than this.
SMALLEST_WEIGHT = 1e-6


class TrainState(flax.struct.PyTreeNode):
    """Everything that a step changes or a sweep varies; the leaves are arrays, or what stands for them in a tree map.

    The step's randomness is ``fold_in(key(seed), step)``.

    Attributes:
        step: int32 [], updates done.
        params: float32 parameters.
        opt_state: the optimizer's moments.
        hyperparameters: float32 [] each: ``learning_rate`` (the peak), ``weight_decay``.
        seed: uint32 [].
    """

    step: Any
    params: Any
    opt_state: Any
    hyperparameters: Any
    seed: Any


def init_state(
    task: Task, optimizer: optax.GradientTransformation, hyperparameters: dict[str, Any], seed: Any
) -> TrainState:
    """A fresh state; traceable, so that ``jax.jit`` with shardings creates every array where it will live."""
    params = task.init(jax.random.key(seed))
    step, opt_state = jnp.zeros((), jnp.int32), optimizer.init(params)
    return TrainState(step=step, params=params, opt_state=opt_state, **settings_of_state(hyperparameters, seed))


def settings_of_state(hyperparameters: dict[str, Any], seed: Any) -> dict[str, Any]:
    """The fields of the state that the config sets, also when a run goes on; numbers, or arrays under ``vmap``."""
    values = {name: jnp.asarray(value, jnp.float32) for name, value in hyperparameters.items()}
    return {"hyperparameters": values, "seed": jnp.asarray(seed, jnp.uint32)}


def train_step(
    state: TrainState,
    batch: Batch,
    accumulation_steps: int = 1,
    *,
    task: Task,
    optimizer: optax.GradientTransformationExtraArgs,
    schedule: Schedule,
    skip_nonfinite: bool = False,
) -> tuple[TrainState, Figures]:
    """One optimizer update on one global batch.

    The loss is the sum over ``task.objective`` of (sum over the whole batch) / (weight of the whole batch): one
    global mean, so it is the same for any number of devices and of ``accumulation_steps``.

    Args:
        state: donated by the loop.
        batch: arrays of ``r`` rows; ``r`` divides by ``accumulation_steps``.
        skip_nonfinite: whether a batch whose gradient is not finite changes nothing but the step; the figure
            ``skipped`` is the share of such steps.
    """
    batch, dropout_key = prepared(state, batch, task)
    grads, figures = gradients(state.params, batch, dropout_key, task, accumulation_steps)
    rate = state.hyperparameters["learning_rate"] * schedule(state.step)
    updates, opt_state = optimizer.update(
        grads,
        state.opt_state,
        state.params,
        learning_rate=rate,
        weight_decay=state.hyperparameters["weight_decay"],
        step=state.step,
    )
    one, norm = jnp.ones((), jnp.float32), optax.tree.norm(grads)
    figures = figures | {"gradient_norm": (norm, one), "learning_rate": (rate, one)}
    changed = {"params": optax.apply_updates(state.params, updates), "opt_state": opt_state}
    if skip_nonfinite:
        good = jnp.isfinite(norm)
        before = {name: getattr(state, name) for name in changed}
        changed = jax.tree.map(lambda new, old: jnp.where(good, new, old), changed, before)
        # Nothing of such a step counts in the means.
        figures = jax.tree.map(lambda x: jnp.where(good, x, jnp.zeros_like(x)), figures)
        figures["skipped"] = (jnp.where(good, 0 * one, one), one)
    return state.replace(step=state.step + 1, **changed), figures


def prepared(state: TrainState, batch: Batch, task: Task) -> tuple[Batch, Key[Array, ""]]:
    """What a step makes of its batch, masked for one, and its key for dropout."""
    prepare_key, dropout_key = jax.random.split(jax.random.fold_in(jax.random.key(state.seed), state.step))
    return task.prepare(prepare_key, batch), dropout_key


def eval_step(params: Params, key: Key[Array, ""], batch: Batch, *, task: Task) -> tuple[Figures, dict[str, Array]]:
    """The figures and the outputs of one evaluation batch, without dropout."""
    batch = task.prepare(key, batch)
    result = task.forward(params, batch, None)
    return task.figures(result, batch), task.outputs(result, batch)


def gradients(
    params: Params, batch: Batch, dropout_key: Key[Array, ""], task: Task, accumulation_steps: int
) -> tuple[Params, Figures]:
    """Gradient of the global mean loss and the figures of the batch, in ``accumulation_steps`` pieces of rows."""
    # Only the weights are used, and they do not depend on the parameters: the compiler drops this forward pass.
    weights = {name: weight for name, (_, weight) in task.figures(task.forward(params, batch, None), batch).items()}

    def loss(params: Params, piece: Batch, key: Key[Array, ""]) -> tuple[Float[Array, ""], Figures]:
        figures = task.figures(task.forward(params, piece, key), piece)
        terms = [figures[name][0] / jnp.maximum(weights[name], SMALLEST_WEIGHT) for name in task.objective]
        return jnp.sum(jnp.stack(terms)), figures

    gradient = jax.grad(loss, has_aux=True)
    if accumulation_steps == 1:
        return gradient(params, batch, dropout_key)

    def accumulate(carry: Any, item: tuple[Batch, Int[Array, ""]]) -> tuple[Any, None]:
        piece, index = item
        return jax.tree.map(jnp.add, carry, gradient(params, piece, jax.random.fold_in(dropout_key, index))), None

    # Piece i takes rows i, i + k, i + 2k, ...: each device's rows then stay on it.
    pieces = jax.tree.map(lambda x: x.reshape(-1, accumulation_steps, *x.shape[1:]).swapaxes(0, 1), batch)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, params, batch, dropout_key))
    result, _ = jax.lax.scan(accumulate, zeros, (pieces, jnp.arange(accumulation_steps)))
    return result


class Means:
    """Adds up figures on the host, in float64; fetching waits for the device.

    ``member``: of several runs in one program, whose figures are arrays [k], the one that is meant.
    """

    def __init__(self, member: int | None = None) -> None:
        self.sums: dict[str, np.ndarray] = {}
        self.member = member

    def add(self, figures: list[dict[str, Any]]) -> None:
        for item in jax.device_get(figures):
            for name, pair in item.items():
                values = np.asarray(pair, np.float64)
                one = values if self.member is None else values[:, self.member]
                self.sums[name] = self.sums.get(name, np.zeros(2)) + one

    def ratios(self) -> dict[str, float]:
        """Sum over weight of every figure; 0 where there was no weight."""
        return {name: float(s / w) if w else 0.0 for name, (s, w) in self.sums.items()}
