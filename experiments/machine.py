"""What a measurement ran on, and how fast that multiplies matrices."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.training.workdir import processor

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "tokenizers", "torch", "transformers", "datasets")
CUDA_PACKAGES = ("jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "triton")


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
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of the packages that decide what is measured, those installed."""
    return {name: version for name in PACKAGES + CUDA_PACKAGES if (version := version_of(name)) is not None}


def card() -> dict[str, str] | None:
    """Name, driver, memory and newest CUDA of the first NVIDIA GPU's driver, by ``nvidia-smi``; None without one."""
    if shutil.which("nvidia-smi") is None:
        return None
    rows = _told("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader").splitlines()
    if not rows:
        return None
    found = dict(zip(("name", "driver", "memory"), rows[0].split(", "), strict=True))
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", _told("nvidia-smi"))
    return found | ({"cuda": cuda[1]} if cuda else {})


def matmul_speeds(
    shapes: Iterable[tuple[int, int, int]], repeats: int = 3, dtype: str = "float32", queued: int = 1
) -> dict[str, float]:
    """GFLOP/s of [m, k] @ [k, n] for each (m, k, n), by JAX in ``dtype`` and by numpy in float32; the best of the
    repeats, since only that comes near what the machine can do.

    ``queued`` products are sent off before the first is waited for: on a GPU sending one takes a part of its time.
    """
    speeds: dict[str, float] = {}
    for m, k, n in shapes:
        generator = np.random.default_rng(0)
        a = generator.standard_normal((m, k), np.float32)
        b = generator.standard_normal((k, n), np.float32)
        on_device = jnp.asarray(a, dtype), jnp.asarray(b, dtype)
        seconds = _best(lambda ab=on_device: [_product(*ab) for _ in range(queued)], repeats) / queued
        speeds[f"jax {m}x{k}x{n}"] = 2e-9 * m * k * n / seconds
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


def _told(*command: str) -> str:
    """What a command prints; nothing where it fails."""
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return told.stdout if told.returncode == 0 else ""


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None


def version_of(name: str) -> str | None:
    """Of an installed package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
