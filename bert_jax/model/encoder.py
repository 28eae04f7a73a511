"""The Transformer encoder: self-attention and feed-forward, post-layer-norm, unrolled or scanned over layers."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bert_jax.model.attention import attention
from bert_jax.model.config import BertConfig
from bert_jax.model.dropout import dropout
from bert_jax.model.layers import Dense, LayerNorm, activation

# (one layer's parameters, its input, its dropout key or None) -> its output
LayerFunction = Callable[[Any, Array, PRNGKeyArray | None], Array]


class Encoder(nn.Module):
    """num_hidden_layers layers. Parameters: layer_0 … layer_{l-1}, whichever way the layers are run."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "r t d"],
        sequence_ids: Int[Array, "r t"] | None = None,
        *,
        dropout_key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "r t d"], tuple[Float[Array, "r t d"], ...]]:
        """Returns the last layer's output and the outputs of all layers, first to last."""
        config = self.config
        if self.is_initializing():
            outputs = []
            for i in range(config.num_hidden_layers):
                x = EncoderLayer(config, name=f"layer_{i}")(x, sequence_ids)
                outputs.append(x)
            return x, tuple(outputs)

        # A layer's `apply` is a pure function, so one definition serves the loop, the scan and
        # rematerialisation.
        def layer(params: Any, x: Array, key: PRNGKeyArray | None) -> Array:
            return EncoderLayer(config, parent=None).apply({"params": params}, x, sequence_ids, dropout_key=key)

        if config.remat:
            layer = jax.checkpoint(layer, prevent_cse=not config.scan_layers)
        params = [self.variables["params"][f"layer_{i}"] for i in range(config.num_hidden_layers)]
        run = _scan_layers if config.scan_layers else _loop_over_layers
        outputs = run(layer, params, x, dropout_key)
        return outputs[-1], outputs


class EncoderLayer(nn.Module):
    """One layer: x = LN(x + attention(x)); LN(x + feed-forward(x)), dropout before each sum.

    Parameters: attention/{query,key,value,output,layer_norm}, feed_forward/{intermediate,output,layer_norm}.
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "r t d"],
        sequence_ids: Int[Array, "r t"] | None = None,
        *,
        dropout_key: PRNGKeyArray | None = None,
    ) -> Float[Array, "r t d"]:
        keys = [None, None] if dropout_key is None else [jax.random.fold_in(dropout_key, i) for i in range(2)]
        x = SelfAttention(self.config, name="attention")(x, sequence_ids, dropout_key=keys[0])
        return FeedForward(self.config, name="feed_forward")(x, dropout_key=keys[1])


class SelfAttention(nn.Module):
    """Multi-head self-attention with its residual and layer norm."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "r t d"],
        sequence_ids: Int[Array, "r t"] | None = None,
        *,
        dropout_key: PRNGKeyArray | None = None,
    ) -> Float[Array, "r t d"]:
        config = self.config
        heads = (*x.shape[:2], config.num_attention_heads, config.head_size)
        query, key, value = (
            Dense(config, config.hidden_size, name=name)(x).reshape(heads) for name in ("query", "key", "value")
        )
        keys = [None, None] if dropout_key is None else [jax.random.fold_in(dropout_key, i) for i in range(2)]
        context = attention(
            query,
            key,
            value,
            sequence_ids,
            direction=config.attention_direction,
            dropout_rate=config.attention_probs_dropout_prob,
            dropout_key=keys[0],
            implementation=config.attention_implementation,
        )
        output = Dense(config, config.hidden_size, name="output")(context.reshape(x.shape))
        output = dropout(output, config.hidden_dropout_prob, keys[1])
        return LayerNorm(config, name="layer_norm")(x + output)


class FeedForward(nn.Module):
    """Two dense layers with the activation between, their residual and layer norm."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: Float[Array, "r t d"], *, dropout_key: PRNGKeyArray | None = None) -> Float[Array, "r t d"]:
        config = self.config
        inner = activation(Dense(config, config.intermediate_size, name="intermediate")(x), config.hidden_act)
        output = dropout(
            Dense(config, config.hidden_size, name="output")(inner), config.hidden_dropout_prob, dropout_key
        )
        return LayerNorm(config, name="layer_norm")(x + output)


def _loop_over_layers(
    layer: LayerFunction, params: list[Any], x: Array, dropout_key: PRNGKeyArray | None
) -> tuple[Array, ...]:
    outputs = []
    for i, layer_params in enumerate(params):
        x = layer(layer_params, x, None if dropout_key is None else jax.random.fold_in(dropout_key, i))
        outputs.append(x)
    return tuple(outputs)


def _scan_layers(
    layer: LayerFunction, params: list[Any], x: Array, dropout_key: PRNGKeyArray | None
) -> tuple[Array, ...]:
    """The same numbers as the loop, compiled once: parameters are stacked here, not in the checkpoint."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    indices = jnp.arange(len(params), dtype=jnp.int32)

    def step(x: Array, inputs: tuple[Any, Array]) -> tuple[Array, Array]:
        layer_params, i = inputs
        x = layer(layer_params, x, None if dropout_key is None else jax.random.fold_in(dropout_key, i))
        return x, x

    _, outputs = jax.lax.scan(step, x, (stacked, indices))
    return tuple(outputs)
