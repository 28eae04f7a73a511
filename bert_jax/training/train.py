"""The one loop: ``train(config, workdir)`` for pre-training, continued pre-training and fine-tuning alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.data.prefetch import Prefetch
from bert_jax.tasks.task import Batch, Figures, Params, Stream, Task
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.evaluate import Evaluate, make_evaluate
from bert_jax.training.hosts import check_agreement
from bert_jax.training.init_from import load_initial
from bert_jax.training.metric_log import MetricLog
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.result import code_version, forget_result, read_result, write_result
from bert_jax.training.settings import (
    Config,
    Phase,
    TrainSettings,
    learning_rate_fraction,
    long_warmup,
    plan,
    read_config,
)
from bert_jax.training.sharding import batch_sharding, local_parts, make_mesh, put_batch, row_devices, state_shardings
from bert_jax.training.step import TrainState, init_state, settings_of_state, train_step
from bert_jax.training.stop_signals import StopSignals
from bert_jax.training.stored_run import working_copy
from bert_jax.training.trace import Trace
from bert_jax.training.workdir import prepared_workdir, without_paths

Step = Callable[..., tuple[TrainState, Figures]]


def train(config: Config, workdir: str | Path, *, profile_steps: tuple[int, int] | None = None) -> dict[str, float]:
    """Trains to the end of the config's steps and returns the last held-out evaluation.

    Where it begins: the newest checkpoint in ``workdir``, else ``config.init_from``, else fresh parameters. A run
    that was stopped anywhere and started again takes the same steps on the same data, bit for bit.

    Args:
        config: fields of ``TrainSettings`` and of the task (``TASKS[config.task]``).
        workdir: receives checkpoints, ``metrics.jsonl``, TensorBoard files, the configs and the tokenizer. Of a URL
            (``gs://bucket/run``) a local copy is trained in, and pushed meanwhile: a run that is killed goes on from
            the newest checkpoint there, on any machine.
        profile_steps: (first, last): a trace of these steps goes to ``workdir/profile``.

    Raises:
        ValueError: a config that does not fit, said in one line.
        FloatingPointError: the loss is not finite.
        SystemExit: after SIGTERM or SIGINT, once everything is saved; the code is 128 + the signal's number.
        OSError: at the end, what could not be pushed.
    """
    with working_copy(workdir) as directory:
        return _train(config, directory, profile_steps)


def _train(config: Config, workdir: Path, profile_steps: tuple[int, int] | None) -> dict[str, float]:
    settings, task = read_config(config, workdir)
    phases = plan(settings, task)
    mesh = make_mesh(settings.mesh)
    check(settings, task, phases, mesh)
    if jax.process_count() > 1:
        check_agreement(without_paths(config), open_stream(task, phases[0], mesh))
    with (
        jax.set_mesh(mesh),
        prepared_workdir(workdir, config, task),
        Checkpoints(workdir, settings.keep_last, task.selection) as checkpoints,
        StopSignals() as stop,
        Trace(workdir, profile_steps) as trace,
    ):
        state, step_function, shardings = begin(settings, phases, task, mesh, checkpoints)
        evaluate = make_evaluate(task, mesh, shardings.params)
        with open_log(workdir, settings, task, int(state.step), phases) as log:
            run = Run(settings, task, checkpoints, log, partial(held_out, evaluate, mesh))
            program = Program(state, step_function, partial(device_batches, task, mesh=mesh), lambda tree, _: tree)
            return take_steps(program, (run,), phases, stop, trace)[0]


class Run(NamedTuple):
    """What a run of the loop has of its own. ``evaluate`` gives the figures and the details of held-out data."""

    settings: TrainSettings
    task: Task
    checkpoints: Checkpoints
    log: MetricLog
    evaluate: Callable[[Run, Params, Phase], tuple[dict[str, float], dict[str, Any]]]


class Program(NamedTuple):
    """What the loop runs, for one run or for several whose states are stacked.

    Attributes:
        state: to start from.
        step: compiled; donates its state.
        batches: a phase -> step -> (batch on the devices, the real tokens of each run).
        one_of: (the state or a part of it, i) -> that of the i-th run.
    """

    state: TrainState
    step: Step
    batches: Callable[[Phase], Callable[[int], tuple[Batch, tuple[int, ...]]]]
    one_of: Callable[[Any, int], Any]


def take_steps(
    program: Program, runs: Sequence[Run], phases: tuple[Phase, ...], stop: StopSignals, trace: Trace
) -> list[dict[str, float]]:
    """The loop: the steps that are left; of each run the last held-out evaluation."""
    state, settings, phase, began = program.state, runs[0].settings, phases[-1], time.monotonic()
    step = int(program.one_of(state.step, 0))
    code_version()  # now: the checkout may move on meanwhile
    results: list[dict[str, float]] = [{} for _ in runs]
    left = list(spans(phases, step))
    for run in runs if left else ():
        forget_result(run.log.workdir)
    for phase, last in left:
        with Prefetch(program.batches(phase), step, stop_step=last) as batches:
            for batch, tokens in batches:
                trace.before(step + 1, state)
                state, figures = program.step(state, batch, phase.accumulation_steps)
                step += 1
                for run, count in zip(runs, tokens, strict=True):
                    run.log.train(step, figures, count, batches.seconds_waited)
                evaluated: list[dict[str, float]] = [{} for _ in runs]
                if step % settings.eval_every_steps == 0 or step == last:
                    evaluated = results = evaluate_all(program, state, runs, phase, step)
                due = step % settings.checkpoint_every_steps == 0 or step == last
                stopping = stop.after(step)
                for number, (run, found) in enumerate(zip(runs, evaluated, strict=True)):
                    if due or stopping or (found and run.checkpoints.is_best(found)):
                        run.log.check()  # a state that is no number would be the newest for ever
                        run.checkpoints.save(program.one_of(state, number), found)
                if stopping:
                    for run in runs:
                        run.checkpoints.wait()
                    runs[0].log.say(f"stopped at step {step:,} and saved; the same command goes on from here")
                    raise SystemExit(128 + stop.received)
    results = [
        result or run.evaluate(run, program.one_of(state.params, number), phase)[0]
        for number, (run, result) in enumerate(zip(runs, results, strict=True))
    ]
    seconds, data = (time.monotonic() - began) / len(runs), runs[0].task.data_hash(phase.max_seq_length)
    for run, result in zip(runs, results, strict=True):
        run.checkpoints.wait()  # finished is what is on disk
        if left or read_result(run.log.workdir) is None:  # else it says when and by which code it was reached
            write_result(run.log.workdir, step, result, data, seconds)
    return results


def evaluate_all(
    program: Program, state: TrainState, runs: Sequence[Run], phase: Phase, step: int
) -> list[dict[str, float]]:
    """The held-out figures of every run, written into its log; meanwhile no log's clock runs."""
    with ExitStack() as pauses:
        for run in runs:
            pauses.enter_context(run.log.pause())
        found = [run.evaluate(run, program.one_of(state.params, number), phase) for number, run in enumerate(runs)]
    for run, (figures, details) in zip(runs, found, strict=True):
        run.log.evaluation(step, figures, details)
    return [figures for figures, _ in found]


def held_out(
    evaluate: Evaluate, mesh: Mesh, run: Run, params: Params, phase: Phase
) -> tuple[dict[str, float], dict[str, Any]]:
    """Figures and details of the split that is evaluated while training."""
    task = run.task
    evaluation = task.evaluation(task.eval_split, phase.batch_size, phase.max_seq_length, row_devices(mesh))
    return evaluate(params, evaluation, run.settings.seed)


def check(settings: TrainSettings, task: Task, phases: tuple[Phase, ...], mesh: Mesh) -> None:
    """Says now what is wrong with the held-out data, not when the training is done; and warns of a long warm-up."""
    task.evaluation(task.eval_split, phases[-1].batch_size, phases[-1].max_seq_length, row_devices(mesh))
    if (warning := long_warmup(settings, phases)) and jax.process_index() == 0:
        print(warning, file=sys.stderr)


def open_log(
    workdir: Path,
    settings: TrainSettings,
    task: Task,
    step: int,
    phases: tuple[Phase, ...],
    member: int | None = None,
) -> MetricLog:
    """The log of a run that stands at ``step``; says where nothing is left to do."""
    total = sum(phase.train_steps for phase in phases)
    if step >= total and jax.process_index() == 0:
        print(f"{workdir} is complete at step {step:,}; more steps in the config would go on", file=sys.stderr)
    return MetricLog(workdir, task.objective, step, total, settings.log_every_steps, member=member)


def begin(
    settings: TrainSettings, phases: tuple[Phase, ...], task: Task, mesh: Mesh, checkpoints: Checkpoints
) -> tuple[TrainState, Step, TrainState]:
    """The state to start from, on its devices; the compiled step, which donates its state; the state's shardings."""
    step_function, fresh, like = make_step(settings, phases, task, mesh)
    shardings = jax.tree.map(lambda x: x.sharding, like)
    state = checkpoints.restore(like)
    if state is not None:
        given = settings_of_state(hyperparameters(settings), settings.seed)
        state = state.replace(**jax.device_put(given, NamedSharding(mesh, PartitionSpec())))
    else:
        state = jax.jit(fresh, out_shardings=shardings)()
        if settings.init_from:
            state = state.replace(params=jax.device_put(initial_params(settings, state.params, task), shardings.params))
    return state, step_function, shardings


def make_step(
    settings: TrainSettings, phases: tuple[Phase, ...], task: Task, mesh: Mesh
) -> tuple[Step, Callable[[], TrainState], TrainState]:
    """What a mesh runs, of devices that may not be there: nothing is computed.

    Returns:
        The jitted step; what makes a fresh state, traceable; that state's shapes with their shardings.
    """
    optimizer = make_optimizer(settings.optimizer, jax.eval_shape(lambda: task.init(jax.random.key(0))))
    fresh = partial(init_state, task, optimizer, hyperparameters(settings), settings.seed)
    shapes = jax.eval_shape(fresh)
    shardings = state_shardings(mesh, shapes)
    step_function = jax.jit(
        partial(
            train_step,
            task=task,
            optimizer=optimizer,
            schedule=partial(learning_rate_fraction, settings=settings, phases=phases),
            skip_nonfinite=settings.skip_nonfinite,
        ),
        static_argnums=2,
        in_shardings=(shardings, batch_sharding(mesh)),
        out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())),
        donate_argnums=0,
    )
    like = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)
    return step_function, fresh, like


def hyperparameters(settings: TrainSettings) -> dict[str, float]:
    """Those that are arrays in the state, for a sweep to vary."""
    return {"learning_rate": settings.optimizer.learning_rate, "weight_decay": settings.optimizer.weight_decay}


def initial_params(settings: TrainSettings, fresh: Params, task: Task) -> Params:
    """The parameters of ``init_from`` where it has them; the second encoder's of ``right_to_left_from``."""
    assert settings.init_from
    second = fresh.get("right_to_left")
    rest = {name: part for name, part in fresh.items() if name != "right_to_left"}
    params = load_initial(settings.init_from, rest, task.labels)
    if second is None:
        return params
    assert settings.right_to_left_from  # read_config has seen to it
    return params | {"right_to_left": load_initial(settings.right_to_left_from, second)}


def spans(phases: tuple[Phase, ...], step: int) -> Iterator[tuple[Phase, int]]:
    """The phases that have steps left after ``step``, each with the step at which it ends."""
    last = 0
    for phase in phases:
        last += phase.train_steps
        if step < last:
            yield phase, last


def open_stream(task: Task, phase: Phase, mesh: Mesh) -> Stream:
    """The training batches of a phase, their rows fit for the mesh."""
    return task.stream(phase.batch_size, phase.max_seq_length, row_devices(mesh) * phase.accumulation_steps)


def device_batches(task: Task, phase: Phase, mesh: Mesh) -> Callable[[int], tuple[Batch, tuple[int]]]:
    """``step -> (global batch on the devices, (its number of real tokens,))``, that by this process's share of it."""
    stream = open_stream(task, phase, mesh)
    parts, of = local_parts(mesh)

    def batch(step: int) -> tuple[Batch, tuple[int]]:
        pieces = [stream.batch(step, part, of) for part in parts]
        local = (
            pieces[0] if len(pieces) == 1 else {name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]}
        )
        return put_batch(local, mesh), (int(np.count_nonzero(local["sequence_ids"])) * of // len(parts),)

    return batch
