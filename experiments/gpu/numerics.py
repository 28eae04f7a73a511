"""Correctness of bfloat16: the same parameters, batch and masks in float32 and in bfloat16, without dropout.

float32 is computed with the highest precision of matrix products (on NVIDIA's cards the default for float32 is less).
Compared are the losses, the masked-LM logits and the gradient of every parameter; and, where ``auto`` takes a fused
attention kernel, bfloat16 with that kernel as well.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model.attention_kernels import fused_kernel
from bert_jax.model.config import BertConfig
from bert_jax.tasks.task import Task
from experiments.benchmark_step import Setting, make_task, synthetic_batch
from experiments.gpu.plan import Plan

# bfloat16 keeps 8 bits: each rounding is off by at most 0.4 %. Limits are some times what 2 layers of 128 showed on a
# CPU.
LIMITS = {
    "masked-LM loss, relative difference": 5e-3,
    "next-sentence loss, difference in nats": 2e-2,
    "logits, largest difference in their standard deviations": 0.25,
    "whole gradient, 1 - cosine": 1e-3,
    "worst array's gradient, 1 - cosine": 2e-2,
}
# Arrays with less of the gradient's norm than this are left out one by one: a key's bias, say, has none but rounding.
COUNTED_SHARE = 1e-3


def compare(plan: Plan) -> dict[str, Any]:
    """{"checks": [{"what", "name", "value", "limit", "passed"}], "kernel": what auto runs by, "losses": {...}}."""
    case = plan.correctness
    setting = Setting(case.size, case.seq, case.batches[0], vocab_size=plan.vocab_size)
    config = BertConfig.of_size(
        case.size, vocab_size=plan.vocab_size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    task = make_task(config)
    params = jax.jit(task.init)(jax.random.key(0))
    batch = {name: jnp.asarray(value) for name, value in synthetic_batch(setting).items()}
    batch = jax.jit(task.prepare)(jax.random.key(1), batch)
    with jax.default_matmul_precision("highest"):
        reference = evaluate(task, params, batch)
    half = config.replace(dtype="bfloat16")
    compared = {"bfloat16": evaluate(make_task(half), params, batch)}
    kernel = fused_kernel(jax.default_backend(), case.seq, "bidirectional", False)
    if not kernel.startswith("xla"):
        fused = make_task(half.replace(attention_implementation="auto"))
        compared[f"bfloat16, attention by {kernel}"] = evaluate(fused, params, batch)
    checks = [check for what, found in compared.items() for check in checks_of(what, reference, found)]
    losses = {name: found["losses"] for name, found in {"float32": reference, **compared}.items()}
    return {"checks": checks, "kernel": kernel, "losses": losses}


def evaluate(task: Task, params: Any, batch: dict[str, jax.Array]) -> dict[str, Any]:
    """Losses in nats, masked-LM logits of the true vocabulary, and gradients of the summed losses, on the host."""

    def objective(params: Any) -> tuple[jax.Array, Any]:
        logits = task.forward(params, batch, None)
        figures = task.figures(logits, batch)
        losses = {name: figures[name][0] / figures[name][1] for name in task.objective}
        return sum(losses.values(), jnp.zeros((), jnp.float32)), (losses, logits[0])

    (_, (losses, logits)), gradients = jax.jit(jax.value_and_grad(objective, has_aux=True))(params)
    assert isinstance(task.model, BertConfig)
    return {
        "losses": {name: float(value) for name, value in losses.items()},
        "logits": np.asarray(logits[..., : task.model.vocab_size]),
        "gradients": [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(gradients)],
    }


def checks_of(what: str, reference: dict[str, Any], found: dict[str, Any]) -> list[dict[str, Any]]:
    """Each value of ``LIMITS`` with its limit; what is not finite never passes."""
    mlm, nsp = (abs(found["losses"][name] - reference["losses"][name]) for name in ("mlm_loss", "nsp_loss"))
    norms = [float(np.linalg.norm(leaf)) for leaf in reference["gradients"]]
    counted = [norm > COUNTED_SHARE * float(np.linalg.norm(norms)) for norm in norms]
    pairs = list(zip(reference["gradients"], found["gradients"], strict=True))
    values = (
        mlm / reference["losses"]["mlm_loss"],
        nsp,
        float(np.abs(found["logits"] - reference["logits"]).max() / reference["logits"].std()),
        1 - _cosine(*(np.concatenate(side) for side in zip(*pairs, strict=True))),
        max(1 - _cosine(*pair) for pair, counts in zip(pairs, counted, strict=True) if counts),
    )
    return [
        {"what": what, "name": name, "value": value, "limit": limit, "passed": bool(value <= limit)}
        for (name, limit), value in zip(LIMITS.items(), values, strict=True)
    ]


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms else float("nan")
