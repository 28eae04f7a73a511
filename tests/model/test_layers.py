"""Layer norm, GELU and dense: values and the written-out derivatives against plain float64 and automatic ones."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.config import BertConfig
from bert_jax.model.layers import Dense, LayerNorm, activation, gelu, normalize

X = np.random.default_rng(0).normal(1.0, 3.0, (5, 7, 32)).astype(np.float32)


def plain_normalize(x: jax.Array, scale: jax.Array, bias: jax.Array, eps: float) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + eps) * scale + bias


def test_layer_norm_and_its_derivative_equal_the_plain_ones() -> None:
    rng = np.random.default_rng(1)
    scale, bias, weight = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((32,), (32,), X.shape))
    args = (jnp.asarray(X), scale, bias)
    np.testing.assert_allclose(normalize(*args, 1e-12), plain_normalize(*args, 1e-12), rtol=1e-5, atol=1e-5)
    ours = jax.grad(lambda *a: (normalize(*a, 1e-12) * weight).sum(), argnums=(0, 1, 2))(*args)
    plain = jax.grad(lambda *a: (plain_normalize(*a, 1e-12) * weight).sum(), argnums=(0, 1, 2))(*args)
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_epsilon_is_1e_12_and_not_more() -> None:
    # A row whose variance is 1e-10: with the usual 1e-5 it would come out as about zero.
    x = jnp.asarray([[1e-5, -1e-5]], jnp.float32)
    config = BertConfig(hidden_size=2, num_attention_heads=1)
    y = LayerNorm(config).apply({"params": {"scale": jnp.ones(2), "bias": jnp.zeros(2)}}, x)
    expected = 1e-5 / math.sqrt(1e-10 + 1e-12)
    np.testing.assert_allclose(y, [[expected, -expected]], rtol=1e-5)


def test_statistics_are_float32_in_bfloat16() -> None:
    # A mean of 1000 with spread 1: bfloat16 statistics would lose the spread altogether.
    x = jnp.asarray(np.random.default_rng(2).normal(0, 1, (4, 768)), jnp.bfloat16) * 8 + jnp.bfloat16(1024)
    y = normalize(x, jnp.ones(768), jnp.zeros(768), 1e-12)
    assert y.dtype == jnp.bfloat16
    wide = np.asarray(x, np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, atol=2e-2)


def test_gelu_is_the_exact_one() -> None:
    x = np.linspace(-6, 6, 241)
    expected = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]
    np.testing.assert_allclose(gelu(jnp.asarray(x, jnp.float32)), expected, atol=5e-7)
    slope = [0.5 * (1 + math.erf(v / math.sqrt(2))) + v * math.exp(-v * v / 2) / math.sqrt(2 * math.pi) for v in x]
    gradient = jax.vmap(jax.grad(gelu))(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(gradient, slope, atol=5e-7)


@pytest.mark.parametrize("name", ["gelu_new", "gelu_tanh", "gelu_pytorch_tanh"])
def test_tanh_gelu(name: str) -> None:
    x = np.linspace(-4, 4, 81)
    expected = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    result = activation(jnp.asarray(x, jnp.float32), name)  # type: ignore[arg-type]
    np.testing.assert_allclose(result, expected, atol=1e-6)
    assert np.abs(np.asarray(result) - np.asarray(gelu(jnp.asarray(x, jnp.float32)))).max() > 1e-4


def test_relu() -> None:
    np.testing.assert_array_equal(activation(jnp.asarray([-1.0, 0.0, 2.0]), "relu"), [0.0, 0.0, 2.0])


@pytest.mark.parametrize("function", [gelu, lambda x: normalize(x, jnp.ones(32), jnp.zeros(32), 1e-12)])
def test_bfloat16_gradients_are_bfloat16_and_close(function) -> None:  # type: ignore[no-untyped-def]
    x = jnp.asarray(X)
    narrow = jax.grad(lambda x: function(x).astype(jnp.float32).sum() * 1.0)(x.astype(jnp.bfloat16))
    wide = jax.grad(lambda x: function(x).sum())(x.astype(jnp.bfloat16).astype(jnp.float32))
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(narrow, np.float32), wide, atol=0.02, rtol=0.02)


def test_dense_has_two_dimensional_float32_parameters_whatever_the_compute_dtype() -> None:
    config = BertConfig(dtype="bfloat16")
    dense = Dense(config, 6)
    x = jnp.ones((2, 3, 4), jnp.bfloat16)
    params = dense.init(jax.random.key(0), x)["params"]
    assert params["kernel"].shape == (4, 6)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    assert dense.apply({"params": params}, x).dtype == jnp.bfloat16
