"""The BiLSTM against PyTorch's with the same weights, and packed sequences against the same alone."""

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.bilstm import BiLSTM

WIDTH, SIZE, LAYERS = 5, 4, 2
MODULE = BiLSTM(SIZE, num_layers=LAYERS)
APPLY = jax.jit(MODULE.apply)


def fresh_params() -> Any:
    return jax.jit(MODULE.init)(jax.random.key(0), jnp.zeros((1, 1, WIDTH)), jnp.ones((1, 1), jnp.int32))["params"]


@pytest.fixture(scope="module")
def params() -> Any:
    fresh = fresh_params()
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.5, x.shape), jnp.float32), fresh)


def run(params: Any, x: np.ndarray, sequence_ids: np.ndarray) -> np.ndarray:
    return np.asarray(APPLY({"params": params}, jnp.asarray(x), jnp.asarray(sequence_ids, jnp.int32)))


def inputs(rows: int, columns: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns, WIDTH)).astype(np.float32)


def test_fresh_parameters() -> None:
    fresh = fresh_params()
    assert set(fresh) == {"forward_0", "backward_0", "forward_1", "backward_1"}
    first, second = fresh["forward_0"], fresh["backward_1"]
    assert first["input_kernel"].shape == (WIDTH, 4 * SIZE) and second["input_kernel"].shape == (2 * SIZE, 4 * SIZE)
    np.testing.assert_array_equal(first["bias"], [0] * SIZE + [1] * SIZE + [0] * 2 * SIZE)
    rows = np.asarray(first["hidden_kernel"])
    np.testing.assert_allclose(rows @ rows.T, np.eye(SIZE), atol=1e-5)


def test_several_begin_in_one_program() -> None:
    code = """
import jax, jax.numpy as jnp, numpy as np
from bert_jax.model.bilstm import BiLSTM

def init(seed):
    x, ids = jnp.zeros((1, 4, 128)), jnp.ones((1, 4), jnp.int32)
    return BiLSTM(128, num_layers=2).init(jax.random.key(seed), x, ids)

together = jax.jit(jax.vmap(init))
for _ in range(3):
    members = jax.block_until_ready(together(jnp.arange(8)))
jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda x: x[1], members), jax.jit(init)(1))
"""
    # In a process of its own: what it guards against would never end. Of one device: more have more threads.
    one = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-c", code], env=one, timeout=120, check=True)


def test_equals_pytorch(params: Any) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.LSTM(WIDTH, SIZE, num_layers=LAYERS, bidirectional=True, batch_first=True)
    with torch.no_grad():
        for layer in range(LAYERS):
            for name, suffix in (("forward", ""), ("backward", "_reverse")):
                ours = params[f"{name}_{layer}"]  # gates of both in the order input, forget, cell, output
                parts = {
                    "weight_ih": ours["input_kernel"].T,
                    "weight_hh": ours["hidden_kernel"].T,
                    "bias_ih": ours["bias"],
                    "bias_hh": jnp.zeros(4 * SIZE),
                }
                for part, value in parts.items():
                    getattr(theirs, f"{part}_l{layer}{suffix}").copy_(torch.tensor(np.asarray(value)))
        x = inputs(3, 7)
        expected = theirs(torch.tensor(x))[0].numpy()
    np.testing.assert_allclose(run(params, x, np.ones((3, 7))), expected, atol=1e-5)


def test_packed_equals_alone_and_padding_counts_nothing(params: Any) -> None:
    lengths = [[4, 1, 4], [1, 4]]
    x = inputs(2, 10)
    ids = np.array([np.repeat([1, 2, 3, 0], [4, 1, 4, 1]), np.repeat([1, 2, 0], [1, 4, 5])])
    packed = run(params, x, ids)
    other = run(params, np.where(ids[..., None] > 0, x, 99).astype(np.float32), ids)
    np.testing.assert_array_equal(packed[ids > 0], other[ids > 0])
    for row, row_lengths in enumerate(lengths):
        start = 0
        for length in row_lengths:
            alone = run(params, x[row : row + 1, start : start + length], np.ones((1, length)))
            np.testing.assert_allclose(packed[row, start : start + length], alone[0], atol=1e-5)
            start += length
