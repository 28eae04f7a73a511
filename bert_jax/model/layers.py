"""The element-wise and dense building blocks that every part of BERT shares."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_jax.model.config import Activation, BertConfig


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


class LayerNorm(nn.Module):
    """Layer normalisation over the last axis, statistics in float32. Parameters: scale [d], bias [d].

    BERT's epsilon, 1e-12, is below the resolution of 16-bit floats: only the result is cast to the compute dtype.
    """

    config: BertConfig

    @nn.compact
    def __call__(self, x: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), jnp.float32)
        wide = x.astype(jnp.float32)
        centred = wide - wide.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        normalised = centred * jax.lax.rsqrt(variance + self.config.layer_norm_eps)
        return (normalised * scale + bias).astype(compute_dtype(self.config))


def activation(x: Float[Array, "*batch f"], name: Activation) -> Float[Array, "*batch f"]:
    """ "gelu" is the exact one (erf); "gelu_new", "gelu_tanh", "gelu_pytorch_tanh" the tanh approximation."""
    if name == "gelu":
        return 0.5 * x * (1.0 + jax.lax.erf(x * (0.5**0.5)))
    if name == "relu":
        return jax.nn.relu(x)
    return jax.nn.gelu(x, approximate=True)
