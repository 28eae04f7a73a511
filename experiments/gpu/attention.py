"""Attention alone, both passes in bfloat16: our einsums, the fused kernel of ``auto``, cuDNN's flash attention.

cuDNN's is not one of ``attention_implementation``: JAX's public function for it has no dropout and takes packed
sequences as a mask of [t, t]. It is measured here to know what it would bring; with dropout by JAX's private function,
whose seed is fixed when it is compiled.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.model.attention import attention, attention_mask
from bert_jax.model.attention_kernels import fused_kernel
from experiments.benchmark_step import seconds_of_rounds
from experiments.gpu.plan import Plan, Rows

HEAD_SIZE = 64
DROPOUT = 0.1
SEQUENCES_A_ROW = 5  # of packed rows, in the mean

Attend = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def measure(plan: Plan, save: Callable[[dict[str, Any]], None]) -> None:
    """For each of the plan's rows and each implementation milliseconds of both passes, TFLOP/s needed, and the largest
    difference of the output from float32 in its standard deviations; {"failed": why} where one cannot run."""
    cases: list[dict[str, Any]] = []
    for rows in plan.attention:
        arrays, ids = inputs(rows, plan.attention_heads)
        with jax.default_matmul_precision("highest"):
            expected = jax.jit(partial(attention, implementation="xla"))(*arrays, ids)
        half = [array.astype(jnp.bfloat16) for array in arrays]
        case: dict[str, Any] = {"rows": rows._asdict(), "found": {}}
        cases.append(case)
        for name, (attend, exact) in implementations(rows).items():
            case["found"][name] = _measure_one(plan, rows, attend, half, ids, expected if exact else None)
            save({"cases": cases})


def inputs(rows: Rows, heads: int) -> tuple[list[jax.Array], jax.Array]:
    """Random query, key and value [r, t, n, h] in float32, and sequence ids [r, t] without padding."""
    generator = np.random.default_rng(0)
    shape = (rows.rows, rows.seq, heads, HEAD_SIZE)
    arrays = [jnp.asarray(generator.standard_normal(shape, np.float32)) for _ in range(3)]
    starts = generator.random((rows.rows, rows.seq)) < SEQUENCES_A_ROW / rows.seq
    ids = 1 + np.cumsum(starts, axis=1) if rows.packed else np.ones((rows.rows, rows.seq))
    return arrays, jnp.asarray(ids, jnp.int32)


def implementations(rows: Rows) -> dict[str, tuple[Attend, bool]]:
    """Name -> (function, whether it computes the reference's numbers: dropout does not)."""
    key = jax.random.key(0)
    dropped = partial(attention, dropout_rate=DROPOUT, dropout_key=key)
    kernel = fused_kernel(jax.default_backend(), rows.seq, "bidirectional", False)
    chosen: dict[str, tuple[Attend, bool]] = {
        "xla": (attention, True),
        f"xla, dropout {DROPOUT}": (dropped, False),
        f"auto ({kernel})": (partial(attention, implementation="auto"), True),
        "cuDNN": (partial(_cudnn, packed=rows.packed), True),
    }
    if not rows.packed:
        chosen[f"cuDNN, dropout {DROPOUT}"] = (_cudnn_with_dropout, False)
    return chosen


def _cudnn(query: jax.Array, key: jax.Array, value: jax.Array, ids: jax.Array, *, packed: bool) -> jax.Array:
    mask = attention_mask(ids, key.shape[1], "bidirectional") if packed else None
    heads = None if mask is None else mask[:, None]
    return jax.nn.dot_product_attention(query, key, value, mask=heads, implementation="cudnn")


def _cudnn_with_dropout(query: jax.Array, key: jax.Array, value: jax.Array, ids: jax.Array) -> jax.Array:
    from jax._src.cudnn.fused_attention_stablehlo import dot_product_attention

    output: Any = dot_product_attention(query, key, value, scale=HEAD_SIZE**-0.5, dropout_rate=DROPOUT)
    return output


def _measure_one(
    plan: Plan, rows: Rows, attend: Attend, arrays: list[jax.Array], ids: jax.Array, expected: jax.Array | None
) -> dict[str, Any]:
    @jax.jit
    def both(cotangent: jax.Array, *arrays: jax.Array) -> Any:
        output, pull_back = jax.vjp(lambda q, k, v: attend(q, k, v, ids), *arrays)
        return output, pull_back(cotangent)

    def run(count: int) -> float:
        start, result = time.perf_counter(), None
        for _ in range(count):
            result = both(arrays[0], *arrays)
        jax.block_until_ready(result)
        return time.perf_counter() - start

    try:
        output = both(arrays[0], *arrays)[0].astype(jnp.float32)
        seconds = statistics.median(seconds_of_rounds(run, plan.rounds, plan.round_seconds / 5))
    except (RuntimeError, ValueError, TypeError, NotImplementedError, ImportError) as error:
        return {"failed": " ".join(str(error).split())[:200] or type(error).__name__}
    heads = plan.attention_heads
    # Scores and context, 2 a multiply-add; the backward pass needs twice as many.
    flops = 3 * 4 * rows.rows * heads * rows.seq**2 * HEAD_SIZE
    found: dict[str, Any] = {"milliseconds": 1000 * seconds, "tflops": flops / seconds / 1e12}
    if expected is not None:
        found["difference"] = float(jnp.abs(output - expected).max() / expected.std())
    return found
