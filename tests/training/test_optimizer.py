"""One update against values worked out by hand, and the schedule against the original's rules."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.training.optimizer import OptimizerSettings, make_optimizer, polynomial_schedule, stable_schedule


def update(settings: OptimizerSettings, params, grads, step: int = 0, state=None, decay: float | None = None):
    optimizer = make_optimizer(settings, params)
    updates, state = optimizer.update(
        grads,
        optimizer.init(params) if state is None else state,
        params,
        learning_rate=jnp.float32(settings.learning_rate),
        weight_decay=jnp.float32(settings.weight_decay if decay is None else decay),
        step=jnp.int32(step),
    )
    return updates, state


def test_first_step_without_bias_correction_by_hand() -> None:
    params = {"dense": {"kernel": jnp.full((1,), 2.0), "bias": jnp.full((1,), 2.0)}}
    grads = {"dense": {"kernel": jnp.full((1,), 0.3), "bias": jnp.full((1,), 0.4)}}  # global norm 0.5: no clipping
    updates, _ = update(OptimizerSettings(learning_rate=0.1, weight_decay=0.01), params, grads)
    # m = 0.1 g, v = 0.001 g²: m / (√v + 1e-6) = 0.1 g / (0.0316228 g + 1e-6)
    kernel = 0.1 * 0.3 / (np.sqrt(0.001) * 0.3 + 1e-6)
    bias = 0.1 * 0.4 / (np.sqrt(0.001) * 0.4 + 1e-6)
    np.testing.assert_allclose(updates["dense"]["kernel"], -0.1 * (kernel + 0.01 * 2.0), rtol=1e-6)
    np.testing.assert_allclose(updates["dense"]["bias"], -0.1 * bias, rtol=1e-6)  # biases are not decayed


def test_with_bias_correction_it_is_optax_adamw() -> None:
    rng = np.random.default_rng(0)
    params = {"dense": {"kernel": jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)}}
    settings = OptimizerSettings(learning_rate=1e-2, bias_correction=True, clip_norm=1e9)
    ours, peer = params, params
    reference = optax.adamw(1e-2, eps=1e-6, weight_decay=0.01)
    state, peer_state = None, reference.init(params)
    for step in range(5):
        grads = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), jnp.float32), params)
        updates, state = update(settings, ours, grads, step, state)
        ours = optax.apply_updates(ours, updates)
        with jax.numpy_dtype_promotion("standard"):  # Optax itself mixes dtypes
            updates, peer_state = reference.update(grads, peer_state, peer)
        peer = optax.apply_updates(peer, updates)
    np.testing.assert_allclose(ours["dense"]["kernel"], peer["dense"]["kernel"], rtol=1e-6)


def test_clips_the_global_norm() -> None:
    params = {"a": jnp.zeros(1), "b": jnp.zeros(1)}
    settings = OptimizerSettings(clip_norm=1.0)
    _, clipped = update(settings, params, {"a": jnp.full(1, 30.0), "b": jnp.full(1, 40.0)})
    _, direct = update(settings, params, {"a": jnp.full(1, 0.6), "b": jnp.full(1, 0.8)})
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), clipped, direct)


def test_a_multiplier_of_zero_freezes() -> None:
    params = {"encoder": {"kernel": jnp.ones(2)}, "head": {"kernel": jnp.ones(2)}}
    settings = OptimizerSettings(learning_rate_multipliers=(("^encoder/", 0.0), (".*", 1.0)))
    updates, _ = update(settings, params, jax.tree.map(jnp.ones_like, params))
    assert not np.any(updates["encoder"]["kernel"])
    assert np.all(updates["head"]["kernel"])


def test_lamb_scales_each_decayed_parameter_to_its_norm() -> None:
    params = {"dense": {"kernel": jnp.full((4,), 3.0), "bias": jnp.full((4,), 3.0)}}
    grads = jax.tree.map(lambda p: jnp.full(p.shape, 0.01), params)
    updates, _ = update(OptimizerSettings(name="lamb", learning_rate=0.1, bias_correction=True), params, grads)
    # The direction's norm is scaled to the weight's, 6, and then by the rate.
    assert float(jnp.linalg.norm(updates["dense"]["kernel"])) == pytest.approx(0.6, rel=1e-5)
    np.testing.assert_allclose(updates["dense"]["bias"], -0.1 * (0.01 / (0.01 + 1e-6)), rtol=1e-4)


def test_schedule_is_the_originals() -> None:
    rate = [float(polynomial_schedule(jnp.int32(step), 10, 100)) for step in (0, 5, 9, 10, 55, 100, 101)]
    np.testing.assert_allclose(rate, [0.0, 0.5, 0.9, 0.9, 0.45, 0.0, 0.0], atol=1e-6)
    assert float(polynomial_schedule(jnp.int32(0), 0, 100)) == 1.0
    # NVIDIA's PolyWarmUpScheduler, degree 0.5: the root of what is left.
    root = [float(polynomial_schedule(jnp.int32(step), 10, 100, 0.5)) for step in (5, 19, 75, 100)]
    assert root == pytest.approx([0.5, 0.9, 0.5, 0.0])


def test_stable_schedule_rises_stays_and_falls() -> None:
    def rates(*steps: int, warmup: int = 10, decay: int = 20) -> list[float]:
        return [float(stable_schedule(jnp.int32(step), warmup, decay, 100)) for step in steps]

    np.testing.assert_allclose(rates(0, 5, 10, 79, 80, 85, 99, 100), [0, 0.5, 1, 1, 1, 0.75, 0.05, 0], atol=1e-6)
    np.testing.assert_allclose(rates(0, 50, 99, warmup=0, decay=100), [1, 0.5, 0.01], atol=1e-6)
    # A decay that begins before the warm-up ends, and one of no step.
    np.testing.assert_allclose(rates(50, 75, warmup=100, decay=50), [0.5, 0.5], atol=1e-6)
    assert rates(99, decay=0) == [1.0]


def test_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"optimizer.name='sgd' is unknown; take 'adamw' or 'lamb'"):
        OptimizerSettings(name="sgd")
