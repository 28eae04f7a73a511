"""The only seam between what is learned (``tasks``) and how (``training``): a frozen record of plain functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Key

from bert_jax.data.packing import Examples
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.model.config import BertConfig

Params = Any
Batch = dict[str, Any]
# Every figure is a (sum, weight) pair: pairs add up over microbatches, steps, devices and hosts, and their ratio
# is the mean over the whole, however unevenly the items are spread.
Figures = dict[str, tuple[Float[Array, ""], Float[Array, ""]]]
# What a model gives for every example, [n, ...], or for every token, [tokens, ...]: see ``packing.Unpacked``.
Outputs = Mapping[str, np.ndarray]


@runtime_checkable
class Stream(Protocol):
    """Training batches as a pure function of the step: nothing about the data needs saving."""

    @property
    def num_examples(self) -> int:
        """Examples of an epoch."""
        ...

    @property
    def row_counts(self) -> tuple[int, ...]:
        """The few numbers of rows that batches have, in rising order: each is a compilation."""
        ...

    def rows(self, step: int) -> int:
        """The rows of the batch of ``step``, one of ``row_counts``."""
        ...

    def batch(self, step: int, part: int = 0, parts: int = 1, *, rows: int | None = None) -> dict[str, np.ndarray]:
        """The global batch of ``step``, if asked with more ``rows``, or one of ``parts`` equal parts of its rows."""
        ...


@dataclass(frozen=True)
class Dataset:
    """A split of a task, or a file to predict: its examples, and what becomes of a model's outputs for them.

    Attributes:
        examples: in the order of the source, in windows where that is too long.
        scores: outputs -> figures of the whole set (F1 is no mean over examples); {} where labels are missing, which
            then have placeholders in the examples.
        write: (outputs, path, figures of the checkpoint) writes the predictions in the task's own form.
        details: what a report shows beside the figures, as JSON values: ``confusion_matrix`` {labels, counts},
            ``mistakes`` [{text, label, prediction, probability}], ``types`` [{type, ...}]; each if there is one.
        num_items: what ``write`` writes one prediction each for (questions, not windows); None: the examples.
        writes_folder: whether ``write`` writes several files into a folder.
    """

    examples: Examples
    scores: Callable[[Outputs], dict[str, float]]
    write: Callable[[Outputs, Path, Mapping[str, float]], None]
    details: Callable[[Outputs], dict[str, Any]] = lambda outputs: {}
    num_items: int | None = None
    writes_folder: bool = False


@dataclass(frozen=True)
class Evaluation:
    """A pass over a split: batches with every example once, padded with weight 0; and the data set, where the outputs
    of all examples are scored together."""

    batches: Iterable[dict[str, np.ndarray]]
    dataset: Dataset | None = None


@dataclass(frozen=True)
class Task:
    """A task, for ``train``, ``evaluate``, ``predict`` and the reports.

    ``row_multiple`` of the streams: the number of rows divides by it (devices along the rows x accumulation steps).

    Attributes:
        name: its key in ``TASKS``.
        model: the encoder's configuration.
        tokenizer: saved in the workdir, so that a checkpoint explains itself.
        seeded: the same task with another seed, which shares what was read.
        data_hash: SHA-256 of the training and the held-out data, of sequences no longer than ``max_seq_length``.
        init: fresh parameters from a key; traceable.
        stream: training batches: ``(batch_size, max_seq_length, row_multiple)``.
        evaluation: a split: ``(split, batch_size, max_seq_length, row_multiple)``.
        prepare: what changes from step to step and costs less on the device (masking): ``(key, batch)``, traceable.
        forward: what the model says of a prepared batch: ``(params, batch, dropout_key)``, traceable. No key means no
            dropout.
        figures: loss terms and metrics: ``(what forward gave, batch)``, traceable. Weights must not depend on the
            parameters.
        outputs: what the scores of a whole data set, and predictions, need: ``(what forward gave, batch)``; arrays
            [r, m, ...] or [r, t, ...], traceable.
        objective: the names of the figures whose ratios are summed into the loss.
        summary: ratios of an evaluation to what is reported (perplexity and the like).
        selection: the evaluation figure that decides which checkpoint is best, and "min" or "max".
        eval_split: the split that is evaluated while training.
        read_file: ``(path, max_seq_length)`` -> the data set of a file to predict, labelled or not.
        labels: names of the classes or tags, for whoever reads the checkpoint.
    """

    name: str
    model: BertConfig
    tokenizer: Tokenizer
    seeded: Callable[[int], Task]
    data_hash: Callable[[int], str]
    init: Callable[[Key[Array, ""]], Params]
    stream: Callable[[int, int, int], Stream]
    evaluation: Callable[[str, int, int, int], Evaluation]
    prepare: Callable[[Key[Array, ""], Batch], Batch]
    forward: Callable[[Params, Batch, Key[Array, ""] | None], Any]
    figures: Callable[[Any, Batch], Figures]
    outputs: Callable[[Any, Batch], dict[str, Array]]
    objective: tuple[str, ...]
    summary: Callable[[dict[str, float]], dict[str, float]]
    selection: tuple[str, str]
    eval_split: str = "dev"
    read_file: Callable[[Path, int], Dataset] | None = None
    labels: tuple[str, ...] | None = None
