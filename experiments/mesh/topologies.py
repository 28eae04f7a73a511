"""Accelerators that are not here: their stated figures, and devices to compile for.

A name is a chip and how many: ``v5e-256``, ``v6e-8``, ``h100-8``; ``v5p-16`` counts cores, as Google's names do, and is
eight chips. TPU programs come from the TPU compiler (``pip install 'jax[tpu]'``), with no chip present. Everything
else, and TPUs where it is missing, is simulated: the CPU compiler, on as many devices as the name says.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from typing import Any

TPU_COMPILER, SIMULATED = "TPU compiler", "simulated on CPU devices"
MAX_SIMULATED = 4096


@dataclass(frozen=True)
class Chip:
    """What the maker states of one device.

    Attributes:
        flops: bfloat16 matrix products, 1/s, without sparsity. memory_bytes, memory_speed: of its main memory, bytes/s.
        link_speed: what it can send to others of its slice or box at once, over all links, bytes/s.
        platform: whose compiler makes its programs.
        cores: by how many a name counts one chip.
    """

    flops: float
    memory_bytes: float
    memory_speed: float
    link_speed: float
    platform: str
    cores: int = 1


# Google's pages on each TPU version (interconnect of a chip, both ways together: 400, 1,200, 800 GB/s); NVIDIA's data
# sheets of the SXM modules (NVLink, both ways together: 600, 900 GB/s). A device can send half of that, if it uses all
# its links at once, which on a slice without wraparound (v5e-8 is 2 x 4) it cannot.
CHIPS = {
    "v5e": Chip(197e12, 16 * 2**30, 819e9, 400e9 / 2, "tpu"),
    "v5p": Chip(459e12, 95 * 2**30, 2765e9, 1200e9 / 2, "tpu", cores=2),
    "v6e": Chip(918e12, 32 * 2**30, 1640e9, 800e9 / 2, "tpu"),
    "a100": Chip(312e12, 80 * 2**30, 2039e9, 600e9 / 2, "cuda"),
    "h100": Chip(989e12, 80 * 2**30, 3352e9, 900e9 / 2, "cuda"),
    "h200": Chip(989e12, 140 * 2**30, 4800e9, 900e9 / 2, "cuda"),
}
GPUS_IN_A_BOX = 8  # beyond them NVLink does not reach
# Slices that are offered.
_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBES = {4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8"}
_SHAPES = {"v5e": _FLAT, "v5p": _CUBES, "v6e": _FLAT}


@dataclass(frozen=True)
class Topology:
    """``count`` devices of one chip; ``compiler``: ``TPU_COMPILER`` or ``SIMULATED``."""

    name: str
    chip: Chip
    count: int
    compiler: str

    @classmethod
    def of(cls, name: str, simulate: bool = False) -> Topology:
        """By name; before JAX starts. ``simulate``: on CPU devices although there is a compiler.

        Raises:
            ValueError: no such chip, or no such slice of it.
        """
        kind, _, number = name.partition("-")
        if kind not in CHIPS or not number.isdecimal() or int(number) < 1:
            known = ", ".join(CHIPS)
            raise ValueError(f"--topology={name!r} is unknown; give a chip ({known}) and how many: v5e-8, h100-8")
        chip, count = CHIPS[kind], int(number) // CHIPS[kind].cores
        sizes = _SHAPES.get(kind)
        if sizes is not None and (count not in sizes or int(number) % chip.cores):
            offered = ", ".join(f"{kind}-{size * chip.cores}" for size in sizes)
            raise ValueError(f"--topology={name!r} is no slice of this chip; there are {offered}")
        if count > MAX_SIMULATED:
            raise ValueError(f"--topology={name!r} has more than {MAX_SIMULATED} devices; give fewer")
        has_compiler = chip.platform == "tpu" and importlib.util.find_spec("libtpu") is not None
        return cls(name, chip, count, TPU_COMPILER if has_compiler and not simulate else SIMULATED)

    def prepare(self) -> None:
        """Sets what JAX reads when it starts: no accelerator of this machine, as many CPU devices as are simulated."""
        os.environ["JAX_PLATFORMS"] = "cpu"
        if self.compiler == SIMULATED:
            flag = f"--xla_force_host_platform_device_count={self.count}"
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
            return
        # Otherwise the TPU's library looks for a machine that has one.
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
        os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # no chip is held: others may compile meanwhile
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # without a device JAX cannot read what it has kept
        os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
        os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")

    def devices(self) -> list[Any]:
        """What a mesh is made of; programs can be compiled for them, not run (on simulated ones they could)."""
        import jax
        from jax.experimental import topologies

        if self.compiler == SIMULATED:
            return list(jax.devices("cpu"))
        kind = self.name.partition("-")[0]
        shape = _SHAPES[kind][self.count]
        host = {"chips_per_host_bounds": [1, 1, 1]} if self.count == 1 else {}
        return list(topologies.get_topology_desc(platform="tpu", topology_name=f"{kind}:{shape}", **host).devices)
