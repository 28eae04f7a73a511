"""The one loop: ``train(config, workdir)`` for pre-training, continued pre-training and fine-tuning alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_jax.data.prefetch import Prefetch
from bert_jax.tasks.task import Figures, Params, Stream, Task
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.evaluate import make_evaluate
from bert_jax.training.hosts import check_agreement
from bert_jax.training.init_from import load_initial
from bert_jax.training.metric_log import MetricLog
from bert_jax.training.optimizer import make_optimizer
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
    total = sum(phase.train_steps for phase in phases)
    mesh = make_mesh(settings.mesh)
    # What is wrong with the held-out data is said now, not when the training is done.
    task.evaluation(task.eval_split, phases[-1].batch_size, phases[-1].max_seq_length, row_devices(mesh))
    if jax.process_count() > 1:
        check_agreement(without_paths(config), open_stream(task, phases[0], mesh))
    if (warning := long_warmup(settings, phases)) and jax.process_index() == 0:
        print(warning, file=sys.stderr)
    result: dict[str, float] = {}
    with (
        jax.set_mesh(mesh),
        prepared_workdir(workdir, config, task),
        Checkpoints(workdir, settings.keep_last, task.selection) as checkpoints,
        StopSignals() as stop,
        Trace(workdir, profile_steps) as trace,
    ):
        state, step_function, shardings = begin(settings, phases, task, mesh, checkpoints)
        evaluate = make_evaluate(task, mesh, shardings.params, settings.seed)
        step, phase = int(state.step), phases[-1]
        if step >= total and jax.process_index() == 0:
            print(f"{workdir} is complete at step {step:,}; more steps in the config would go on", file=sys.stderr)
        with MetricLog(workdir, task.objective, step, total, settings.log_every_steps) as log:
            for phase, last in spans(phases, step):
                pending = device_batches(task, phase, mesh)
                with Prefetch(pending, step, stop_step=last) as batches:
                    for batch, tokens in batches:
                        trace.before(step + 1, state)
                        state, figures = step_function(state, batch, phase.accumulation_steps)
                        step += 1
                        log.train(step, figures, tokens, batches.seconds_waited)
                        evaluated = None
                        if step % settings.eval_every_steps == 0 or step == last:
                            with log.pause():
                                evaluated, details = evaluate(
                                    state.params, task.eval_split, phase.batch_size, phase.max_seq_length
                                )
                            log.evaluation(step, evaluated, details)
                            result = evaluated
                        due = step % settings.checkpoint_every_steps == 0 or step == last
                        stopping = stop.after(step)
                        if due or stopping or (evaluated and checkpoints.is_best(evaluated)):
                            log.check()  # a state that is no number would be the newest for ever
                            checkpoints.save(state, evaluated)
                        if stopping:
                            checkpoints.wait()
                            log.say(f"stopped at step {step:,} and saved; the same command goes on from here")
                            raise SystemExit(128 + stop.received)
        return result or evaluate(state.params, task.eval_split, phase.batch_size, phase.max_seq_length)[0]


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


def device_batches(task: Task, phase: Phase, mesh: Mesh) -> Callable[[int], tuple[dict[str, jax.Array], int]]:
    """``step -> (global batch on the devices, its number of real tokens)``, that by this process's share of it."""
    stream = open_stream(task, phase, mesh)
    parts, of = local_parts(mesh)

    def batch(step: int) -> tuple[dict[str, jax.Array], int]:
        pieces = [stream.batch(step, part, of) for part in parts]
        local = (
            pieces[0] if len(pieces) == 1 else {name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]}
        )
        return put_batch(local, mesh), int(np.count_nonzero(local["sequence_ids"])) * of // len(parts)

    return batch
