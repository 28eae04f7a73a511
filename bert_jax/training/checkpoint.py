"""Checkpoints by Orbax, behind this file alone: asynchronous, atomic, keep-last-N and keep-best.

A step's directory holds the items ``params``, ``training`` (step and moments) and ``meta`` (JSON), so
that a reader who wants the encoder reads only the parameters; and ``SHA256SUMS`` of all files, which tell damage.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from absl import logging
from jax.experimental import multihost_utils
from orbax.checkpoint import checkpoint_managers as policies

from bert_jax.training.checksums import find_damage, write_sums
from bert_jax.training.step import TrainState

DIRECTORY = "checkpoints"
# Beside it: checkpoints that are not as they were written, out of the way of those that will be.
DAMAGED = "damaged_checkpoints"
FORMAT_VERSION = 1
OTHERWISE = "copy it again, or delete it to use the one before"


class Checkpoints:
    """The checkpoints of one workdir.

    Args:
        workdir: they go to ``workdir/checkpoints/STEP``.
        keep_last: how many of the newest are kept.
        selection: the evaluation figure that decides the best, and "min" or "max"; the best is kept as well.
    """

    def __init__(self, workdir: str | Path, keep_last: int, selection: tuple[str, str]) -> None:
        self.figure, self.mode = selection
        best = policies.BestN(
            get_metric_fn=lambda metrics: metrics[self.figure],
            reverse=self.mode == "min",
            n=1,
            keep_checkpoints_without_metrics=False,
        )
        self.directory, self.saving = Path(workdir).absolute() / DIRECTORY, -1
        set_damaged_aside(self.directory)
        self.manager = ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policies.AnyPreservationPolicy([policies.LatestN(keep_last), best]),
                # The policy decides; without a best_fn the manager would not write the figures it decides by.
                best_fn=lambda metrics: metrics[self.figure],
                best_mode=self.mode,
                cleanup_tmp_directories=True,
                # The loop decides when to save; the manager only refuses a step that it already has.
                save_interval_steps=1,
                async_options=ocp.options.AsyncOptions(
                    post_finalization_callback=lambda: _sum_up(self.directory, self.saving)
                ),
            ),
            item_names=("params", "training", "meta"),
        )

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        with self._writing():
            self.manager.close()  # waits for what is being written

    def save(self, state: TrainState, figures: dict[str, float] | None = None) -> None:
        """Copies the state off the device and writes it in the background; a step that is there is left alone."""
        step = int(state.step)
        if step in self.manager.all_steps():
            return
        with self._writing():
            self.manager.wait_until_finished()
        self.saving = step
        items = ocp.args.Composite(
            params=ocp.args.StandardSave(state.params),
            training=ocp.args.StandardSave(_rest(state)),
            meta=ocp.args.JsonSave({"format_version": FORMAT_VERSION, "step": step, "figures": figures or {}}),
        )
        with self._writing():
            self.manager.save(step, args=items, metrics=figures or None, force=True)

    def restore(self, like: TrainState) -> TrainState | None:
        """``like`` with the newest checkpoint's arrays, on its devices and shardings; None when there is none.

        Args:
            like: ``jax.ShapeDtypeStruct`` leaves with shardings.
        """
        step = self.manager.latest_step()
        if step is None:
            return None
        wanted = ocp.args.Composite(
            params=ocp.args.StandardRestore(like.params), training=ocp.args.StandardRestore(_rest(like))
        )
        try:
            items = self.manager.restore(step, args=wanted)
        except (ValueError, KeyError, OSError) as error:
            directory, reason = self.directory / str(step), " ".join(str(error).split())[:200]
            raise ValueError(
                f"{directory} cannot be read ({reason}); if the config is still the run's own, delete it to go on from"
                " the one before"
            ) from error
        return like.replace(params=items["params"], **items["training"])

    def is_best(self, figures: dict[str, float]) -> bool:
        """Whether an evaluation is better than that of every checkpoint that is kept."""
        scored = _scored(self.manager, self.figure)
        value = figures[self.figure]
        return not scored or (value < min(scored)[0] if self.mode == "min" else value > max(scored)[0])

    def wait(self) -> None:
        """Returns when everything saved is on disk; raises what went wrong on the way."""
        with self._writing():
            self.manager.wait_until_finished()
            self.manager.check_for_errors()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError, RuntimeError) as error:
            raise OSError(
                f"{self.directory / str(self.saving)} could not be written ({_reason(error)}); make room or mend the"
                " disk, and start again: the checkpoints before it are whole"
            ) from error


def _reason(error: Exception) -> str:
    """What the system says, where TensorStore gives its number in a page of other things; else the end of the text."""
    text = " ".join(str(error).split())
    number = re.search(r"os_error_code='(\d+)'", text)
    return os.strerror(int(number[1])) if number else f"... {text[-200:]}"


def set_damaged_aside(directory: Path) -> None:
    """Moves the newest checkpoints that are not as they were written to ``DAMAGED``, up to the first that is.

    Raises:
        ValueError: none is; nothing is moved then.
    """
    if jax.process_index() == 0 and directory.is_dir():
        steps = sorted((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), reverse=True)
        damaged = []
        for step in steps:
            damage = find_damage(directory / str(step))
            if damage is None:
                break
            damaged.append((step, damage))
        if damaged and len(damaged) == len(steps):
            step, damage = damaged[0]
            raise ValueError(
                f"{directory / str(step)}: {damage}, and no older checkpoint is whole; copy it again, or delete"
                f" {directory} to begin anew"
            )
        for step, damage in damaged:
            aside = directory.with_name(DAMAGED) / str(step)
            shutil.rmtree(aside, ignore_errors=True)  # of an earlier time
            aside.parent.mkdir(exist_ok=True)
            (directory / str(step)).rename(aside)
            print(f"{directory / str(step)}: {damage}; set aside in {DAMAGED}", file=sys.stderr)
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("damaged checkpoints set aside")


def newest_step(workdir: str | Path) -> int:
    """The step of the newest checkpoint, once those that are damaged are set aside; 0 where there is none."""
    directory = Path(workdir).absolute() / DIRECTORY
    set_damaged_aside(directory)
    found = directory.iterdir() if directory.is_dir() else ()
    return max((int(path.name) for path in found if path.name.isdecimal()), default=0)


def read_params(workdir: str | Path, step: int | None = None) -> tuple[Any, dict[str, Any]]:
    """Parameters (numpy arrays) and meta of a workdir's checkpoint: of ``step``, or the newest.

    Raises:
        FileNotFoundError: the directory holds no finished checkpoint.
    """
    with _reader(workdir) as manager:
        steps = sorted(manager.all_steps())
        if not steps:
            raise FileNotFoundError(f"{workdir} holds no finished checkpoint yet; let the run save one")
        if step is not None and step not in steps:
            raise ValueError(
                f"step={step}: {workdir} has the checkpoints {', '.join(map(str, steps))}; give one of them"
            )
        step = steps[-1] if step is None else step
        directory = Path(workdir).absolute() / DIRECTORY / str(step)
        if damage := find_damage(directory, ("params", "meta")):
            raise ValueError(f"{directory}: {damage}; {OTHERWISE}")
        try:
            meta = manager.restore(step, args=ocp.args.Composite(meta=ocp.args.JsonRestore()))["meta"]
            newer = meta["format_version"] > FORMAT_VERSION
            params = None if newer else _read_whole(manager, step)
        except Exception as error:  # Orbax and TensorStore raise anything, bare Exceptions too
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{directory} cannot be read ({type(error).__name__}: {reason}); {OTHERWISE}") from error
        if newer:
            raise ValueError(
                f"{directory} has format_version {meta['format_version']}, this program reads up to {FORMAT_VERSION}:"
                " update bert_jax"
            )
    return params, meta


def _read_whole(manager: ocp.CheckpointManager, step: int) -> Any:
    """The parameters, onto this process's first device, whatever mesh wrote them."""
    shapes = manager.item_metadata(step)["params"]
    place = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), getattr(shapes, "tree", shapes)
    )
    return manager.restore(step, args=ocp.args.Composite(params=ocp.args.StandardRestore(like)))["params"]


def write_params(workdir: str | Path, params: Any, meta: dict[str, Any]) -> None:
    """Writes parameters alone as the checkpoint of step ``meta["step"]``, which ``read_params`` reads."""
    items = ocp.args.Composite(
        params=ocp.args.StandardSave(params), meta=ocp.args.JsonSave({"format_version": FORMAT_VERSION} | meta)
    )
    directory, step = Path(workdir).absolute() / DIRECTORY, meta["step"]
    summing = ocp.options.AsyncOptions(post_finalization_callback=lambda: _sum_up(directory, step))
    options = ocp.CheckpointManagerOptions(async_options=summing)
    with ocp.CheckpointManager(directory, options=options, item_names=("params", "meta")) as manager:
        manager.save(step, args=items, force=True)


def _sum_up(directory: Path, step: int) -> None:
    """Orbax calls it in the thread that saves, when all files are there but the checkpoint has not got its name yet."""
    if jax.process_index() == 0:
        for unnamed in directory.glob(f"{step}.*"):
            write_sums(unnamed)


def _rest(state: TrainState) -> dict[str, Any]:
    # Not the hyperparameters and the seed: those are the config's, which may have been changed meanwhile.
    return {name: getattr(state, name) for name in ("step", "opt_state")}


def best_step(workdir: str | Path, selection: tuple[str, str]) -> int:
    """The kept checkpoint with the best evaluation. FileNotFoundError where none was evaluated."""
    figure, mode = selection
    with _reader(workdir) as manager:
        scored = _scored(manager, figure)
    if not scored:
        raise FileNotFoundError(f"{workdir} holds no evaluated checkpoint; let the run evaluate once")
    return (min(scored) if mode == "min" else max(scored))[1]


def _scored(manager: ocp.CheckpointManager, figure: str) -> list[tuple[float, int]]:
    found = [(manager.metrics(step), step) for step in manager.all_steps()]
    return [(metrics[figure], step) for metrics, step in found if metrics]


def _reader(workdir: str | Path) -> ocp.CheckpointManager:
    directory = Path(workdir).absolute() / DIRECTORY
    if not directory.is_dir():
        raise FileNotFoundError(f"{workdir} holds no {DIRECTORY}/; give the --workdir of a training run")
    handlers = {
        "params": ocp.StandardCheckpointHandler(),
        "training": ocp.StandardCheckpointHandler(),
        "meta": ocp.JsonCheckpointHandler(),
    }
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # Orbax warns of what follows from reading only
    try:
        options = ocp.CheckpointManagerOptions(
            read_only=True,
            best_fn=lambda metrics: next(iter(metrics.values())),
            # Of several processes each reads for itself, without waiting for the others.
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                primary_host=jax.process_index(), active_processes={jax.process_index()}, barrier_sync_key_prefix="read"
            ),
        )
        return ocp.CheckpointManager(directory, options=options, item_handlers=handlers)
    finally:
        logging.set_verbosity(verbosity)
