"""One global mean: the same update for any number of microbatches and devices, however the masks are spread."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.tasks.pretraining import pretraining
from bert_jax.tasks.task import Task
from bert_jax.training.optimizer import OptimizerSettings, make_optimizer
from bert_jax.training.sharding import MeshShape, batch_sharding, make_mesh, put_batch, state_shardings
from bert_jax.training.step import TrainState, gradients, init_state, train_step

BATCH = 16


@pytest.fixture(scope="module")
def task(tiny_corpus: Path) -> Task:
    model = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 32,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return pretraining(model=model, seed=0, corpus=str(tiny_corpus))


def prepared(task: Task) -> dict[str, Any]:
    return task.prepare(jax.random.key(1), jax.tree.map(jnp.asarray, task.stream(BATCH, 32, 1).batch(0)))


def ragged(batch: dict[str, Any]) -> dict[str, Any]:
    """All masks in the first quarter of the rows, and one row without an example."""
    keep = (jnp.arange(BATCH) < BATCH // 4)[:, None]
    weights = jnp.where(keep, batch["masked_weights"], 0.0)
    return batch | {"masked_weights": weights, "example_weights": batch["example_weights"].at[3].set(0.0)}


@pytest.mark.parametrize("pieces", [2, 4, 8])
def test_accumulation_equals_the_batch_in_one_piece(pieces: int, task: Task) -> None:
    params = task.init(jax.random.key(0))
    batch = ragged(prepared(task))
    key = jax.random.key(2)
    whole, figures = jax.jit(partial(gradients, task=task, accumulation_steps=1))(params, batch, key)
    parts, part_figures = jax.jit(partial(gradients, task=task, accumulation_steps=pieces))(params, batch, key)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), whole, parts)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), figures, part_figures)


def test_no_masked_token_gives_zero_loss_and_finite_gradients(task: Task) -> None:
    params = task.init(jax.random.key(0))
    batch = prepared(task)
    batch |= {"masked_weights": jnp.zeros_like(batch["masked_weights"])}
    batch |= {"example_weights": jnp.zeros_like(batch["example_weights"])}
    grads, figures = gradients(params, batch, jax.random.key(2), task, 1)
    assert float(figures["mlm_loss"][0]) == 0.0
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(grads))


def run(task: Task, shape: MeshShape, steps: int = 3) -> tuple[TrainState, list[float]]:
    mesh = make_mesh(shape)
    optimizer = make_optimizer(OptimizerSettings(learning_rate=1e-3), jax.eval_shape(task.init, jax.random.key(0)))
    fresh = partial(init_state, task, optimizer, {"learning_rate": 1e-3, "weight_decay": 0.01}, 0)
    with jax.set_mesh(mesh):
        shardings = state_shardings(mesh, jax.eval_shape(fresh))
        state = jax.jit(fresh, out_shardings=shardings)()
        step = jax.jit(
            partial(train_step, task=task, optimizer=optimizer, schedule=lambda _: jnp.float32(1.0)),
            in_shardings=(shardings, batch_sharding(mesh)),
            out_shardings=(shardings, None),
        )
        losses = []
        for number in range(steps):
            batch = put_batch(task.stream(BATCH, 32, 1).batch(number), mesh)
            state, figures = step(state, batch)
            losses.append(float(figures["mlm_loss"][0] / figures["mlm_loss"][1]))
    return state, losses


def test_every_mesh_takes_the_same_steps(task: Task) -> None:
    alone, losses = run(task, MeshShape(1, 1, 1))
    for shape in (MeshShape(8, 1, 1), MeshShape(2, 2, 2)):
        state, mesh_losses = run(task, shape)
        np.testing.assert_allclose(losses, mesh_losses, rtol=1e-5)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=2e-5), alone.params, state.params)
    assert state.params["embeddings"]["word"]["embedding"].sharding.shard_shape((128, 32)) == (32, 32)
