"""The only reader of a ``ConfigDict``: a config becomes frozen settings and a task, or a one-line error."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict, FrozenConfigDict

from bert_jax.data.object_cache import local_copy
from bert_jax.data.object_store import is_url
from bert_jax.data.stored_corpus import local_corpus
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.tasks import TASKS, Task
from bert_jax.training.init_from import read_encoder
from bert_jax.training.optimizer import OptimizerSettings, polynomial_schedule, stable_schedule
from bert_jax.training.sharding import MeshShape
from bert_jax.training.source import Source, is_run, open_source

SCHEDULES = ("linear", "square_root", "warmup_stable_decay")

T = TypeVar("T")
Config = ConfigDict | FrozenConfigDict | Mapping[str, Any]


@dataclass(frozen=True)
class Phase:
    """A run of steps with one shape of batch; what is left out is the run's own.

    With a ``learning_rate`` a phase has its own warm-up and decay (NVIDIA's two-phase LAMB); without, the run's one
    schedule goes on through all phases (the paper's 90 % at 128 tokens, then 10 % at 512).
    """

    train_steps: int
    max_seq_length: int
    batch_size: int
    accumulation_steps: int = 1
    learning_rate: float | None = None
    warmup_steps: int | None = None

    def __post_init__(self) -> None:
        if self.train_steps < 1:
            raise ValueError(f"train_steps={self.train_steps} in a phase; a phase needs at least one step")
        if self.accumulation_steps < 1 or self.batch_size % self.accumulation_steps:
            raise ValueError(
                f"batch_size={self.batch_size} does not divide into accumulation_steps={self.accumulation_steps};"
                " choose a divisor"
            )


@dataclass(frozen=True)
class TrainSettings:
    """The fields of a training config that belong to no task. ``batch_size`` is global; a step is one update.

    Give ``train_steps`` or ``train_epochs``, ``warmup_steps`` or ``warmup_ratio``. After the warm-up the rate falls
    to 0: by the ``schedule`` "linear" or "square_root" (of what is left) over the whole run, by "warmup_stable_decay"
    over its last ``decay_ratio``.
    ``init_from`` is a directory whose parameters the run begins with, ``right_to_left_from`` one for the second encoder
    of a concatenated model; a checkpoint in the workdir always comes first. ``skip_nonfinite`` leaves out, and counts,
    steps whose gradient is not finite, which otherwise stop the run.
    """

    task: str
    batch_size: int
    max_seq_length: int
    seed: int = 0
    train_steps: int | None = None
    train_epochs: float | None = None
    warmup_steps: int | None = None
    warmup_ratio: float | None = None
    schedule: str = "linear"
    decay_ratio: float = 0.1
    accumulation_steps: int = 1
    phases: tuple[Phase, ...] = ()
    init_from: str | None = None
    right_to_left_from: str | None = None
    mesh: MeshShape = field(default_factory=MeshShape)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    log_every_steps: int = 50
    eval_every_steps: int = 1000
    checkpoint_every_steps: int = 1000
    keep_last: int = 2
    skip_nonfinite: bool = False

    def __post_init__(self) -> None:
        for name in (
            "batch_size",
            "max_seq_length",
            "log_every_steps",
            "eval_every_steps",
            "checkpoint_every_steps",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} must be between 0 and {2**32 - 1}")
        if self.keep_last < 1 or (self.warmup_steps or 0) < 0:
            raise ValueError(
                f"keep_last={self.keep_last} must be at least 1, warmup_steps={self.warmup_steps} at least 0"
            )
        lengths = [self.train_steps is not None, self.train_epochs is not None, bool(self.phases)]
        if sum(lengths) != 1:
            raise ValueError(
                f"give exactly one of train_steps, train_epochs and phases, not {sum(lengths)}"
                + (f"; this config has {len(self.phases)} phases (pretrain.py:seq=128 has none)" if self.phases else "")
            )
        if self.train_epochs is not None and not 0 < self.train_epochs < math.inf:
            raise ValueError(f"train_epochs={self.train_epochs} must be a number above 0")
        if self.warmup_ratio is not None and not 0 <= self.warmup_ratio <= 1:
            raise ValueError(f"warmup_ratio={self.warmup_ratio} must be between 0 and 1")
        if self.warmup_steps is not None and self.warmup_ratio is not None:
            raise ValueError("give warmup_steps or warmup_ratio, not both")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r} is unknown; take one of {', '.join(SCHEDULES)}")
        if not 0 < self.decay_ratio <= 1:
            raise ValueError(f"decay_ratio={self.decay_ratio} must be above 0 and at most 1")


def read_config(config: Config, workdir: str | Path | None = None) -> tuple[TrainSettings, Task]:
    """Splits a config: its own fields to ``TrainSettings``, every other field to the task.

    A task that fine-tunes takes model and tokenizer from ``workdir``, where a run has begun in it, else from
    ``init_from``; what ``config.model`` says comes on top.

    Raises:
        ValueError: a field that neither knows, a missing one, or a value that does not fit.
    """
    values = plain(config)
    name = values.get("task")
    if name not in TASKS:
        raise ValueError(f"config.task={name!r} is unknown; take one of {', '.join(TASKS)}")
    own = {f.name for f in dataclasses.fields(TrainSettings)}
    ours = {key: value for key, value in values.items() if key in own}
    theirs = {key: value for key, value in values.items() if key not in own}
    parameters = inspect.signature(TASKS[name]).parameters
    _check_names("config", theirs, parameters, own | set(parameters))
    ours["mesh"] = _record(MeshShape, ours.get("mesh") or {}, "config.mesh")
    ours["optimizer"] = _record(OptimizerSettings, ours.get("optimizer") or {}, "config.optimizer")
    defaults = {key: ours[key] for key in ("max_seq_length", "batch_size", "accumulation_steps") if key in ours}
    phases = ours.get("phases") or ()
    if not isinstance(phases, tuple) or not all(isinstance(phase, dict) for phase in phases):
        raise ValueError(f"config.phases={phases!r} must be a list of fields of Phase, one dict a phase")
    ours["phases"] = tuple(_record(Phase, defaults | phase, "a phase") for phase in phases)
    settings = _record(TrainSettings, ours, "config")
    if "tokenizer" in parameters:
        theirs |= model_and_tokenizer(settings, theirs, workdir)
    if settings.init_from and "encoder" in parameters:  # a task on top of what an encoder gives, which it reads itself
        theirs["encoder"] = partial(read_encoder, settings.init_from)
    theirs |= local_data(theirs)
    missing = [
        key
        for key, parameter in parameters.items()
        if parameter.default is parameter.empty and key not in theirs and key != "seed"
    ]
    if missing:
        raise ValueError(f"config.{missing[0]} is missing; task {name!r} needs it")
    return settings, TASKS[name](seed=settings.seed, **theirs)


def local_data(given: Mapping[str, Any]) -> dict[str, str]:
    """Where the data is that ``corpus`` and ``data_dir`` name by a URL: fetched, as far as it has changed."""
    if is_url(given.get("features_dir") or ""):
        raise ValueError(f"features_dir={given['features_dir']!r}: features are written here; give a local path")
    fetch = {"corpus": local_corpus, "data_dir": local_copy}
    return {name: str(fetch[name](given[name])) for name in fetch if is_url(given.get(name) or "")}


def model_and_tokenizer(
    settings: TrainSettings, given: Mapping[str, Any], workdir: str | Path | None
) -> dict[str, Any]:
    """``model`` and ``tokenizer`` of a task that fine-tunes.

    Raises:
        FileNotFoundError: ``init_from`` is no model.
        ValueError: two encoders side by side that are not left-to-right and right-to-left with one vocabulary.
    """
    model = {name: value for name, value in (given.get("model") or {}).items() if value is not None}
    source = workdir if workdir is not None and is_run(workdir) else settings.init_from
    if bool(given.get("concatenated")) != bool(settings.right_to_left_from) and settings.init_from:
        raise ValueError(
            "concatenated=True and right_to_left_from belong together: a right-to-left run beside init_from"
        )
    if source is None:
        return {"model": model, "tokenizer": given.get("tokenizer") or ""}
    found = open_source(source)
    if settings.right_to_left_from and source == settings.init_from:
        check_sides(found, open_source(settings.right_to_left_from))
    return {
        "model": dataclasses.asdict(found.config) | model,
        "tokenizer": given.get("tokenizer") or str(found.tokenizer),
    }


def check_sides(left: Source, right: Source) -> None:
    """Refuses two encoders that cannot stand side by side."""
    directions = left.config.attention_direction, right.config.attention_direction
    if directions != ("left_to_right", "right_to_left"):
        raise ValueError(
            f"init_from is {directions[0]} and right_to_left_from {directions[1]}; give a left_to_right run and a"
            " right_to_left one (objective=ltr and objective=rtl)"
        )
    if load_tokenizer(left.tokenizer).fingerprint() != load_tokenizer(right.tokenizer).fingerprint():
        raise ValueError("init_from and right_to_left_from have different tokenizers; train both with one")


def plan(settings: TrainSettings, task: Task) -> tuple[Phase, ...]:
    """The phases of the run; a run without any is one phase, and epochs become ``int(epochs * N / batch)`` steps."""
    if settings.phases:
        return settings.phases
    steps = settings.train_steps
    if steps is None:
        examples = task.stream(settings.batch_size, settings.max_seq_length, 1).num_examples
        steps = max(1, int(examples / settings.batch_size * (settings.train_epochs or 0)))
    return (Phase(steps, settings.max_seq_length, settings.batch_size, settings.accumulation_steps),)


def long_warmup(settings: TrainSettings, phases: tuple[Phase, ...]) -> str:
    """What to say where the warm-up is longer than the run; else nothing."""
    steps = sum(phase.train_steps for phase in phases)
    if (settings.warmup_steps or 0) < steps:
        return ""
    return (
        f"warmup_steps={settings.warmup_steps} of {steps} steps: the learning rate never gets to"
        f" {settings.optimizer.learning_rate}; set fewer config.warmup_steps"
    )


def learning_rate_fraction(
    step: Int[Array, ""], settings: TrainSettings, phases: tuple[Phase, ...]
) -> Float[Array, ""]:
    """Learning rate at ``step`` over ``optimizer.learning_rate``: one schedule over the run, or one over each phase
    that has a rate of its own."""
    total = sum(phase.train_steps for phase in phases)
    fraction = scheduled(step, settings, warmup(settings.warmup_steps, settings.warmup_ratio, total), total)
    start = 0
    for phase in phases:
        if phase.learning_rate is not None:
            steps = warmup(phase.warmup_steps, settings.warmup_ratio, phase.train_steps)
            own = phase.learning_rate / settings.optimizer.learning_rate
            value = own * scheduled(step - start, settings, steps, phase.train_steps)
            fraction = jnp.where(step >= start, value, fraction)
        start += phase.train_steps
    return fraction


def scheduled(step: Int[Array, ""], settings: TrainSettings, warmup_steps: int, train_steps: int) -> Float[Array, ""]:
    """The fraction of the peak at ``step`` of ``train_steps``, by the schedule that the settings name."""
    if settings.schedule == "warmup_stable_decay":
        return stable_schedule(step, warmup_steps, int(settings.decay_ratio * train_steps), train_steps)
    power = 0.5 if settings.schedule == "square_root" else 1.0
    return polynomial_schedule(step, warmup_steps, train_steps, power)


def warmup(steps: int | None, ratio: float | None, total: int) -> int:
    """Warm-up steps; without either, none."""
    return steps if steps is not None else int((ratio or 0.0) * total)


def plain(value: Any) -> Any:
    """Dicts and tuples for ``ConfigDict`` and its frozen and list kin."""
    if isinstance(value, Mapping) or hasattr(value, "to_dict"):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(plain(item) for item in value)
    return value


def without_fields(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A config as JSON keeps it, but for these dotted names, which it need not have."""
    values: dict[str, Any] = json.loads(json.dumps(config))
    for name in names:
        *path, last = name.split(".")
        inner = values
        for part in path:
            inner = inner.get(part) or {}
        inner.pop(last, None)
    return values


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """``field: old -> new`` for every leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(old.keys() | new.keys())
        return [c for n in names for c in differences(old.get(n), new.get(n), f"{path}.{n}" if path else n)]
    return [] if old == new else [f"{path}: {old!r} -> {new!r}"]


def _record(kind: type[T], values: dict[str, Any], what: str) -> T:
    known = [f.name for f in dataclasses.fields(kind)]  # pyright: ignore[reportArgumentType]
    _check_names(what, values, known, known)
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{what}: {error}") from None


def _check_names(what: str, given: Iterable[str], known: Iterable[str], suggestions: Iterable[str]) -> None:
    for name in given:
        if name not in set(known):
            close = difflib.get_close_matches(name, list(suggestions), n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(suggestions))}"
            raise ValueError(f"{what} has no field {name!r}; {hint}")
