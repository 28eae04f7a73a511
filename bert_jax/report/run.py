"""What a workdir tells of its run: the recorded lines and what follows from them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from bert_jax.data.object_store import is_url
from bert_jax.data.stored_corpus import stored_info
from bert_jax.report.figures import scale
from bert_jax.training.metric_log import DETAILS, FILE, read_metrics
from bert_jax.training.workdir import CONFIG, ENVIRONMENT, MODEL_CONFIG

Line = dict[str, Any]
# A directory with one of these is a run's workdir.
MARKS = (FILE, ENVIRONMENT)


@dataclass(frozen=True)
class Run:
    """A run as its workdir records it; what is missing there is empty here."""

    directory: Path
    training: list[Line]
    evaluations: list[Line]
    config: dict[str, Any]
    model: dict[str, Any]
    environment: dict[str, Any]
    corpus: dict[str, Any]
    evaluation: dict[str, Any]

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def task(self) -> str:
        return str(self.config.get("task", "training"))

    @property
    def step(self) -> int:
        """The last step that was recorded."""
        return max(line["step"] for line in self.training + self.evaluations)

    @property
    def planned_steps(self) -> int | None:
        """By the config, or where it counts in epochs by the last line; None: an older run, whose lines say nothing."""
        phases = self.config.get("phases") or ()
        planned = sum(phase["train_steps"] for phase in phases) or self.config.get("train_steps")
        last = max(self.training + self.evaluations, key=lambda line: line["step"])
        return planned or last.get("total_steps")

    @property
    def last_time(self) -> float | None:
        """Seconds since 1970 of the last line."""
        return max((line["time"] for line in self.training + self.evaluations if "time" in line), default=None)

    @property
    def last_evaluation(self) -> Line:
        """Figures of the last evaluation, without their prefix; percentages as shares of 1."""
        line = self.evaluations[-1] if self.evaluations else {}
        found = {name.removeprefix("eval/"): value for name, value in line.items() if name.startswith("eval/")}
        return {name: value * scale(self.task, name) for name, value in found.items() if is_number(value)}

    @cached_property
    def seconds(self) -> float:
        """Training time without evaluations and pauses."""
        return sum((seconds for seconds, _ in self._intervals()), 0.0)

    @cached_property
    def tokens(self) -> float:
        """Real tokens (no padding) trained on."""
        return sum((seconds * line.get("tokens_per_second", 0.0) for seconds, line in self._intervals()), 0.0)

    @property
    def tokens_per_second(self) -> float | None:
        """Median over the lines: the first one's compilation does not count."""
        speeds = [line["tokens_per_second"] for line in self.training if "tokens_per_second" in line]
        return statistics.median(speeds) if speeds else None

    @property
    def changes_of_shape(self) -> list[tuple[int, str]]:
        """(last step of the old phase, what changes) where phases differ in sequence length or batch size."""
        phases = self.config.get("phases") or ()
        changes, step = [], 0
        for old, new in pairwise(phases):
            step += old["train_steps"]
            length, rows = (
                (old.get(name, self.config.get(name)), new.get(name, self.config.get(name)))
                for name in ("max_seq_length", "batch_size")
            )
            if (length[0], rows[0]) != (length[1], rows[1]) and step <= self.step:
                changes.append((step, f"{rows[1]} × {length[1]} tokens"))
        return changes

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """(steps, values) of a figure; names of evaluations begin with ``eval/``, percentages are shares of 1."""
        lines = [line for line in self.training + self.evaluations if is_number(line.get(name))]
        return [line["step"] for line in lines], [line[name] * scale(self.task, name) for line in lines]

    def _intervals(self) -> Iterator[tuple[float, Line]]:
        previous = 0
        for line in self.training:
            if line.get("steps_per_second"):
                yield (line["step"] - previous) / line["steps_per_second"], line
            previous = line["step"]


def read_run(workdir: str | Path) -> Run:
    """Reads everything but the checkpoints.

    Raises:
        FileNotFoundError: the workdir has no recorded figures.
        ValueError: a line that is none of ours.
    """
    directory = Path(workdir).resolve()
    lines = read_metrics(directory)
    training = [line for line in lines if is_number(line.get("loss"))]
    evaluations = [line for line in lines if any(name.startswith("eval/") for name in line)]
    if not training and not evaluations:
        raise FileNotFoundError(f"{workdir} holds no line in {FILE} yet; let a run reach its first log_every_steps")
    config = read_json(directory / CONFIG)
    return Run(
        directory=directory,
        training=training,
        evaluations=evaluations,
        config=config,
        model=read_json(directory / MODEL_CONFIG),
        environment=read_json(directory / ENVIRONMENT),
        corpus=_corpus(str(config.get("corpus") or "")),
        evaluation=read_json(directory / DETAILS),
    )


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float))


def _corpus(path: str) -> dict[str, Any]:
    """What a corpus says of itself."""
    if not is_url(path):
        return read_json(Path(path) / "corpus.json") if path else {}
    try:
        return stored_info(path)
    except (OSError, ValueError):
        return {}


def read_json(path: Path) -> dict[str, Any]:
    """An empty dict where the file is gone or broken: a report says what is there."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
