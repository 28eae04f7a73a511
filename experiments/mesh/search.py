"""Tries meshes for a config on a topology: the costs of each, the cheapest, the largest batch that fits on that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.corpus import write_corpus
from bert_jax.training.settings import Config, Phase, plain, plan, read_config
from bert_jax.training.sharding import MeshShape, make_mesh
from experiments.benchmark_step import SPECIAL_TOKENS, whole_words
from experiments.machine import version_of
from experiments.mesh.costs import Costs, step_costs
from experiments.mesh.topologies import SIMULATED, Topology

# Of a simulated device's memory, for its runtime and for what lies badly; a TPU's compiler says itself what fits.
USABLE = 0.9
# How full the largest batch must be, and how often it is looked for.
FULL, SEARCH_STEPS = 0.92, 5
PACKAGES = ("jax", "jaxlib", "libtpu", "flax")
Measure = Callable[[MeshShape, float], Costs]  # of the mesh and so many times the config's batch


def check(
    config: Config,
    topology: Topology,
    meshes: str | None,
    random_words: tuple[Path, int],
    *,
    largest: bool,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Everything found, as JSON values.

    Args:
        meshes: as ``mesh_shapes`` reads them.
        random_words: where to make a corpus, and of how many word pieces, if the config has none.
        largest: whether to look for the largest batch.
        say: is told of each step compiled.

    Raises:
        ValueError: what ``read_config`` refuses; a phase whose batch divides over none of the meshes.
    """
    values = plain(config)
    if values.get("task") == "pretraining" and not values.get("corpus"):
        values["corpus"] = write_random_corpus(*random_words)
    settings, task = read_config(values)
    if task.model.attention_implementation != "xla":
        raise ValueError("attention_implementation='auto' chooses by the devices that are here; check 'xla'")
    phases, devices = plan(settings, task), topology.devices()

    def measure(phase: Phase, shape: MeshShape, scale: float) -> Costs:
        costs = step_costs(settings, phases, phase, task, make_mesh(shape, devices), scale)
        if topology.compiler == SIMULATED and costs.memory_bytes is not None:
            # A CPU's compiler fuses otherwise: its memory traffic, ten times a TPU's, says nothing of a GPU's.
            fits = costs.memory_bytes <= USABLE * topology.chip.memory_bytes
            costs = replace(costs, fits=fits, traffic_bytes=0.0)
        room = "does not fit" if not costs.fits else f"{(costs.memory_bytes or 0) / 2**30:.2f} GiB"
        say(f"{costs.mesh_name}, batch {costs.batch_size:,}: {room}, compiled in {costs.compile_seconds:.0f} s")
        return costs

    shapes = mesh_shapes(meshes, topology.count)
    model = {name: getattr(task.model, name) for name in ("num_hidden_layers", "hidden_size", "dtype")}
    return {
        "task": settings.task,
        "model": model,
        "topology": topology.name,
        "compiler": topology.compiler,
        "date": date.today().isoformat(),
        "versions": {name: version for name in PACKAGES if (version := version_of(name))},
        "phases": [_check_phase(phase, shapes, partial(measure, phase), topology, largest) for phase in phases],
    }


def _check_phase(
    phase: Phase, shapes: list[MeshShape], measure: Measure, topology: Topology, largest: bool
) -> dict[str, Any]:
    rows = {shape: shape.data * shape.fsdp * phase.accumulation_steps for shape in shapes}
    tried = [measure(shape, 1.0) for shape in shapes if phase.batch_size % rows[shape] == 0]
    if not tried:
        raise ValueError(
            f"batch_size={phase.batch_size} divides over none of the meshes; make it a multiple of"
            f" {min(rows.values())}, or give --meshes with fewer devices along data and fsdp"
        )
    fitting = [one for one in tried if one.fits]
    cheapest = min(fitting, key=lambda one: one.seconds(topology.chip)[1]) if fitting else None
    limit = topology.chip.memory_bytes * (USABLE if topology.compiler == SIMULATED else 1)
    most = largest_batch(measure, cheapest, limit, phase.accumulation_steps) if largest and cheapest else None
    return {
        "batch_size": phase.batch_size,
        "length": phase.max_seq_length,
        "accumulation_steps": phase.accumulation_steps,
        "tried": [_values(one, topology) for one in tried],
        "cheapest": None if cheapest is None else tried.index(cheapest),
        "largest": None if most is None else _values(most, topology),
    }


def mesh_shapes(meshes: str | None, count: int) -> list[MeshShape]:
    """Those of ``'data=8 data=2,fsdp=4'``, or all devices along data, all along fsdp, and two along tensor."""
    if meshes is None:
        usual = [(count, 1, 1), (1, count, 1), (count // 2, 1, 2)]
        return [MeshShape(*sizes) for sizes in dict.fromkeys(usual) if sizes[0] * sizes[1] * sizes[2] == count]
    shapes = []
    for part in meshes.split():
        try:
            sizes = {name: int(size) for name, size in (axis.split("=") for axis in part.split(","))}
            if min(sizes.values()) < 1:
                raise ValueError
            shapes.append(MeshShape(**({"data": 1} | sizes)))
        except (TypeError, ValueError):
            raise ValueError(
                f"--meshes has {part!r}; write for example data=4,fsdp=2 (axes: data, fsdp, tensor)"
            ) from None
    return shapes


def largest_batch(measure: Measure, start: Costs, limit: float, multiple: int = 1) -> Costs:
    """The costs at about the largest batch that fits the mesh of ``start``.

    Memory grows nearly evenly with the rows of a device: a line through two batches tells where it reaches ``limit``
    (bytes). What it tells is compiled, and becomes one of the two where it fits; where it does not, the next is half
    way between.

    Args:
        multiple: rows of a device divide by it (accumulation steps).
    """
    mesh, rows = MeshShape(**start.mesh), start.device_rows
    low, high, too_many = start, start, None
    wanted = max(4 * rows, 32)
    for _ in range(SEARCH_STEPS):
        step = multiple * (8 if wanted > 64 * multiple else 1)
        wanted -= wanted % step
        if wanted <= high.device_rows or wanted == too_many:
            break
        found = measure(mesh, wanted / rows)
        if found.fits:
            low, high = high, found
        else:
            too_many = found.device_rows
        assert low.memory_bytes is not None and high.memory_bytes is not None  # they fit
        if high.memory_bytes >= FULL * limit:
            break
        if low is high:
            wanted = (rows + (too_many or rows)) // 2
            continue
        a_row = (high.memory_bytes - low.memory_bytes) / (high.device_rows - low.device_rows)
        wanted = int(high.device_rows + (0.97 * limit - high.memory_bytes) / max(a_row, 1.0))
        if too_many is not None and wanted >= too_many:
            wanted = (high.device_rows + too_many) // 2
    return high


def write_random_corpus(directory: Path, vocab_size: int) -> str:
    """A small corpus of random words under a vocabulary of this size: what the words are changes no shape."""
    generator = np.random.default_rng(0)
    documents = generator.integers(len(SPECIAL_TOKENS), vocab_size, (256, 40, 20)).tolist()
    write_corpus(directory, documents, documents[:8], vocab_size=vocab_size)
    whole_words(vocab_size).save(directory / "tokenizer")
    return str(directory)


def _values(costs: Costs, topology: Topology) -> dict[str, Any]:
    """With the derived figures, for whoever reads the file."""
    values = asdict(costs) | {"mesh_name": costs.mesh_name, "device_rows": costs.device_rows}
    return values | ({"seconds": costs.seconds(topology.chip), "mfu": costs.mfu(topology.chip)} if costs.fits else {})
