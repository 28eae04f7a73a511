"""Fused attention: which kernel where, and equality with the reference, run step by step on the CPU."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from bert_jax.model.attention import attention
from bert_jax.model.attention_kernels import fused_attention, fused_kernel

R, T, N, H = 2, 128, 2, 64


def inputs() -> tuple[list[jax.Array], jax.Array]:
    arrays = np.random.default_rng(0).normal(size=(3, R, T, N, H)).astype(np.float32)
    sequences = np.ones((R, T), np.int32)
    sequences[1, 50:100], sequences[1, 100:] = 2, 0
    return [jnp.asarray(a) for a in arrays], jnp.asarray(sequences)


def test_the_choice_and_its_reasons() -> None:
    assert fused_kernel("tpu", 512, "bidirectional", False) == "splash"
    assert fused_kernel("gpu", 128, "left_to_right", False) == "triton"
    assert (
        fused_kernel("gpu", 128, "bidirectional", True)
        == "xla: fused kernels have no dropout on attention probabilities"
    )
    assert fused_kernel("cpu", 128, "bidirectional", False).startswith("xla: there is no fused kernel for cpu")
    assert fused_kernel("tpu", 100, "bidirectional", False).startswith("xla: 100 tokens")
    assert fused_kernel("tpu", 128, "right_to_left", False).startswith("xla: ")


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right"])
@pytest.mark.parametrize("kernel", ["splash", "triton"])
def test_values_equal_the_reference(kernel: str, direction: str) -> None:
    arrays, sequences = inputs()
    expected = attention(*arrays, sequences, direction=direction)
    result = fused_attention(*arrays, sequences, kernel=kernel, direction=direction, interpret=True)
    used = np.asarray(sequences) > 0
    np.testing.assert_allclose(np.asarray(result)[used], np.asarray(expected)[used], atol=2e-5)
    assert np.isfinite(result).all()


@pytest.mark.parametrize("kernel", ["splash", "triton"])
def test_gradients_equal_the_reference(kernel: str) -> None:
    arrays, sequences = inputs()
    used = jnp.asarray(sequences > 0, jnp.float32)[..., None, None]
    fused = partial(fused_attention, kernel=kernel, direction="bidirectional", interpret=True)
    gradients = [
        jax.grad(lambda *a, f=f: (f(*a, sequences) ** 2 * used).sum(), argnums=(0, 1, 2))(*arrays)
        for f in (fused, attention)
    ]
    for found, expected in zip(*gradients, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize(("kernel", "platform"), [("splash", "tpu"), ("triton", "cuda")])
def test_forward_and_backward_lower_for_the_real_machine(kernel: str, platform: str) -> None:
    arrays, sequences = inputs()
    narrow = [a.astype(jnp.bfloat16) for a in arrays]

    def loss(*arrays: jax.Array) -> jax.Array:
        result = fused_attention(*arrays, sequences, kernel=kernel, direction="bidirectional")
        return result.astype(jnp.float32).sum()

    traced = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).trace(*narrow)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ("tpu_custom_call" if platform == "tpu" else "triton") in text


def test_under_a_mesh_rows_and_heads_are_divided() -> None:
    arrays, sequences = inputs()
    expected = attention(*arrays, sequences)
    mesh = jax.make_mesh(
        (2, 1, 2), ("data", "fsdp", "tensor"), axis_types=(AxisType.Auto,) * 3, devices=jax.devices()[:4]
    )
    with jax.set_mesh(mesh):
        result = jax.jit(lambda *a: fused_attention(*a, kernel="splash", direction="bidirectional", interpret=True))(
            *arrays, sequences
        )
    used = np.asarray(sequences) > 0
    np.testing.assert_allclose(np.asarray(result)[used], np.asarray(expected)[used], atol=2e-5)


def test_auto_says_once_which_ran(caplog: pytest.LogCaptureFixture) -> None:
    from bert_jax.model.attention import _say_once

    _say_once.cache_clear()
    arrays, sequences = inputs()
    for _ in range(2):
        attention(*arrays, sequences, implementation="auto")
    assert caplog.text.count("attention runs by xla: there is no fused kernel for cpu") == 1
