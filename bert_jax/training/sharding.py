"""The device mesh and where every array lies on it. One device is the 1 x 1 x 1 mesh; nothing else changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax.training.rules import Rules, apply_rules

AXES = ("data", "fsdp", "tensor")
BATCH = PartitionSpec(("data", "fsdp"))

# Tables are cut along the vocabulary, never along the hidden axis: a lookup then needs no resharding of its
# result. Matrices go over `fsdp` on the side that is summed first and over `tensor` on heads and feed-forward.
PARAMETER_RULES: Rules = (
    (r"embeddings/word/embedding$", PartitionSpec(("tensor", "fsdp"), None)),
    (r"mlm_head/bias$", PartitionSpec(("tensor", "fsdp"))),
    (r"attention/(query|key|value)/kernel$", PartitionSpec("fsdp", "tensor")),
    (r"attention/(query|key|value)/bias$", PartitionSpec("tensor")),
    (r"attention/output/kernel$", PartitionSpec("tensor", "fsdp")),
    (r"feed_forward/intermediate/kernel$", PartitionSpec("fsdp", "tensor")),
    (r"feed_forward/intermediate/bias$", PartitionSpec("tensor")),
    (r"feed_forward/output/kernel$", PartitionSpec("tensor", "fsdp")),
    (r".*", PartitionSpec()),
)


@dataclass(frozen=True)
class MeshShape:
    """Devices along each axis; -1 on one axis takes all that the others leave."""

    data: int = -1
    fsdp: int = 1
    tensor: int = 1


def make_mesh(shape: MeshShape, devices: list[Any] | None = None) -> Mesh:
    """The mesh with axes ``data``, ``fsdp`` and ``tensor`` over ``devices`` (default: all).

    A mesh whose every axis is given may leave devices of a single process unused.

    Raises:
        ValueError: the axes do not fit the number of devices.
    """
    devices = list(jax.devices()) if devices is None else devices
    sizes = [shape.data, shape.fsdp, shape.tensor]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = len(devices) // max(1, math.prod(s for s in sizes if s != -1))
        fits = math.prod(sizes) == len(devices)
    else:
        fits = math.prod(sizes) == len(devices) or (math.prod(sizes) < len(devices) and jax.process_count() == 1)
    if min(sizes) < 1 or not fits:
        raise ValueError(
            f"mesh data={shape.data} fsdp={shape.fsdp} tensor={shape.tensor} does not fit {len(devices)} devices;"
            " set the axes of config.mesh so that their product is the number of devices (-1 = the rest)"
        )
    # Auto, not the default Explicit: the compiler propagates, our constraints are hints and not assertions.
    used = devices[: math.prod(sizes)]
    return jax.make_mesh(tuple(sizes), AXES, axis_types=(AxisType.Auto,) * 3, devices=used)


def state_shardings(mesh: Mesh, state: Any) -> Any:
    """Shardings for a train state (or any tree whose paths end in parameter paths); scalars are replicated."""

    def sharding(spec: PartitionSpec, leaf: Any) -> NamedSharding:
        return NamedSharding(mesh, spec if np.ndim(leaf) == len(spec) else PartitionSpec())

    specs = apply_rules(PARAMETER_RULES, state, "sharding")
    return jax.tree.map(sharding, specs, state, is_leaf=lambda x: isinstance(x, PartitionSpec))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over ``data`` and ``fsdp``; every other axis whole."""
    return NamedSharding(mesh, BATCH)


def row_devices(mesh: Mesh) -> int:
    """Over how many devices the rows of a batch go: ``data`` x ``fsdp``."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def put_whole_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """A batch that every process has whole, as global arrays whose rows keep their order on any mesh."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_callback(value.shape, sharding, value.__getitem__) for name, value in batch.items()
    }


def local_parts(mesh: Mesh) -> tuple[tuple[int, ...], int]:
    """Which parts of a batch's rows this process's devices hold, and of how many equal parts: (0,), 2 of half.

    Processes that share the rows' devices along ``tensor`` hold the same parts.
    """
    rows = mesh.devices.reshape(row_devices(mesh), -1)
    here = [row for row, devices in enumerate(rows) if any(d.process_index == jax.process_index() for d in devices)]
    count = len(here)
    if len(rows) % count == 0 and here == list(range(here[0], here[0] + count)) and here[0] % count == 0:
        return (here[0] // count,), len(rows) // count
    return tuple(here), len(rows)


def put_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """The rows of this process's ``local_parts``, in their order, as global arrays."""
    sharding, (parts, of) = batch_sharding(mesh), local_parts(mesh)
    return {
        name: jax.make_array_from_process_local_data(sharding, value, (len(value) // len(parts) * of, *value.shape[1:]))
        for name, value in batch.items()
    }
