"""The only seam between what is learned (``tasks``) and how (``training``): a frozen record of plain functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Key

from bert_jax.model.config import BertConfig

Params = Any
Batch = dict[str, Any]
# Every figure is a (sum, weight) pair: pairs add up over microbatches, steps, devices and hosts, and their ratio
# is the mean over the whole, however unevenly the items are spread.
Figures = dict[str, tuple[Float[Array, ""], Float[Array, ""]]]


@runtime_checkable
class Stream(Protocol):
    """Training batches as a pure function of the step: nothing about the data needs saving."""

    @property
    def num_examples(self) -> int:
        """Examples of an epoch."""
        ...

    def batch(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
        """Rows ``rows`` of the global batch of ``step``."""
        ...


@dataclass(frozen=True)
class Task:
    """A task, for ``train``, ``evaluate`` and the reports.

    Attributes:
        name: its key in ``TASKS``.
        model: the encoder's configuration.
        tokenizer_directory: copied into the workdir, so that a checkpoint explains itself.
        init: fresh parameters from a key; traceable.
        stream: training batches of ``(batch_size, max_seq_length)``.
        evaluation: batches of a split, every example once, padded with weight 0:
            ``(split, batch_size, max_seq_length)``.
        prepare: what changes from step to step and costs less on the device (masking): ``(key, batch)``, traceable.
        figures: loss terms and metrics of a prepared batch: ``(params, batch, dropout_key)``, traceable. No key
            means no dropout. Weights must not depend on the parameters.
        objective: the names of the figures whose ratios are summed into the loss.
        summary: ratios of an evaluation to what is reported (perplexity and the like).
        selection: the evaluation figure that decides which checkpoint is best, and "min" or "max".
    """

    name: str
    model: BertConfig
    tokenizer_directory: str
    init: Callable[[Key[Array, ""]], Params]
    stream: Callable[[int, int], Stream]
    evaluation: Callable[[str, int, int], Iterator[dict[str, np.ndarray]]]
    prepare: Callable[[Key[Array, ""], Batch], Batch]
    figures: Callable[[Params, Batch, Key[Array, ""] | None], Figures]
    objective: tuple[str, ...]
    summary: Callable[[dict[str, float]], dict[str, float]]
    selection: tuple[str, str]
