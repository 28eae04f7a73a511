"""Attention: a hand-written float64 reference, masks, packing, dropout and the written-out derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.attention import attention, attention_mask
from bert_jax.model.dropout import keep_mask

R, T, N, H = 3, 10, 2, 8
SEQUENCES = np.asarray([[1] * 10, [1, 1, 1, 2, 2, 2, 2, 3, 0, 0], [0] * 10], np.int32)


def inputs(seed: int = 0, dtype: jnp.dtype = jnp.float32) -> tuple[jax.Array, jax.Array, jax.Array]:
    query, key, value = np.random.default_rng(seed).normal(0, 2, (3, R, T, N, H)).astype(np.float32)
    return jnp.asarray(query, dtype), jnp.asarray(key, dtype), jnp.asarray(value, dtype)


def allowed(direction: str) -> np.ndarray:
    """The mask by plain loops."""
    mask = np.zeros((R, T, T), bool)
    for r in range(R):
        for t in range(T):
            for s in range(T):
                causal = {"bidirectional": True, "left_to_right": s <= t, "right_to_left": s >= t}[direction]
                mask[r, t, s] = causal and SEQUENCES[r, t] == SEQUENCES[r, s]
    return mask


def reference(query: np.ndarray, key: np.ndarray, value: np.ndarray, mask: np.ndarray) -> np.ndarray:
    result = np.zeros(query.shape)
    for r in range(R):
        for n in range(N):
            scores = query[r, :, n].astype(np.float64) @ key[r, :, n].T / np.sqrt(H)
            weights = np.where(mask[r], np.exp(scores), 0.0)
            result[r, :, n] = weights / weights.sum(-1, keepdims=True) @ value[r, :, n]
    return result


def plain_attention(query, key, value, mask, rate, dropout_key):  # type: ignore[no-untyped-def]
    """The same mathematics for automatic differentiation."""
    scores = jnp.einsum("rtnh,rsnh->rnts", query, key) / jnp.sqrt(jnp.float32(H))
    probabilities = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e30))
    if dropout_key is not None:
        probabilities = jnp.where(keep_mask(dropout_key, probabilities.shape, rate), probabilities / (1 - rate), 0)
    return jnp.einsum("rnts,rsnh->rtnh", probabilities, value)


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right", "right_to_left"])
def test_values_and_masks_equal_the_reference(direction: str) -> None:
    query, key, value = inputs()
    mask = attention_mask(jnp.asarray(SEQUENCES), T, direction)
    assert mask is not None
    np.testing.assert_array_equal(mask, allowed(direction))
    result = attention(query, key, value, jnp.asarray(SEQUENCES), direction=direction)
    expected = reference(np.asarray(query), np.asarray(key), np.asarray(value), allowed(direction))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_no_sequence_ids_is_one_whole_sequence() -> None:
    query, key, value = inputs(1)
    ones = jnp.ones((R, T), jnp.int32)
    np.testing.assert_allclose(attention(query, key, value), attention(query, key, value, ones), atol=1e-6)


@pytest.mark.parametrize("with_dropout", [False, True])
def test_derivative_equals_automatic_differentiation(with_dropout: bool) -> None:
    arrays = inputs(2)
    sequences = jnp.asarray(SEQUENCES)
    weight = jnp.asarray(np.random.default_rng(3).normal(size=arrays[0].shape), jnp.float32)
    dropout_key = jax.random.key(4) if with_dropout else None
    mask = jnp.asarray(allowed("left_to_right"))

    def ours(*arrays: jax.Array) -> jax.Array:
        result = attention(*arrays, sequences, direction="left_to_right", dropout_rate=0.3, dropout_key=dropout_key)
        return (result * weight).sum()

    def plain(*arrays: jax.Array) -> jax.Array:
        return (plain_attention(*arrays, mask, 0.3, dropout_key) * weight).sum()

    values, gradients = jax.value_and_grad(ours, argnums=(0, 1, 2))(*arrays)
    expected_values, expected = jax.value_and_grad(plain, argnums=(0, 1, 2))(*arrays)
    np.testing.assert_allclose(values, expected_values, rtol=1e-5)
    for gradient, reference_gradient in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, reference_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_row_of_padding_is_finite_forward_and_backward(dtype: jnp.dtype) -> None:
    arrays = inputs(5, dtype)
    sequences = jnp.zeros((R, T), jnp.int32)

    def loss(*arrays: jax.Array) -> jax.Array:
        return attention(*arrays, sequences).astype(jnp.float32).sum()

    values = attention(*arrays, sequences)
    gradients = jax.grad(loss, argnums=(0, 1, 2))(*arrays)
    assert all(leaf.dtype == dtype for leaf in (values, *gradients))
    assert all(np.isfinite(np.asarray(leaf, np.float32)).all() for leaf in (values, *gradients))


def test_bfloat16_softmax_is_float32() -> None:
    # 1,024 equal probabilities: summed in bfloat16 they would stop growing at 1/4 of the total.
    length = 1024
    zeros = jnp.zeros((1, length, 1, H), jnp.bfloat16)
    result = attention(zeros, zeros, jnp.ones_like(zeros))
    np.testing.assert_allclose(np.asarray(result, np.float32), 1.0, atol=0.01)


def test_auto_is_the_reference_on_this_machine() -> None:
    arrays = inputs(6)
    sequences = jnp.asarray(SEQUENCES)
    reference_result = attention(*arrays, sequences)
    result = attention(*arrays, sequences, implementation="auto")
    np.testing.assert_allclose(result, reference_result, atol=1e-6)
