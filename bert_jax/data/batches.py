"""Batches of pre-training examples: batch = f(seed, step), whatever was served before and on how many hosts.

Every batch is a dictionary of arrays of static shape (r rows, t columns, m = 1 example a row):

    input_ids             int32   [r, t]  [CLS] A [SEP] B [SEP], or [CLS] A [SEP] for single segments
    segment_ids           int32   [r, t]  0 for [CLS] A [SEP], 1 for B [SEP], 0 for padding
    sequence_ids          int32   [r, t]  1, and 0 for padding
    position_ids          int32   [r, t]  0, 1, 2 ..., and 0 for padding
    example_columns       int32   [r, 1]  column of [CLS]: 0
    next_sentence_labels  int32   [r, 1]  0 = B follows A, 1 = random or swapped
    example_weights       float32 [r, 1]  1, and 0 for a row of padding
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int, Integer

from bert_jax.data.examples import ExampleSettings, Instances, TextSource
from bert_jax.data.order import find_order

Batch = dict[str, np.ndarray]


@runtime_checkable
class SpecialTokens(Protocol):
    """The part of a tokenizer that a batch needs."""

    @property
    def pad_id(self) -> int: ...
    @property
    def cls_id(self) -> int: ...
    @property
    def sep_id(self) -> int: ...


class PretrainingBatches:
    """Random access to the training batches of a corpus.

    Examples are numbered without end: index = step * batch_size + row, and `num_examples` of them are an
    epoch, in which each slot is served once (see `order.py`). The text of the last two groups of blocks stays
    in memory, at most about 64 MB with 16-bit ids.
    """

    def __init__(
        self,
        corpus: TextSource,
        tokenizer: SpecialTokens,
        settings: ExampleSettings,
        seed: int,
        batch_size: int,
    ) -> None:
        """Raises ValueError for a corpus with no documents or with fewer examples than `batch_size`."""
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
        self.settings = settings
        self.batch_size = batch_size
        self._tokenizer = tokenizer
        self._order = find_order(corpus, settings, seed)
        self._group = lru_cache(maxsize=2)(partial(self._order.make_group, corpus, settings))
        if batch_size > self.num_examples:
            raise ValueError(
                f"batch_size is {batch_size}, the corpus gives {self.num_examples} examples of"
                f" {settings.max_seq_length} columns; lower batch_size or add text"
            )

    @property
    def num_examples(self) -> int:
        """Examples of one epoch."""
        return self._order.num_examples

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of an epoch; the batch after them goes on into the next epoch."""
        return self.num_examples // self.batch_size

    @property
    def row_counts(self) -> tuple[int, ...]:
        """The numbers of rows that batches have: one."""
        return (self.batch_size,)

    def rows(self, step: int) -> int:
        """The rows of a step's batch."""
        return self.batch_size

    def batch(self, step: int, part: int = 0, parts: int = 1, *, rows: int | None = None) -> Batch:
        """The batch of a step, [batch_size, max_seq_length], or one of `parts` equal parts of its rows."""
        if step < 0:
            raise ValueError(f"step is {step}; steps count from 0")
        if rows not in (None, self.batch_size):
            raise ValueError(f"rows is {rows}; a batch has {self.batch_size}")
        return self.examples(step * self.batch_size + np.arange(self.batch_size)[rows_of(self.batch_size, part, parts)])

    def examples(self, indices: Int[np.ndarray, " r"]) -> Batch:
        """The examples with these increasing indices, one a row."""
        parts = []
        for run in self._order.locate(indices):
            group = self._group(run.epoch, run.group)
            parts.append(assemble(group.text.tokens, group.instances.take(run.slots), self.settings, self._tokenizer))
        if not parts:
            return padding_rows(0, self.settings, self._tokenizer)
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def rows_of(rows: int, part: int, parts: int) -> slice:
    """The rows of one of `parts` equal parts, as each host of several reads its own."""
    share = rows // parts
    return slice(part * share, (part + 1) * share)


def evaluation_batches(
    corpus: TextSource,
    tokenizer: SpecialTokens,
    settings: ExampleSettings,
    seed: int,
    batch_size: int,
    *,
    max_examples: int | None = None,
) -> Iterator[Batch]:
    """One pass over the first epoch, or over a random `max_examples` of it: each example exactly once.

    The last batch is filled up with rows of padding (`example_weights` 0), so that all have one shape.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    batches = PretrainingBatches(corpus, tokenizer, settings, seed, 1)
    size = batches.num_examples if max_examples is None else min(max_examples, batches.num_examples)
    return _padded_batches(batches, tokenizer, size, batch_size)


def _padded_batches(
    batches: PretrainingBatches, tokenizer: SpecialTokens, size: int, batch_size: int
) -> Iterator[Batch]:
    for first in range(0, size, batch_size):
        indices = np.arange(first, first + batch_size)
        real = batches.examples(indices[indices < size])
        padding = padding_rows(int((indices >= size).sum()), batches.settings, tokenizer)
        yield {name: np.concatenate([real[name], padding[name]]) for name in real}


def assemble(
    tokens: Integer[np.ndarray, " n"],
    instances: Instances,
    settings: ExampleSettings,
    tokenizer: SpecialTokens,
) -> Batch:
    """Gathers the tokens of the instances into rows."""
    has_b = settings.pairs != "single"
    column = np.arange(settings.max_seq_length)
    a_end = (1 + instances.a_length)[:, None]  # column of the first [SEP]
    b_first = a_end + (settings.separators if has_b else 1)
    end = b_first + (instances.b_length + 1)[:, None] if has_b else b_first
    used = column < end
    in_b = column >= b_first
    source = column + np.where(in_b, instances.b_start[:, None] - b_first, instances.a_start[:, None] - 1)
    # Columns without a token of the text read any token: it is overwritten below.
    input_ids = np.take(tokens, source, mode="clip").astype(np.int32)
    input_ids[:, 0] = tokenizer.cls_id
    for separator in range(settings.separators if has_b else 1):
        np.put_along_axis(input_ids, a_end + separator, np.int32(tokenizer.sep_id), axis=1)
    np.put_along_axis(input_ids, end - 1, np.int32(tokenizer.sep_id), axis=1)
    input_ids[~used] = tokenizer.pad_id
    size = len(instances.labels)
    return {
        "input_ids": input_ids,
        "segment_ids": (in_b & used).astype(np.int32),
        "sequence_ids": used.astype(np.int32),
        "position_ids": np.where(used, column, 0).astype(np.int32),
        "example_columns": np.zeros((size, 1), np.int32),
        "next_sentence_labels": instances.labels[:, None].astype(np.int32),
        "example_weights": np.ones((size, 1), np.float32),
    }


def padding_rows(size: int, settings: ExampleSettings, tokenizer: SpecialTokens) -> Batch:
    """Rows without an example."""
    shape = (size, settings.max_seq_length)
    return {
        "input_ids": np.full(shape, tokenizer.pad_id, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
        "sequence_ids": np.zeros(shape, np.int32),
        "position_ids": np.zeros(shape, np.int32),
        "example_columns": np.zeros((size, 1), np.int32),
        "next_sentence_labels": np.zeros((size, 1), np.int32),
        "example_weights": np.zeros((size, 1), np.float32),
    }
