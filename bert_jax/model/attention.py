"""Scaled dot-product attention inside packed sequences: one function of (query, key, value, sequence ids)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bert_jax.model.config import AttentionDirection, AttentionImplementation
from bert_jax.model.dropout import dropout


def attention(
    query: Float[Array, "r t n h"],
    key: Float[Array, "r s n h"],
    value: Float[Array, "r s n h"],
    sequence_ids: Int[Array, "r s"] | None = None,
    *,
    direction: AttentionDirection = "bidirectional",
    dropout_rate: float = 0.0,
    dropout_key: PRNGKeyArray | None = None,
    implementation: AttentionImplementation = "xla",
) -> Float[Array, "r t n h"]:
    """softmax(query keyᵀ / √h) value, each token attending to the tokens of its own sequence id only.

    Padding has sequence id 0 and attends to padding: finite, and used by nobody. `sequence_ids` None means that every
    row is one sequence without padding. `direction` adds the causal mask. Dropout acts on the probabilities.
    """
    mask = attention_mask(sequence_ids, query.shape[1], direction)
    return _einsum_attention(query, key, value, mask, dropout_rate, dropout_key)


def attention_mask(
    sequence_ids: Int[Array, "r t"] | None, length: int, direction: AttentionDirection
) -> Bool[Array, "#r t t"] | None:
    """True where a query (second axis) may attend to a key (third axis); None where all may."""
    mask = None if sequence_ids is None else sequence_ids[:, :, None] == sequence_ids[:, None, :]
    if direction == "bidirectional":
        return mask
    position = jnp.arange(length, dtype=jnp.int32)
    query, key = position[None, :, None], position[None, None, :]
    causal = key <= query if direction == "left_to_right" else key >= query
    return causal if mask is None else mask & causal


def _einsum_attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    dropout_rate: float,
    dropout_key: PRNGKeyArray | None,
) -> Array:
    scores = jnp.einsum(
        "rtnh,rsnh->rnts", query * (query.shape[-1] ** -0.5), key, preferred_element_type=jnp.float32
    )
    if mask is not None:
        scores = jnp.where(mask[:, None], scores, jnp.finfo(jnp.float32).min)
    probabilities = dropout(jax.nn.softmax(scores, axis=-1), dropout_rate, dropout_key)
    return jnp.einsum("rnts,rsnh->rtnh", probabilities.astype(value.dtype), value)
