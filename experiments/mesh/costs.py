"""What a training step costs on a mesh whose devices need not exist: memory, arithmetic, traffic, exchanges, time.

The step is the one that training compiles (``training.train.make_step``), for the shapes of the config's own batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax.tasks.task import Batch, Task
from bert_jax.training.settings import Phase, TrainSettings
from bert_jax.training.sharding import batch_sharding, row_devices
from bert_jax.training.train import make_step, open_stream
from experiments.mesh.compiled_program import Program
from experiments.mesh.topologies import Chip

ARITHMETIC_WITH_REMAT = 4 / 3  # forward once more


@dataclass(frozen=True)
class Costs:
    """Of one step on one mesh; what is of a device is of any of them, all do the same.

    Attributes:
        batch_size: global, in examples. rows, length: of the batch, globally.
        fits: whether the compiler finds room; where it does not, only ``memory_bytes`` may be known.
        memory_bytes: the most that a device needs at once, parameters and moments among it.
        needed_flops: of all devices: the matrix products of forward and backward, nothing computed twice.
        device_flops: of one device, with what is recomputed (a third more; heads and embeddings, which are not, count
            as well).
        traffic_bytes: to and from a device's main memory. sent_bytes: by one device to others.
        compile_seconds: on this machine.
    """

    mesh: dict[str, int]
    remat: bool
    batch_size: int
    rows: int
    length: int
    fits: bool
    memory_bytes: float | None = None
    needed_flops: float = 0.0
    device_flops: float = 0.0
    traffic_bytes: float = 0.0
    sent_bytes: float = 0.0
    compile_seconds: float = 0.0

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())

    @property
    def device_rows(self) -> int:
        """Of the batch, on one device, in all its accumulation steps."""
        return self.rows // (self.mesh["data"] * self.mesh["fsdp"])

    @property
    def mesh_name(self) -> str:
        return " x ".join(f"{name} {size}" for name, size in self.mesh.items() if size > 1) or "one device"

    def seconds(self, chip: Chip) -> tuple[float, float]:
        """An estimate at the chip's stated speeds: with arithmetic, traffic and exchanges all at once, and one after
        the other. Neither knows of any inefficiency."""
        parts = [
            self.device_flops / chip.flops,
            self.traffic_bytes / chip.memory_speed,
            self.sent_bytes / chip.link_speed,
        ]
        return max(parts), sum(parts)

    def mfu(self, chip: Chip) -> tuple[float, float]:
        """Needed arithmetic over what the devices could do in ``seconds``."""
        best, worst = (self.needed_flops / (self.devices * chip.flops * s) for s in self.seconds(chip))
        return best, worst


def step_costs(
    settings: TrainSettings, phases: tuple[Phase, ...], phase: Phase, task: Task, mesh: Mesh, scale: float = 1.0
) -> Costs:
    """Compiles the step of a phase with ``scale`` times its batch.

    Raises:
        ValueError: the batch does not divide over the mesh.
    """
    real = open_stream(task, phase, mesh).batch(0)
    batch = batch_shapes(real, mesh, phase.accumulation_steps, scale)
    rows, length = batch["input_ids"].shape
    size = round(phase.batch_size * rows / len(real["input_ids"]))
    costs = Costs({str(name): n for name, n in mesh.shape.items()}, task.model.remat, size, rows, length, fits=False)
    start = time.perf_counter()
    with jax.set_mesh(mesh):
        step, _, like = make_step(settings, phases, task, mesh)
        try:
            compiled = step.lower(like, batch, phase.accumulation_steps).compile()  # pyright: ignore[reportFunctionMemberAccess]
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            return replace(costs, compile_seconds=time.perf_counter() - start)
        needed = needed_flops(task, like.params, batch)
    program = Program.read(compiled.as_text())
    return replace(
        costs,
        fits=True,
        memory_bytes=memory_bytes(compiled.memory_analysis(), mesh.devices.flat[0].platform),
        needed_flops=needed,
        device_flops=needed * (ARITHMETIC_WITH_REMAT if task.model.remat else 1) / mesh.size,
        traffic_bytes=program.memory_traffic(),
        sent_bytes=sum(one.sent_bytes for one in program.collectives()),
        compile_seconds=time.perf_counter() - start,
    )


def batch_shapes(batch: Batch, mesh: Mesh, accumulation_steps: int = 1, scale: float = 1.0) -> Batch:
    """The shapes of a batch with ``scale`` times its rows, as many as divide over the mesh."""
    sharding, multiple = batch_sharding(mesh), row_devices(mesh) * accumulation_steps

    def shape(value: Any) -> jax.ShapeDtypeStruct:
        rows = max(multiple, round(len(value) * scale) // multiple * multiple)
        return jax.ShapeDtypeStruct((rows, *value.shape[1:]), value.dtype, sharding=sharding)

    return {name: shape(value) for name, value in batch.items()}


def memory_bytes(analysis: Any, platform: str) -> float:
    """Of ``compiled.memory_analysis()``: the compiler's own peak; that of CPU has none, so all that is ever held."""
    if platform != "cpu":
        return float(analysis.peak_memory_in_bytes)
    held = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes
    return float(held + analysis.output_size_in_bytes - analysis.alias_size_in_bytes)


def needed_flops(task: Task, params: Any, batch: Batch) -> float:
    """Three times the matrix products of a forward pass, which forward and backward need; 2 a multiply-add."""

    def forward(params: Any, batch: Batch) -> Any:
        key = jax.random.key(0)
        return task.forward(params, task.prepare(key, batch), key)

    return 3.0 * _matrix_flops(jax.make_jaxpr(forward)(params, batch).jaxpr)


def _matrix_flops(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += times * sum(_matrix_flops(inner) for inner in _inner(equation.params.values()))
    return total


def _inner(values: Iterable[Any]) -> list[Any]:
    found = []
    for value in values:
        if isinstance(value, (tuple, list)):
            found += _inner(value)
        elif hasattr(value, "jaxpr"):  # closed
            found.append(value.jaxpr)
        elif hasattr(value, "eqns"):
            found.append(value)
    return found
