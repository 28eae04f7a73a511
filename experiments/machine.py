"""What a measurement ran on, and how fast that multiplies matrices."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.training.workdir import processor

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "tokenizers", "torch", "transformers", "datasets")


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """Processor, cores, memory in GB, system, Python and package versions."""
    return {
        "processor": processor(),
        "cores": available_cores(),
        "memory_gb": _memory_gb(),
        "devices": [device.device_kind for device in jax.devices()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name)) is not None},
    }


def matmul_speeds(shapes: Iterable[tuple[int, int, int]], repeats: int = 3, dtype: str = "float32") -> dict[str, float]:
    """GFLOP/s of [m, k] @ [k, n] for each (m, k, n), by JAX in ``dtype`` and by numpy in float32; the best of the
    repeats, since only that comes near what the machine can do."""
    speeds: dict[str, float] = {}
    for m, k, n in shapes:
        generator = np.random.default_rng(0)
        a = generator.standard_normal((m, k), np.float32)
        b = generator.standard_normal((k, n), np.float32)
        on_device = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
        speeds[f"jax {m}x{k}x{n}"] = 2e-9 * m * k * n / _best(lambda ab=on_device: _product(*ab), repeats)
        if dtype == "float32":
            speeds[f"numpy {m}x{k}x{n}"] = 2e-9 * m * k * n / _best(lambda a=a, b=b: a @ b, repeats)
    return speeds


@jax.jit
def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return a @ b


def _best(function: Callable[[], Any], repeats: int) -> float:
    jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
