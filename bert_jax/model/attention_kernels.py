"""Fused attention for accelerators: Pallas kernels that JAX ships, behind the arguments of `attention`.

They never form the probabilities, so they know no dropout on them; `fused_kernel` tells what can run where.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int

# (query, key, value, sequence ids) -> output, all of one device
Kernel = Callable[[Array, Array, Array, Array], Array]
# Both kernels work on blocks of this many tokens.
BLOCK = 128


def fused_kernel(platform: str, length: int, direction: str, dropout: bool) -> str:
    """The kernel that can take such a call: "splash", "triton", or "xla: why none of them"."""
    if dropout:
        return "xla: fused kernels have no dropout on attention probabilities"
    if platform not in ("tpu", "gpu"):
        return f"xla: there is no fused kernel for {platform}"
    if length % BLOCK:
        return f"xla: {length} tokens are not a multiple of {BLOCK}"
    if direction == "right_to_left":
        return "xla: fused kernels have no right-to-left mask"
    return "splash" if platform == "tpu" else "triton"


def fused_attention(
    query: Float[Array, "r t n h"],
    key: Float[Array, "r t n h"],
    value: Float[Array, "r t n h"],
    sequence_ids: Int[Array, "r t"] | None,
    *,
    kernel: str,
    direction: str,
    interpret: bool = False,
) -> Float[Array, "r t n h"]:
    """`attention` by the named kernel. `interpret` runs it step by step on any machine, for tests.

    The compiler cannot partition a kernel: under a mesh it runs in a `shard_map`, rows over the axes "data" and
    "fsdp", heads over "tensor".
    """
    if sequence_ids is None:
        sequence_ids = jnp.ones(query.shape[:2], jnp.int32)
    run: Kernel = partial(_KERNELS[kernel], causal=direction == "left_to_right", interpret=interpret)
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty:
        rows = tuple(name for name in ("data", "fsdp") if name in mesh.axis_names)
        heads = "tensor" if "tensor" in mesh.axis_names else None
        tensors = PartitionSpec(rows, None, heads, None)
        run = jax.shard_map(
            run, in_specs=(tensors, tensors, tensors, PartitionSpec(rows)), out_specs=tensors, check_vma=False
        )
    return run(query, key, value, sequence_ids)


def _splash(query: Array, key: Array, value: Array, sequence_ids: Array, *, causal: bool, interpret: bool) -> Array:
    """TPU: splash attention, one call a row, heads first."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

    length, heads = query.shape[1:3]
    mask = splash_attention_mask.CausalMask if causal else splash_attention_mask.FullMask
    kernel = splash_attention_kernel.make_splash_mha(
        splash_attention_mask.MultiHeadMask([mask((length, length)) for _ in range(heads)]),
        head_shards=1,
        q_seq_shards=1,
        interpret=interpret,
    )
    segments = splash_attention_kernel.SegmentIds(q=sequence_ids, kv=sequence_ids)
    heads_first = [jnp.swapaxes(x, 1, 2) for x in (query * query.shape[-1] ** -0.5, key, value)]
    output: Any = jax.vmap(kernel)(*heads_first, segments)
    return jnp.swapaxes(output, 1, 2).astype(query.dtype)


def _triton(query: Array, key: Array, value: Array, sequence_ids: Array, *, causal: bool, interpret: bool) -> Array:
    """NVIDIA: the Pallas-Triton multi-head attention."""
    with warnings.catch_warnings():
        # JAX 0.12 still ships it but points to tokamax, whose interface is in motion and has no packed sequences.
        warnings.filterwarnings("ignore", "jax.experimental.pallas.ops.gpu.attention is deprecated", DeprecationWarning)
        from jax.experimental.pallas.ops.gpu.attention import mha

    scale = query.shape[-1] ** -0.5
    return mha(query, key, value, sequence_ids, sm_scale=scale, causal=causal, interpret=interpret)


_KERNELS = {"splash": _splash, "triton": _triton}
