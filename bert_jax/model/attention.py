"""Scaled dot-product attention inside packed sequences: one function of (query, key, value, sequence ids)."""

import logging
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from bert_jax.model.attention_kernels import fused_attention, fused_kernel
from bert_jax.model.dropout import dropout
from bert_jax.model.layers import gather_columns


def attention(
    query: Float[Array, "r t n h"],
    key: Float[Array, "r s n h"],
    value: Float[Array, "r s n h"],
    sequence_ids: Int[Array, "r s"] | None = None,
    *,
    query_columns: Int[Array, "r t"] | None = None,
    direction: str = "bidirectional",
    dropout_rate: float = 0.0,
    dropout_key: PRNGKeyArray | None = None,
    implementation: str = "xla",
) -> Float[Array, "r t n h"]:
    """softmax(query keyᵀ / √h) value, each token attending to the tokens of its own sequence id only.

    Padding has sequence id 0 and attends to padding: finite, and used by nobody. `sequence_ids` None means
    that every row is one sequence without padding. `direction` adds the causal mask. Dropout acts on the
    probabilities. `query_columns` are the queries' columns among the keys, where they are fewer than those.
    """
    if implementation == "auto":
        dropped = dropout_key is not None and dropout_rate > 0.0
        kernel = "xla (only some columns are asked for)"
        if query_columns is None:
            kernel = fused_kernel(jax.default_backend(), query.shape[1], direction, dropped)
        _say_once(kernel)
        if not kernel.startswith("xla"):
            return fused_attention(query, key, value, sequence_ids, kernel=kernel, direction=direction)
    mask = attention_mask(sequence_ids, key.shape[1], direction, query_columns)
    return _einsum_attention(query, key, value, mask, dropout_key, dropout_rate)


def attention_mask(
    sequence_ids: Int[Array, "r s"] | None,
    length: int,
    direction: str,
    query_columns: Int[Array, "r t"] | None = None,
) -> Bool[Array, "#r t s"] | None:
    """True where a query (second axis) may attend to a key (third axis); None where all may."""
    column = jnp.arange(length, dtype=jnp.int32)[None]
    mask = None
    if sequence_ids is not None:
        query_ids = sequence_ids if query_columns is None else gather_columns(sequence_ids, query_columns)
        mask = query_ids[:, :, None] == sequence_ids[:, None, :]
    if direction == "bidirectional":
        return mask
    query = (column if query_columns is None else query_columns)[:, :, None]
    causal = column[:, None] <= query if direction == "left_to_right" else column[:, None] >= query
    return causal if mask is None else mask & causal


@cache
def _say_once(kernel: str) -> None:
    logging.getLogger(__name__).warning("attention runs by %s", kernel)


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _einsum_attention(
    query: Array, key: Array, value: Array, mask: Array | None, dropout_key: PRNGKeyArray | None, rate: float
) -> Array:
    """The reference: plain einsums, float32 softmax, dropout on the probabilities.

    Its derivative is written out so that only the scores are kept for the backward pass; probabilities and dropout
    mask are computed again there, and the softmax's row sums come from the output, as in FlashAttention (Dao et al.
    2022, appendix B.2).
    """
    return _einsum_attention_forward(query, key, value, mask, dropout_key, rate)[0]


def _einsum_attention_forward(
    query: Array, key: Array, value: Array, mask: Array | None, dropout_key: PRNGKeyArray | None, rate: float
) -> tuple[Array, tuple[Any, ...]]:
    # Heads first, once: the matrix products of both passes then need no further transposition.
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query * query.shape[-1] ** -0.5, key, value))
    scores = jnp.einsum("rnth,rnsh->rnts", query, key, preferred_element_type=jnp.float32)
    if mask is not None:
        scores = jnp.where(mask[:, None], scores, jnp.finfo(jnp.float32).min)
    maximum = scores.max(-1, keepdims=True)
    inverse = 1.0 / jnp.exp(scores - maximum).sum(-1, keepdims=True)
    probabilities = dropout(jnp.exp(scores - maximum) * inverse, rate, dropout_key)
    output = jnp.swapaxes(jnp.einsum("rnts,rnsh->rnth", probabilities.astype(value.dtype), value), 1, 2)
    return output, (query, key, value, dropout_key, scores, maximum, inverse, output)


def _einsum_attention_backward(
    rate: float, residuals: tuple[Any, ...], gradient: Array
) -> tuple[Array, Array, Array, None, None]:
    query, key, value, dropout_key, scores, maximum, inverse, output = residuals
    row_sums = jnp.einsum("rtnh,rtnh->rnt", gradient, output, preferred_element_type=jnp.float32)
    gradient = jnp.swapaxes(gradient, 1, 2)
    probabilities = jnp.exp(scores - maximum) * inverse
    dropped = dropout(probabilities, rate, dropout_key).astype(value.dtype)
    d_value = jnp.einsum("rnts,rnth->rnsh", dropped, gradient)
    d_dropped = jnp.einsum("rnth,rnsh->rnts", gradient, value, preferred_element_type=jnp.float32)
    d_scores = probabilities * (dropout(d_dropped, rate, dropout_key) - row_sums[..., None])
    d_scores = d_scores.astype(query.dtype)
    d_query = jnp.einsum("rnts,rnsh->rnth", d_scores, key) * query.shape[-1] ** -0.5
    d_key = jnp.einsum("rnts,rnth->rnsh", d_scores, query)
    d_query, d_key, d_value = (jnp.swapaxes(x, 1, 2) for x in (d_query, d_key, d_value))
    return d_query, d_key, d_value, None, None


_einsum_attention.defvjp(_einsum_attention_forward, _einsum_attention_backward)
