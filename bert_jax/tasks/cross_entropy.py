"""The loss of everything that chooses one of several: pieces, classes, endings, tags, columns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.tasks.task import Figures


def cross_entropy(
    logits: Float[Array, "*items c"], labels: Int[Array, "*items"], weights: Float[Array, "*items"], prefix: str = ""
) -> Figures:
    """``loss`` (nats) and ``accuracy``, with the prefix before, as (sum, weight) pairs in float32."""
    log_normalizer = jax.nn.logsumexp(logits, axis=-1)
    label_logits = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    right = jnp.argmax(logits, axis=-1) == labels
    total = jnp.sum(weights)
    return {
        f"{prefix}loss": (jnp.sum(weights * (log_normalizer - label_logits)), total),
        f"{prefix}accuracy": (jnp.sum(jnp.where(right, weights, 0.0)), total),
    }
