"""The element-wise and dense building blocks that every part of BERT shares."""

import math
from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from bert_jax.model.config import BertConfig


def compute_dtype(config: BertConfig) -> jnp.dtype:
    """The dtype in which activations are computed and kept."""
    return jnp.dtype(config.dtype)


def kernel_init(config: BertConfig) -> Callable[..., Array]:
    """Normal(0, initializer_range) cut at two standard deviations and, as in TensorFlow, not rescaled.

    The realised standard deviation is therefore 0.88 of `initializer_range`.
    """
    return nn.initializers.truncated_normal(config.initializer_range)


class Dense(nn.Module):
    """x @ kernel + bias over the last axis. Parameters: kernel [d, features], bias [features]."""

    config: BertConfig
    features: int

    @nn.compact
    def __call__(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch features"]:
        kernel = self.param("kernel", kernel_init(self.config), (x.shape[-1], self.features), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        dtype = compute_dtype(self.config)
        return jnp.dot(x.astype(dtype), kernel.astype(dtype)) + bias.astype(dtype)


def gather_columns(x: Shaped[Array, "r t *rest"], columns: Int[Array, "r k"]) -> Shaped[Array, "r k *rest"]:
    """The entries of each row at `columns` of the same row, so that a batch sharded over rows stays local."""
    columns = columns.reshape(columns.shape + (1,) * (x.ndim - 2))
    return jnp.take_along_axis(x, columns, axis=1, mode="clip")


class LayerNorm(nn.Module):
    """Layer normalisation over the last axis, statistics in float32. Parameters: scale [d], bias [d].

    BERT's epsilon, 1e-12, is below the resolution of 16-bit floats: only the result is cast to the compute dtype.
    """

    config: BertConfig

    @nn.compact
    def __call__(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), jnp.float32)
        return normalize(x, scale, bias, self.config.layer_norm_eps)


def activation(x: Float[Array, "*shape"], name: str) -> Float[Array, "*shape"]:
    """The named activation: "gelu" is the exact one (erf); "gelu_new" and its synonyms the tanh approximation."""
    if name == "gelu":
        return gelu(x)
    if name == "relu":
        return jax.nn.relu(x)
    return jax.nn.gelu(x, approximate=True)


# The derivatives below are written out because automatic ones keep every intermediate result for the backward
# pass: on a CPU, and for small models anywhere, moving those costs more than computing them again.


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def normalize(
    x: Float[Array, "*batch d"], scale: Float[Array, "d"], bias: Float[Array, "d"], eps: float
) -> Float[Array, "*batch d"]:
    """(x - mean) / sqrt(variance + eps) * scale + bias over the last axis, in float32, returned in x's dtype."""
    return _normalize_forward(x, scale, bias, eps)[0]


def _normalize_forward(x: Array, scale: Array, bias: Array, eps: float) -> tuple[Array, tuple[Array, ...]]:
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    centred = wide - mean
    inverse = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + eps)
    return (centred * inverse * scale + bias).astype(x.dtype), (x, mean, inverse, scale)


def _normalize_backward(eps: float, residuals: tuple[Array, ...], gradient: Array) -> tuple[Array, Array, Array]:
    x, mean, inverse, scale = residuals
    normalized = (x.astype(jnp.float32) - mean) * inverse
    gradient = gradient.astype(jnp.float32)
    leading = tuple(range(x.ndim - 1))
    inner = gradient * scale
    centre = inner.mean(-1, keepdims=True)
    slope = (inner * normalized).mean(-1, keepdims=True)
    dx = inverse * (inner - centre - normalized * slope)
    return dx.astype(x.dtype), (gradient * normalized).sum(leading), gradient.sum(leading)


normalize.defvjp(_normalize_forward, _normalize_backward)


@jax.custom_vjp
def gelu(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """x Φ(x) with the normal distribution function Φ; the original's activation (Hendrycks & Gimpel 2016)."""
    wide = x.astype(jnp.float32)
    return (wide * _normal_cdf(wide)).astype(x.dtype)


def _gelu_forward(x: Array) -> tuple[Array, Array]:
    return gelu(x), x


def _gelu_backward(x: Array, gradient: Array) -> tuple[Array]:
    # Without the barrier the compiler finds Φ(x) again in the forward pass and keeps it, an array as large as x.
    wide = jax.lax.optimization_barrier(x).astype(jnp.float32)
    density = jnp.exp(-0.5 * wide * wide) * (1.0 / math.sqrt(2.0 * math.pi))
    slope = _normal_cdf(wide) + wide * density
    return ((gradient.astype(jnp.float32) * slope).astype(x.dtype),)


gelu.defvjp(_gelu_forward, _gelu_backward)


def _normal_cdf(x: Array) -> Array:
    return 0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5))
