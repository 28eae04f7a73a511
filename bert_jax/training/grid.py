"""Several runs of one shape as one program: the learning rates and seeds of a grid as a leading axis of the state.

Each member has its own data order, dropout and fresh parameters, its own workdir, log and checkpoints: what it would
have alone, to rounding. The members' axis ``k`` goes over the devices, as far as it divides.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax.tasks.task import Batch, Params, Stream, Task
from bert_jax.training.checkpoint import Checkpoints, newest_step
from bert_jax.training.evaluate import make_evaluate, on_all_devices
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.settings import (
    Config,
    Phase,
    TrainSettings,
    differences,
    learning_rate_fraction,
    plain,
    plan,
    read_config,
    without_fields,
)
from bert_jax.training.sharding import AXES, MeshShape
from bert_jax.training.step import TrainState, init_state, settings_of_state, train_step
from bert_jax.training.stop_signals import StopSignals
from bert_jax.training.stored_run import working_copy
from bert_jax.training.trace import Trace
from bert_jax.training.train import (
    Program,
    Run,
    Step,
    check,
    held_out,
    hyperparameters,
    initial_params,
    open_log,
    take_steps,
)
from bert_jax.training.train import train as train_alone
from bert_jax.training.workdir import prepared_workdir

MEMBER = "member"
# What differs between the members: arrays in the state, not part of the compiled program.
VARIED = ("seed", "optimizer.learning_rate", "optimizer.weight_decay")


def train_grid(configs: Sequence[Config], workdirs: Sequence[str | Path]) -> list[dict[str, float]]:
    """``train`` for each config and its workdir, as many as fit together as one program; the results in their order.

    Together are runs whose configs differ in nothing but ``VARIED`` and that stand at the same step. Runs that fit no
    other, and all where there is a reason (a mesh that cuts a model, several processes), are trained alone, one after
    another, which is said on standard error.

    Raises:
        ValueError: no config, not a workdir for each, or what ``train`` raises.
        FloatingPointError: the loss of a member is not finite; the others have their last checkpoints.
        SystemExit: as ``train``, once every member is saved.
    """
    if not configs or len(configs) != len(workdirs):
        raise ValueError(f"{len(configs)} configs and {len(workdirs)} workdirs; give at least one, and one for each")
    results: list[dict[str, float]] = [{} for _ in configs]
    with ExitStack() as stack:
        directories = [stack.enter_context(working_copy(workdir)) for workdir in workdirs]
        for members in groups(configs, directories):
            chosen = [configs[i] for i in members], [directories[i] for i in members]
            found = _train_together(*chosen) if len(members) > 1 else [train_alone(chosen[0][0], chosen[1][0])]
            for i, result in zip(members, found, strict=True):
                results[i] = result
    return results


def groups(configs: Sequence[Config], directories: Sequence[Path]) -> list[list[int]]:
    """Which members are trained together; who is left alone, and why, goes to standard error."""
    alike: dict[tuple[int, str], list[int]] = {}
    for i, (config, directory) in enumerate(zip(configs, directories, strict=True)):
        alike.setdefault((newest_step(directory), json.dumps(common(config), sort_keys=True)), []).append(i)
    first, result = configs[0], list[list[int]]()
    for (step, _), members in alike.items():
        names = ", ".join(directories[i].name for i in members)
        if len(members) > 1 and (reason := why_alone(configs[members[0]])):
            print(f"grid: {names}: {reason}; the runs are trained one after another", file=sys.stderr)
            result += [[i] for i in members]
            continue
        if result:
            other = differences(common(first), common(configs[members[0]]))
            reason = other[0] if other else f"the step at which it goes on, {step}"
            print(f"grid: {names}: a program of its own, for {reason}", file=sys.stderr)
        result.append(members)
    return result


def why_alone(config: Config) -> str:
    """Why runs of this config cannot share a program; nothing where they can."""
    values = plain(config)
    shape = MeshShape(**(values.get("mesh") or {}))
    if jax.process_count() > 1:
        return f"{jax.process_count()} processes"
    if shape.fsdp > 1 or shape.tensor > 1:
        return f"mesh.fsdp={shape.fsdp} mesh.tensor={shape.tensor} cut one model over devices"
    if any(phase.get("learning_rate") is not None for phase in values.get("phases") or ()):
        return "the phases have learning rates of their own"
    return ""


def common(config: Config) -> dict[str, Any]:
    """The config as JSON values, without what may differ between members."""
    return without_fields(plain(config), VARIED)


def _train_together(configs: Sequence[Config], workdirs: Sequence[Path]) -> list[dict[str, float]]:
    settings, first = read_config(configs[0], workdirs[0])
    members = [with_varied(settings, config) for config in configs]
    tasks = [first.seeded(member.seed) for member in members]
    phases, mesh = plan(settings, first), grid_mesh(len(members), settings.mesh)
    check(settings, first, phases, mesh)
    with ExitStack() as stack:
        for config, workdir, task in zip(configs, workdirs, tasks, strict=True):
            stack.enter_context(prepared_workdir(workdir, config, task))
        checkpoints = [
            stack.enter_context(Checkpoints(workdir, settings.keep_last, first.selection)) for workdir in workdirs
        ]
        stop = stack.enter_context(StopSignals())
        stack.enter_context(jax.set_mesh(mesh))
        state, step_function = begin(members, phases, first, mesh, checkpoints)
        logs = [
            stack.enter_context(open_log(workdir, settings, first, int(state.step[0]), phases, member=number))
            for number, workdir in enumerate(workdirs)
        ]
        print(f"{len(members)} runs in one program, on {mesh.size} device(s)", file=sys.stderr)
        evaluate = evaluation_of_members(first, member_of(state.params, 0))
        runs = [Run(*parts, evaluate) for parts in zip(members, tasks, checkpoints, logs, strict=True)]
        program = Program(state, step_function, partial(stacked_batches, tasks, mesh=mesh), member_of)
        return take_steps(program, runs, phases, stop, Trace(workdirs[0], None))


def with_varied(settings: TrainSettings, config: Config) -> TrainSettings:
    """The settings with a member's own values of ``VARIED``."""
    values = plain(config)
    optimizer = {"learning_rate", "weight_decay"} & (values.get("optimizer") or {}).keys()
    own = replace(settings.optimizer, **{name: values["optimizer"][name] for name in optimizer})
    return replace(settings, seed=values.get("seed", settings.seed), optimizer=own)


def grid_mesh(members: int, shape: MeshShape) -> Mesh:
    """A mesh whose first axis, ``member``, has the most devices that divide the members; the others have one.

    ``shape.data`` limits the devices, -1 takes all.
    """
    devices = jax.devices()
    most = len(devices) if shape.data == -1 else min(shape.data, len(devices))
    count = max(number for number in range(1, most + 1) if members % number == 0)
    axes = (MEMBER, *AXES)
    return jax.make_mesh((count, 1, 1, 1), axes, axis_types=(AxisType.Auto,) * len(axes), devices=devices[:count])


def begin(
    members: Sequence[TrainSettings],
    phases: tuple[Phase, ...],
    task: Task,
    mesh: Mesh,
    checkpoints: Sequence[Checkpoints],
) -> tuple[TrainState, Step]:
    """The stacked state to start from, [k, ...] each, and the compiled step, which donates it."""
    settings = members[0]
    optimizer = make_optimizer(settings.optimizer, jax.eval_shape(lambda: task.init(jax.random.key(0))))
    whole = NamedSharding(mesh, PartitionSpec(MEMBER))
    one_step = partial(
        train_step,
        task=task,
        optimizer=optimizer,
        schedule=partial(learning_rate_fraction, settings=settings, phases=phases),
        skip_nonfinite=settings.skip_nonfinite,
    )

    def grid_step(state: TrainState, batch: Batch, accumulation_steps: int) -> tuple[TrainState, dict[str, Any]]:
        one = partial(one_step, accumulation_steps=accumulation_steps)
        return jax.vmap(one, spmd_axis_name=MEMBER)(state, batch)

    step_function = jax.jit(
        grid_step, static_argnums=2, in_shardings=(whole, whole), out_shardings=(whole, whole), donate_argnums=0
    )
    given = [hyperparameters(member) for member in members]
    values = {name: jnp.asarray([one[name] for one in given], jnp.float32) for name in given[0]}
    seeds = jnp.asarray([member.seed for member in members], jnp.uint32)
    fresh = partial(init_state, task, optimizer)
    alone = NamedSharding(mesh, PartitionSpec())
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=alone),
        jax.eval_shape(partial(fresh, given[0], settings.seed)),
    )
    # One at a time on the devices, which need not hold all of them whole.
    restored = [jax.device_get(state) for one in checkpoints if (state := one.restore(like)) is not None]
    if restored:
        kept = [state.replace(hyperparameters=None, seed=None) for state in restored]
        state = jax.tree.map(lambda *x: jax.device_put(np.stack(x), whole), *kept)
        state = state.replace(**jax.device_put(settings_of_state(values, seeds), whole))
    else:
        state = jax.jit(jax.vmap(fresh), out_shardings=whole)(values, seeds)
        if settings.init_from:
            state = state.replace(params=jax.device_put(begun_from(settings, state, task), whole))
    return state, step_function


def begun_from(settings: TrainSettings, state: TrainState, task: Task) -> Params:
    """The parameters of ``init_from`` for every member; what it lacks is fresh, and each member's own."""
    one = member_of(state.params, 0)
    found = initial_params(settings, one, task)
    return jax.tree.map(
        lambda every, mine, given: every if given is mine else np.broadcast_to(given, every.shape),
        state.params,
        one,
        found,
    )


@jax.jit
def member_of(tree: Any, number: Any) -> Any:
    """What a member would have alone of the state, or of a part of it."""
    return jax.tree.map(lambda x: x[number], tree)


def evaluation_of_members(task: Task, params: Params) -> Callable[..., tuple[dict[str, float], dict[str, Any]]]:
    """``Run.evaluate`` of any member, over all devices: parameters like ``params``, compiled once for all members."""
    mesh, _, shardings = on_all_devices(params)
    evaluate = partial(held_out, make_evaluate(task, mesh, shardings), mesh)

    def evaluate_member(run: Run, params: Params, phase: Phase) -> tuple[dict[str, float], dict[str, Any]]:
        with jax.set_mesh(mesh):
            return evaluate(run, jax.device_put(params, shardings), phase)

    return evaluate_member


def stacked_batches(tasks: Sequence[Task], phase: Phase, mesh: Mesh) -> Callable[[int], tuple[Batch, tuple[int, ...]]]:
    """``step -> (arrays [k, r, ...], the real tokens of each member)``; short ones are filled up with padding rows."""
    streams = [task.stream(phase.batch_size, phase.max_seq_length, phase.accumulation_steps) for task in tasks]
    counts = common_row_counts(streams)
    whole = NamedSharding(mesh, PartitionSpec(MEMBER))

    def batch(step: int) -> tuple[Batch, tuple[int, ...]]:
        needed = max(stream.rows(step) for stream in streams)
        rows = next(count for count in counts if count >= needed)
        each = [stream.batch(step, rows=rows) for stream in streams]
        stacked = {name: jax.device_put(np.stack([one[name] for one in each]), whole) for name in each[0]}
        return stacked, tuple(int(np.count_nonzero(one["sequence_ids"])) for one in each)

    return batch


def common_row_counts(streams: Sequence[Stream]) -> list[int]:
    """As many as the longest list has, each enough for that of every member."""
    menus = [stream.row_counts for stream in streams]
    places = range(max(map(len, menus)))
    return [max(menu[min(place, len(menu) - 1)] for menu in menus) for place in places]
