"""The Transformer encoder: self-attention and feed-forward, post-layer-norm, unrolled or scanned over layers."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from bert_jax.model.attention import attention
from bert_jax.model.config import BertConfig
from bert_jax.model.dropout import dropout
from bert_jax.model.layers import Dense, LayerNorm, activation, gather_columns

# Of each layer: attention probabilities, attention output, feed-forward output.
DROPOUTS = 3
# (one layer's parameters, its input, its DROPOUTS dropout keys or None, columns or None) -> its output
LayerFunction = Callable[[Any, Array, Array | None, Array | None], Array]


class Encoder(nn.Module):
    """num_hidden_layers layers. Parameters: layer_0 … layer_{l-1}, whichever way the layers are run.

    Where layers share parameters, layer_0 … are the groups.
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "r t d"],
        sequence_ids: Int[Array, "r t"] | None = None,
        *,
        dropout_key: PRNGKeyArray | None = None,
        columns: Int[Array, "r k"] | None = None,
    ) -> tuple[Float[Array, "r k d"], tuple[Float[Array, "r _ d"], ...]]:
        """Returns the last layer's output, at `columns` if given, and the outputs of all layers, first to last.

        With `columns` the last layer computes no others: its keys and values need all columns, its queries and its
        feed-forward do not. Without dropout the numbers are the same; dropout draws for what is computed.
        """
        config = self.config
        if self.is_initializing():
            outputs = []
            for group in range(config.num_groups):
                layer = EncoderLayer(config, name=f"layer_{group}")
                for _ in range(config.layers_a_group):
                    x = layer(x, sequence_ids)
                    outputs.append(x)
            return x if columns is None else gather_columns(x, columns), tuple(outputs)

        # A layer's `apply` is a pure function: one definition serves the loop, the scan and rematerialisation.
        def run_layer(params: Any, x: Array, keys: Array | None, columns: Array | None) -> Array:
            output: Any = EncoderLayer(config, parent=None).apply({"params": params}, x, sequence_ids, keys, columns)
            return output

        inner = outer = run_layer
        if config.remat:  # inside a scan the compiler cannot undo it, and need not be kept from trying
            inner, outer = jax.checkpoint(run_layer, prevent_cse=not config.scan_layers), jax.checkpoint(run_layer)
        groups = [self.variables["params"][f"layer_{i}"] for i in range(config.num_groups)]
        params = [group for group in groups for _ in range(config.layers_a_group)]
        run = _scan_layers if config.scan_layers else _loop_over_layers
        # All keys at once: loop, scan and rematerialisation draw the same numbers, from one threefry call.
        keys = None if dropout_key is None else jax.random.split(dropout_key, (len(params), DROPOUTS))
        if columns is None:
            return run(inner, params, x, keys)
        if columns.shape[1] >= x.shape[1]:  # a language model wants every column
            last, outputs = run(inner, params, x, keys)
            last = gather_columns(last, columns)
            return last, (*outputs[:-1], last)
        x, outputs = run(inner, params[:-1], x, None if keys is None else keys[:-1])
        last = outer(params[-1], x, None if keys is None else keys[-1], columns)
        return last, (*outputs, last)


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
        dropout_keys: Key[Array, "3"] | None = None,
        columns: Int[Array, "r k"] | None = None,
    ) -> Float[Array, "r k d"]:
        """All columns of the output, or those given."""
        probabilities, attended, fed = (None,) * DROPOUTS if dropout_keys is None else dropout_keys
        x = SelfAttention(self.config, name="attention")(x, sequence_ids, probabilities, attended, columns)
        return FeedForward(self.config, name="feed_forward")(x, fed)


class SelfAttention(nn.Module):
    """Multi-head self-attention with its residual and layer norm."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "r t d"],
        sequence_ids: Int[Array, "r t"] | None = None,
        probabilities_key: PRNGKeyArray | None = None,
        output_key: PRNGKeyArray | None = None,
        columns: Int[Array, "r k"] | None = None,
    ) -> Float[Array, "r k d"]:
        config = self.config
        queries = x if columns is None else gather_columns(x, columns)

        def project(name: str, x: Array) -> Array:
            heads = (*x.shape[:2], config.num_attention_heads, config.head_size)
            return Dense(config, config.hidden_size, name=name)(x).reshape(heads)

        query, key, value = project("query", queries), project("key", x), project("value", x)
        context = attention(
            query,
            key,
            value,
            sequence_ids,
            query_columns=columns,
            direction=config.attention_direction,
            dropout_rate=config.attention_probs_dropout_prob,
            dropout_key=probabilities_key,
            implementation=config.attention_implementation,
        )
        output = Dense(config, config.hidden_size, name="output")(context.reshape(queries.shape))
        output = dropout(output, config.hidden_dropout_prob, output_key)
        return LayerNorm(config, name="layer_norm")(queries + output)


class FeedForward(nn.Module):
    """Two dense layers with the activation between, their residual and layer norm."""

    config: BertConfig

    @nn.compact
    def __call__(self, x: Float[Array, "r t d"], dropout_key: PRNGKeyArray | None = None) -> Float[Array, "r t d"]:
        config = self.config
        inner = activation(Dense(config, config.intermediate_size, name="intermediate")(x), config.hidden_act)
        output = dropout(
            Dense(config, config.hidden_size, name="output")(inner), config.hidden_dropout_prob, dropout_key
        )
        return LayerNorm(config, name="layer_norm")(x + output)


def _loop_over_layers(
    layer: LayerFunction, params: list[Any], x: Array, keys: Array | None
) -> tuple[Array, tuple[Array, ...]]:
    outputs = []
    for i, layer_params in enumerate(params):
        x = layer(layer_params, x, None if keys is None else keys[i], None)
        outputs.append(x)
    return x, tuple(outputs)


def _scan_layers(
    layer: LayerFunction, params: list[Any], x: Array, keys: Array | None
) -> tuple[Array, tuple[Array, ...]]:
    """The same numbers as the loop, compiled once: parameters are stacked here, not in the checkpoint."""
    if not params:
        return x, ()
    shared = all(layer_params is params[0] for layer_params in params)  # then there is nothing to stack
    stacked = None if shared else jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)

    def step(x: Array, inputs: tuple[Any, Array | None]) -> tuple[Array, Array]:
        x = layer(params[0] if shared else inputs[0], x, inputs[1], None)
        return x, x

    # The last output is the carry, not a slice of all outputs: the compiler drops those where nobody reads them.
    last, outputs = jax.lax.scan(step, x, (stacked, keys), length=len(params))
    return last, tuple(outputs)
