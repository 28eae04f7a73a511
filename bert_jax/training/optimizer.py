"""The original's Adam with decoupled decay, LAMB, the schedules; all as Optax transformations.

The learning rate, the decay and the step come in as extra arguments of ``update``: they are arrays in the train
state, so that a grid over them needs no second compilation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from bert_jax.training.rules import Rules, apply_rules

# The original excludes names that match "LayerNorm|layer_norm|bias" (optimization.py); embeddings are decayed.
DECAY_RULES: Rules = ((r"layer_norm|bias", 0.0), (r".*", 1.0))


@dataclass(frozen=True)
class OptimizerSettings:
    """``config.optimizer``. Defaults are the paper's appendix A.2 and the original's ``optimization.py``.

    ``bias_correction`` is off as in the original ("mostly an oversight", its author says); on, it is more stable on
    small sets. ``clip_norm`` clips the norm of the one global gradient; the original on TPU clipped each replica's
    before the average. ``learning_rate_multipliers`` are ordered ``(path regex, factor)`` rules; 0 freezes.
    """

    name: str = "adamw"
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    bias_correction: bool = False
    clip_norm: float = 1.0
    learning_rate_multipliers: tuple[tuple[str, float], ...] = ((".*", 1.0),)

    def __post_init__(self) -> None:
        if self.name not in ("adamw", "lamb"):
            raise ValueError(f"optimizer.name={self.name!r} is unknown; take 'adamw' or 'lamb'")
        if not (0 <= self.learning_rate < math.inf and self.clip_norm > 0):
            raise ValueError(
                f"optimizer.learning_rate={self.learning_rate} must be >= 0 and clip_norm={self.clip_norm} > 0"
            )


class Moments(NamedTuple):
    """First and second moment of the gradient, shaped as the parameters."""

    mu: Any
    nu: Any


def make_optimizer(settings: OptimizerSettings, params: Any) -> optax.GradientTransformationExtraArgs:
    """``update(grads, state, params, learning_rate=, weight_decay=, step=)`` for parameters like ``params``.

    Order as in the original: clip by global norm, Adam direction, + decay * w, (LAMB: trust ratio), * -lr.
    """
    decayed = apply_rules(DECAY_RULES, params, "weight decay")
    multipliers = apply_rules(settings.learning_rate_multipliers, params, "learning rate multiplier")
    parts = [
        clip_by_global_norm(settings.clip_norm),
        scale_by_bert_adam(settings.b1, settings.b2, settings.eps, settings.bias_correction),
        add_weight_decay(decayed),
    ]
    if settings.name == "lamb":
        # As the original LAMB for BERT: no layer-wise adaptation where there is no decay (biases, LayerNorm).
        parts.append(optax.masked(optax.scale_by_trust_ratio(), jax.tree.map(bool, decayed)))
    return optax.chain(*parts, scale_by_learning_rate(multipliers))


def clip_by_global_norm(clip_norm: float) -> optax.GradientTransformationExtraArgs:
    """Gradients whose norm over all parameters exceeds ``clip_norm`` are scaled down to it (Pascanu et al. 2013).

    One scalar factor, which the compiler takes into the moments' update; Optax's own divides array by array and
    stores the quotients, 1-2 % of a BASE step on a CPU.
    """

    def update(grads: Any, state: Any, params: Any = None, **_: Any) -> Any:
        scale = clip_norm / jnp.maximum(optax.tree.norm(grads), clip_norm)
        return jax.tree.map(lambda g: scale * g, grads), state

    return _transformation(lambda params: optax.EmptyState(), update)


def scale_by_bert_adam(
    b1: float, b2: float, eps: float, bias_correction: bool
) -> optax.GradientTransformationExtraArgs:
    """m / (sqrt(v) + eps) with moments in float32; with ``bias_correction`` as Kingma & Ba, Adam, algorithm 1."""

    def init(params: Any) -> Moments:
        return Moments(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))

    def update(
        grads: Any, state: Moments, params: Any = None, *, step: Int[Array, ""], **_: Any
    ) -> tuple[Any, Moments]:
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, grads)
        count = (step + 1).astype(jnp.float32)
        m_scale = 1 / (1 - b1**count) if bias_correction else 1.0
        v_scale = 1 / (1 - b2**count) if bias_correction else 1.0
        direction = jax.tree.map(lambda m, v: m_scale * m / (jnp.sqrt(v_scale * v) + eps), mu, nu)
        return direction, Moments(mu, nu)

    return _transformation(init, update)


def add_weight_decay(decayed: Any) -> optax.GradientTransformationExtraArgs:
    """Adds ``weight_decay * w`` to the direction wherever ``decayed`` is 1 (Loshchilov & Hutter, decoupled)."""

    def update(updates: Any, state: Any, params: Any = None, *, weight_decay: Float[Array, ""], **_: Any) -> Any:
        added = jax.tree.map(lambda u, w, d: u + weight_decay * w if d else u, updates, params, decayed)
        return added, state

    return _transformation(lambda params: optax.EmptyState(), update)


def scale_by_learning_rate(multipliers: Any) -> optax.GradientTransformationExtraArgs:
    """Times ``-learning_rate`` and the parameter's multiplier; a multiplier of 0 gives exact zeros (frozen)."""

    def update(updates: Any, state: Any, params: Any = None, *, learning_rate: Float[Array, ""], **_: Any) -> Any:
        scaled = jax.tree.map(lambda u, k: -learning_rate * k * u if k else jnp.zeros_like(u), updates, multipliers)
        return scaled, state

    return _transformation(lambda params: optax.EmptyState(), update)


def polynomial_schedule(
    step: Int[Array, ""], warmup_steps: int, decay_steps: int, power: float = 1.0
) -> Float[Array, ""]:
    """The learning rate at ``step`` (from 0) as a fraction of its peak: linear warm-up, then ``(1 - progress)^power``.

    As the original's ``optimization.py``, whose power is 1: the decay counts from step 0, so it stands at
    ``1 - warmup/decay`` when the warm-up ends, and the very first update has rate 0. NVIDIA's ``schedulers.py`` has a
    power of 0.5.
    """
    position = step.astype(jnp.float32)
    decay = jnp.clip(1.0 - position / decay_steps, 0.0, 1.0) ** power
    return jnp.where(step < warmup_steps, position / max(warmup_steps, 1), decay)


def stable_schedule(step: Int[Array, ""], warmup_steps: int, decay_steps: int, train_steps: int) -> Float[Array, ""]:
    """As ``polynomial_schedule``, but constant between the warm-up and the last ``decay_steps``, which fall to 0.

    Warmup-stable-decay (Hu et al. 2024, MiniCPM, arXiv:2404.06395), with a linear decay. A run can be made longer from
    any checkpoint before the decay.
    """
    position = step.astype(jnp.float32)
    rise = jnp.where(step < warmup_steps, position / max(warmup_steps, 1), 1.0)
    return jnp.clip(jnp.minimum(rise, (train_steps - position) / max(decay_steps, 1)), 0.0, 1.0)


def _transformation(init: Any, update: Any) -> optax.GradientTransformationExtraArgs:
    # Optax's own types know no named extra arguments.
    return optax.GradientTransformationExtraArgs(init, update)
