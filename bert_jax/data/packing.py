"""Several short sequences in one row: where each goes, and the arrays that come of it.

Attention stays inside one ``sequence_ids`` and positions restart: a packed sequence gets the same numbers as alone.
Every batch is a dictionary of arrays of static shape (r rows, t columns, m example slots a row, g sequences each):

    input_ids         int32   [r, t]      the sequences one after another, then padding
    segment_ids       int32   [r, t]      0 for [CLS] A [SEP], 1 for B [SEP], 0 for padding
    sequence_ids      int32   [r, t]      k for the k-th sequence of the row, 0 for padding
    position_ids      int32   [r, t]      0, 1, 2 ... in every sequence, 0 for padding
    example_columns   int32   [r, m * g]  column of each sequence's [CLS]; 0 for an empty slot
    last_columns      int32   [r, m * g]  column of each sequence's last token, where a one-sided model has seen all
    example_weights   float32 [r, m]      1, and 0 for an empty slot
    example_indices   int32   [r, m]      which example it is, -1 for an empty slot
    and the examples' targets, as ``Examples`` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as List
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.data.batches import rows_of
from bert_jax.data.keyed_random import key_of, permutation
from bert_jax.data.sequences import Sequence

Batch = dict[str, np.ndarray]
# A row never has more examples than its length over this: a static number of slots must be chosen.
COLUMNS_A_SLOT = 8
# Row lengths are multiples of this, so that few shapes serve any data.
LENGTH_STEP = 64
# Training steps looked at to choose how many rows a batch usually needs.
STEPS_LOOKED_AT = 256


class Placement(NamedTuple):
    """Of each item its row, its first column and its number in the row; and how many rows there are."""

    rows: Int[np.ndarray, " n"]
    columns: Int[np.ndarray, " n"]
    slots: Int[np.ndarray, " n"]
    num_rows: int


class Shape(NamedTuple):
    """Columns of a row and example slots of a row."""

    columns: int
    slots: int


def pack(lengths: Int[np.ndarray, " n"], size: int, slots: int) -> Placement:
    """Puts items into rows of ``size`` columns and at most ``slots`` items: best fit, the longest first.

    Best fit decreasing needs at most 11/9 of the fewest rows, plus one (Johnson 1973).

    Raises:
        ValueError: an item longer than a row.
    """
    return pack_in_shapes(lengths, (Shape(size, slots),))[0]


def pack_in_shapes(lengths: Int[np.ndarray, " n"], shapes: List[Shape]) -> tuple[Placement, Int[np.ndarray, " rows"]]:
    """``pack`` into rows of several shapes, the narrowest first; and of each row, which shape it has.

    An item that fits into no row begun opens the narrowest one that holds it.

    Raises:
        ValueError: an item longer than a row.
    """
    size = shapes[-1].columns
    if len(lengths) and lengths.max() > size:
        raise ValueError(f"an example has {lengths.max()} tokens, a row {size}; raise max_seq_length or shorten it")
    kinds = np.searchsorted([shape.columns for shape in shapes], lengths).tolist()
    rows, columns, numbers = (np.zeros(len(lengths), np.int64) for _ in range(3))
    open_rows: list[list[int]] = [[] for _ in range(size + 1)]  # by the columns left in them
    begun: list[int] = []  # of each row its shape
    counts: list[int] = []
    spaces = 0  # bit s is set where a row with s columns left is open
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        fitting = spaces >> length
        if fitting:
            space = length + (fitting & -fitting).bit_length() - 1
            row = open_rows[space].pop()
            if not open_rows[space]:
                spaces ^= 1 << space
        else:
            space, row = shapes[kinds[item]].columns, len(counts)
            begun.append(kinds[item])
            counts.append(0)
        width, slots = shapes[begun[row]]
        rows[item], columns[item], numbers[item] = row, width - space, counts[row]
        counts[row] += 1
        space -= length
        if space and counts[row] < slots:
            open_rows[space].append(row)
            spaces |= 1 << space
    return Placement(rows, columns, numbers, len(counts)), np.asarray(begun, np.int64)


@dataclass(frozen=True)
class Examples:
    """All examples of a split as flat arrays: n examples of g sequences each, s = n * g.

    Attributes:
        ids, segment_ids: of all sequences, one after another.
        bounds: where each sequence begins, and the end of the last: [s + 1].
        group: g, the sequences that make one example (4 choices: 4), always in one row.
        targets: name -> [n, ...]; in a batch [r, m, ...], 0 for an empty slot.
        token_targets: name -> (values [tokens, ...], the value of padding); in a batch [r, t, ...].
        column_targets: name -> [s, ...] columns counted in the sequence; in a batch [r, m * g, ...], counted in the
            row.
    """

    ids: Int[np.ndarray, " tokens"]
    segment_ids: Int[np.ndarray, " tokens"]
    bounds: Int[np.ndarray, " s_plus_1"]
    group: int = 1
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    token_targets: Mapping[str, tuple[np.ndarray, int | float]] = field(default_factory=dict)
    column_targets: Mapping[str, Int[np.ndarray, "s *each"]] = field(default_factory=dict)

    @classmethod
    def of(cls, sequences: List[Sequence], **others: object) -> Examples:
        """From sequences, example by example."""
        bounds = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum([len(sequence.ids) for sequence in sequences], out=bounds[1:])
        if not sequences:
            return cls(np.zeros(0, np.int32), np.zeros(0, np.int32), bounds, **others)  # pyright: ignore
        ids = np.concatenate([sequence.ids for sequence in sequences])
        segments = np.concatenate([sequence.segment_ids for sequence in sequences])
        return cls(ids, segments, bounds, **others)  # pyright: ignore

    def __len__(self) -> int:
        return (len(self.bounds) - 1) // self.group

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """Tokens of each example, of all its sequences."""
        return np.diff(self.bounds[:: self.group])

    def sha256(self) -> str:
        """Of tokens and targets, but for those of tokens that are no integers: stored features."""
        digest = hashlib.sha256()
        tokens = {name: values for name, (values, _) in self.token_targets.items() if values.dtype.kind in "iu"}
        arrays = {"ids": self.ids, "segment_ids": self.segment_ids, "bounds": self.bounds}
        for name, values in (arrays | dict(self.targets) | tokens | dict(self.column_targets)).items():
            digest.update(f"{name} {values.dtype} {values.shape}".encode())
            if values.size:  # there is no buffer of nothing
                digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def row_shape(examples: Examples, max_seq_length: int) -> Shape:
    """The shortest rows that hold the longest example; whole sequences no longer than ``max_seq_length``.

    Raises:
        ValueError: a sequence longer than ``max_seq_length``.
    """
    longest = int(np.diff(examples.bounds).max(initial=0))
    if longest > max_seq_length:
        raise ValueError(
            f"a sequence has {longest} tokens, max_seq_length is {max_seq_length}; raise it or cut windows"
        )
    most = max_seq_length if examples.group == 1 else examples.group * max_seq_length
    needed = max(int(examples.lengths.max(initial=1)), 2 * LENGTH_STEP)
    columns = min(-(-needed // LENGTH_STEP) * LENGTH_STEP, most)
    return Shape(columns, max(1, columns // (COLUMNS_A_SLOT * examples.group)))


def epoch_order(seed: int, epoch: int, size: int) -> Int[np.ndarray, " n"]:
    """The examples of an epoch, in the order in which training takes them."""
    return permutation(key_of(key_of(seed, size), epoch), size)


class PackedBatches:
    """Training batches of exactly ``batch_size`` examples, packed: a pure function of (seed, step).

    Each epoch is a permutation of its own; a batch may go from one epoch into the next. The number of rows is one of
    ``row_counts``, a handful: what half of the batches need, what nearly all need, and enough for any.

    Args:
        row_multiple: row counts are multiples of it (devices along the rows, times accumulation steps).
    """

    def __init__(
        self,
        examples: Examples,
        *,
        pad_id: int,
        seed: int,
        batch_size: int,
        max_seq_length: int,
        row_multiple: int = 1,
    ) -> None:
        if len(examples) < 1:
            raise ValueError("no example to train on; check the training file")
        self.examples, self.pad_id, self.batch_size = examples, pad_id, batch_size
        self.shape = row_shape(examples, max_seq_length)
        self.seed = seed
        self._epoch: tuple[int, Int[np.ndarray, " n"]] = (-1, np.zeros(0, np.int64))
        self.row_counts = self._choose_row_counts(row_multiple)

    @property
    def num_examples(self) -> int:
        """Examples of an epoch."""
        return len(self.examples)

    def indices(self, step: int) -> Int[np.ndarray, " batch"]:
        """The examples of a step."""
        numbers = step * self.batch_size + np.arange(self.batch_size)
        epochs, within = numbers // len(self.examples), numbers % len(self.examples)
        result = np.empty(self.batch_size, np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            result[chosen] = self._order(int(epoch))[within[chosen]]
        return result

    def rows(self, step: int) -> int:
        """The rows of a step's batch."""
        return self._rows(self._placement(self.indices(step)))

    def batch(self, step: int, part: int = 0, parts: int = 1, *, rows: int | None = None) -> Batch:
        """The global batch of a step, or one of ``parts`` equal parts of its rows.

        Args:
            rows: more than the batch has, filled up with rows of padding.
        """
        indices = self.indices(step)
        placement = self._placement(indices)
        rows = rows or self._rows(placement)
        whole = assemble(self.examples, indices, placement, rows, self.shape, self.pad_id)
        return {name: values[rows_of(rows, part, parts)] for name, values in whole.items()}

    def _placement(self, indices: Int[np.ndarray, " batch"]) -> Placement:
        return pack(self.examples.lengths[indices], *self.shape)

    def _rows(self, placement: Placement) -> int:
        return next(count for count in self.row_counts if count >= placement.num_rows)

    def _order(self, epoch: int) -> Int[np.ndarray, " n"]:
        if self._epoch[0] != epoch:
            self._epoch = epoch, epoch_order(self.seed, epoch, len(self.examples))
        return self._epoch[1]

    def _choose_row_counts(self, multiple: int) -> tuple[int, ...]:
        steps = range(min(STEPS_LOOKED_AT, -(-len(self.examples) // self.batch_size)))
        needed = [self._placement(self.indices(step)).num_rows for step in steps]
        counts = (*np.quantile(needed, (0.5, 0.98), method="higher").tolist(), self.batch_size)
        return tuple(sorted({-(-int(count) // multiple) * multiple for count in counts}))


def packed_batches(
    examples: Examples, *, pad_id: int, max_seq_length: int, tokens_a_batch: int, row_multiple: int = 1
) -> Iterator[Batch]:
    """Every example once, in batches of one shape, for evaluation and prediction; ``example_indices`` tells which.

    A batch has about ``tokens_a_batch`` for each of ``row_multiple`` devices, and no more rows than are needed.
    """
    shape = row_shape(examples, max_seq_length)
    placement = pack(examples.lengths, *shape)
    rows = min(max(1, tokens_a_batch // shape.columns) * row_multiple, max(1, placement.num_rows))
    rows = -(-rows // row_multiple) * row_multiple
    order = np.argsort(placement.rows, kind="stable")
    first_of_row = np.searchsorted(placement.rows[order], np.arange(placement.num_rows + rows))
    for first in range(0, placement.num_rows, rows):
        chosen = order[first_of_row[first] : first_of_row[first + rows]]
        part = Placement(placement.rows[chosen] - first, placement.columns[chosen], placement.slots[chosen], rows)
        yield assemble(examples, chosen, part, rows, shape, pad_id)


class Unpacked:
    """Outputs of packed batches, back in the order of the examples; ``arrays`` holds them by name.

    An output of a batch is [r, m, ...], which becomes [n, ...], or [r, t, ...], which becomes [tokens, ...] as
    ``Examples.ids``.
    """

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.arrays: dict[str, np.ndarray] = {}

    def add(self, batch: Batch, outputs: Mapping[str, np.ndarray]) -> None:
        """Takes over the outputs of one batch."""
        real = batch["example_weights"] > 0
        tokens = batch["sequence_ids"] > 0
        for name, values in outputs.items():
            if values.shape[:2] == batch["input_ids"].shape:
                self._array(name, values, len(self.examples.ids))[self._places(batch, tokens)] = values[tokens]
            else:
                self._array(name, values, len(self.examples))[batch["example_indices"][real]] = values[real]

    def _array(self, name: str, values: np.ndarray, length: int) -> np.ndarray:
        if name not in self.arrays:
            self.arrays[name] = np.zeros((length, *values.shape[2:]), values.dtype)
        return self.arrays[name]

    def _places(self, batch: Batch, tokens: np.ndarray) -> np.ndarray:
        """Of each real token of a batch, its place in ``Examples.ids``."""
        group = self.examples.group
        rows = np.nonzero(tokens)[0]
        slots = batch["sequence_ids"][tokens] - 1
        sequences = batch["example_indices"][rows, slots // group].astype(np.int64) * group + slots % group
        return self.examples.bounds[sequences] + batch["position_ids"][tokens]


def assemble(
    examples: Examples, indices: Int[np.ndarray, " n"], placement: Placement, rows: int, shape: Shape, pad_id: int
) -> Batch:
    """The arrays of the examples ``indices`` at their places."""
    group, (columns, slots) = examples.group, shape
    sequences = (indices[:, None] * group + np.arange(group)).ravel()
    starts = examples.bounds[sequences]
    lengths = examples.bounds[sequences + 1] - starts
    grouped = lengths.reshape(-1, group)
    first = (placement.columns[:, None] + np.cumsum(grouped, 1) - grouped).ravel()  # column of each sequence
    row = np.repeat(placement.rows, group)
    slot = (placement.slots[:, None] * group + np.arange(group)).ravel()
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    source = np.repeat(starts, lengths) + within
    place = np.repeat(row * columns + first, lengths) + within

    def tokens(values: np.ndarray, fill: int | float, dtype: np.dtype | type = np.int32) -> np.ndarray:
        flat = np.full((rows * columns, *values.shape[1:]), fill, dtype)
        flat[place] = values
        return flat.reshape(rows, columns, *values.shape[1:])

    def of_sequences(values: np.ndarray) -> np.ndarray:
        array = np.zeros((rows, slots * group, *values.shape[1:]), np.int32)
        array[row, slot] = values
        return array

    def of_examples(values: np.ndarray, fill: int | float = 0) -> np.ndarray:
        array = np.full((rows, slots, *values.shape[1:]), fill, values.dtype)
        array[placement.rows, placement.slots] = values
        return array

    batch = {
        "input_ids": tokens(examples.ids[source], pad_id),
        "segment_ids": tokens(examples.segment_ids[source], 0),
        "sequence_ids": tokens(np.repeat(slot + 1, lengths), 0),
        "position_ids": tokens(within, 0),
        "example_columns": of_sequences(first),
        "last_columns": of_sequences(first + lengths - 1),
        "example_weights": of_examples(np.ones(len(indices), np.float32)),
        "example_indices": of_examples(indices.astype(np.int32), -1),
    }
    batch |= {name: of_examples(values[indices]) for name, values in examples.targets.items()}
    for name, (values, fill) in examples.token_targets.items():
        batch[name] = tokens(values[source], fill, values.dtype)
    for name, values in examples.column_targets.items():
        batch[name] = of_sequences(first.reshape(-1, *(1,) * (values.ndim - 1)) + values[sequences])
    return batch
