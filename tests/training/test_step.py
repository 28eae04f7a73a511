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
from bert_jax.training.step import gradients

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
