"""Dropout: the rate is exact, bits are independent, and the mask depends on (key, row, element) alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.model.dropout import dropout, keep_mask, random_bits

# Two-sided p about 1e-5 for a normal statistic: seeds are fixed, so a failure is a change of code, not of luck.
SIGMAS = 4.4


def kept(seed: int, shape: tuple[int, ...] = (64, 128, 64), rate: float = 0.5) -> np.ndarray:
    return np.asarray(keep_mask(jax.random.key(seed), shape, rate))


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_rate(rate: float) -> None:
    mask = kept(0, rate=rate)
    deviation = (mask.mean() - (1 - rate)) / np.sqrt(rate * (1 - rate) / mask.size)
    assert abs(deviation) < SIGMAS


def test_rate_in_every_row_and_column() -> None:
    mask = kept(1, rate=0.1)
    for axis in range(3):
        others = tuple(a for a in range(3) if a != axis)
        count = mask.size / mask.shape[axis]
        chi_square = (((mask.mean(others) - 0.9) ** 2) / (0.09 / count)).sum()
        n = mask.shape[axis]
        assert abs(chi_square - n) / np.sqrt(2 * n) < SIGMAS


def test_every_bit_is_fair_and_bits_are_uncorrelated() -> None:
    bits = np.asarray(random_bits(jax.random.key(2), (32, 4096)))
    planes = ((bits.reshape(-1, 1) >> np.arange(32, dtype=np.uint32)) & 1).astype(np.float64) * 2 - 1
    correlation = planes.T @ planes / np.sqrt(len(planes))
    np.fill_diagonal(correlation, 0.0)
    assert np.abs(planes.sum(0) / np.sqrt(len(planes))).max() < SIGMAS
    assert np.abs(correlation).max() < SIGMAS


def test_bytes_are_uniform() -> None:
    bits = np.asarray(random_bits(jax.random.key(3), (32, 4096)))
    for shift in (0, 8, 16, 24):
        counts = np.bincount((bits.ravel() >> shift) & 255, minlength=256)
        expected = bits.size / 256
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_square - 255) / np.sqrt(2 * 255) < SIGMAS


@pytest.mark.parametrize("lag", [(0, 0, 1), (0, 0, 2), (0, 1, 0), (1, 0, 0), (0, 1, 1), (0, 0, 32), (0, 16, 0)])
def test_neighbours_are_independent(lag: tuple[int, int, int]) -> None:
    signs = kept(4).astype(np.float64) * 2 - 1
    first = signs[tuple(slice(0, n - d) for n, d in zip(signs.shape, lag, strict=True))]
    second = signs[tuple(slice(d, n) for n, d in zip(signs.shape, lag, strict=True))]
    assert abs((first * second).sum() / np.sqrt(first.size)) < SIGMAS


def test_layers_steps_and_close_keys_are_independent() -> None:
    root = jax.random.key(5)
    keys = [jax.random.fold_in(jax.random.fold_in(root, step), layer) for step in range(4) for layer in range(4)]
    # Raw keys that differ in one bit, which fold_in never gives, are the hardest case for a hash.
    raw = [(0, 0), (0, 1), (1, 0), (2, 0), (0, 2), (1 << 31, 0), (0, 1 << 31)]
    keys += [jax.random.wrap_key_data(jnp.asarray(words, jnp.uint32)) for words in raw]
    signs = np.stack([np.asarray(keep_mask(key, (64, 1024), 0.5)).ravel() for key in keys]) * 2.0 - 1.0
    correlation = signs @ signs.T / np.sqrt(signs.shape[1])
    np.fill_diagonal(correlation, 0.0)
    assert np.abs(correlation).max() < SIGMAS


def test_kept_elements_are_scaled_and_the_gradient_has_the_same_mask() -> None:
    x = jnp.linspace(1.0, 2.0, 4096).reshape(4, 1024)
    key = jax.random.key(6)
    y, pull_back = jax.vjp(lambda x: dropout(x, 0.25, key), x)
    (gradient,) = pull_back(jnp.ones_like(x))
    mask = np.asarray(keep_mask(key, x.shape, 0.25))
    np.testing.assert_allclose(y, np.where(mask, np.asarray(x) / 0.75, 0.0), rtol=1e-6)
    np.testing.assert_allclose(gradient, np.where(mask, 1 / 0.75, 0.0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_dtype_is_kept_and_nothing_happens_without_a_key(dtype: jnp.dtype) -> None:
    x = jnp.ones((2, 8), dtype)
    assert dropout(x, 0.1, jax.random.key(0)).dtype == dtype
    assert dropout(x, 0.1, None) is x
    assert dropout(x, 0.0, jax.random.key(0)) is x


def test_the_same_mask_on_any_mesh() -> None:
    x = jnp.ones((16, 8, 64))
    expected = jax.jit(lambda x, key: dropout(x, 0.1, key))(x, jax.random.key(7))
    for shape in ((8, 1), (4, 2), (1, 8)):
        mesh = jax.make_mesh(shape, ("rows", "tokens"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        sharded = jax.device_put(x, NamedSharding(mesh, PartitionSpec("rows", "tokens")))
        result = jax.jit(lambda x, key: dropout(x, 0.1, key))(sharded, jax.random.key(7))
        np.testing.assert_array_equal(result, expected)


def test_a_row_does_not_depend_on_how_many_follow() -> None:
    key = jax.random.key(8)
    np.testing.assert_array_equal(keep_mask(key, (64, 32), 0.1)[:5], keep_mask(key, (5, 32), 0.1))
