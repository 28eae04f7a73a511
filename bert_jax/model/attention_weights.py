"""The attention probabilities of every layer and head, to look at: the encoder itself never keeps them."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bert_jax.model.attention import attention_mask
from bert_jax.model.bert import Bert
from bert_jax.model.config import BertConfig
from bert_jax.model.layers import Dense


def attention_weights(
    params: Any,
    config: BertConfig,
    input_ids: Int[Array, "r t"],
    segment_ids: Int[Array, "r t"] | None = None,
    sequence_ids: Int[Array, "r t"] | None = None,
    position_ids: Int[Array, "r t"] | None = None,
) -> Float[Array, "l r n t t"]:
    """softmax(query keyᵀ / √h) of each layer, in float32 and without dropout; each row sums to 1.

    Every layer's queries and keys are projected again from the output of the layer below it.

    Args:
        params: of the encoder; more than it needs does no harm.
    """
    states: Any = Bert(config).apply(
        {"params": params}, input_ids, segment_ids, sequence_ids, position_ids, all_hidden_states=True
    )
    mask = attention_mask(sequence_ids, input_ids.shape[1], config.attention_direction)
    layers = [params["encoder"][f"layer_{i // config.layers_a_group}"] for i in range(config.num_hidden_layers)]
    return jnp.stack(
        [
            _weights(layer["attention"], config, below, mask)
            for layer, below in zip(layers, states.hidden_states[:-1], strict=True)
        ]
    )


def _weights(
    params: Any, config: BertConfig, x: Float[Array, "r t d"], mask: Bool[Array, "#r t t"] | None
) -> Float[Array, "r n t t"]:
    def project(name: str) -> Float[Array, "r t n h"]:
        projected: Any = Dense(config, config.hidden_size).apply({"params": params[name]}, x)
        return projected.reshape(*x.shape[:2], config.num_attention_heads, config.head_size)

    query = project("query") * config.head_size**-0.5
    scores = jnp.einsum("rtnh,rsnh->rnts", query, project("key"), preferred_element_type=jnp.float32)
    if mask is not None:
        scores = jnp.where(mask[:, None], scores, jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores, axis=-1)
