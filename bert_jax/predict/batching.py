"""Which rows are computed together: a handful of shapes for sequences of any number and lengths.

Several short sequences share a row (``data/packing.py``); attention stays inside each, so that a sequence gets the
same numbers, to rounding, alone and in any company. Many rows make full batches of one shape for each width; what is
left over, and a small call as a whole, runs row by row, each row as narrow as it can be: one short text costs what it
is long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.data.packing import COLUMNS_A_SLOT, Placement, Shape, pack_in_shapes

# Widths of rows, besides the longest that the model takes: single rows have any of them, rows of full batches those
# that hold a few sequences.
WIDTHS = (32, 64, 128, 256, 512)
NARROWEST_OF_BATCH = 128


class Part(NamedTuple):
    """Rows to be computed together: which items they hold, where each goes, and the shape of a row."""

    items: Int[np.ndarray, " n"]
    placement: Placement
    shape: Shape


@dataclass(frozen=True)
class Batching:
    """How a model's sequences become batches.

    Attributes:
        longest: tokens of the longest sequence.
        hidden_size: of the model: attention costs as much as the rest of a layer in rows twice as wide as this.
        tokens: of a full batch.
        single_share: rows left over run one by one up to this share of a full batch; more of them are cheaper as one
            that is padded.
    """

    longest: int
    hidden_size: int
    tokens: int
    single_share: float

    @property
    def widths(self) -> tuple[int, ...]:
        """Of single rows, ascending."""
        return (*(width for width in WIDTHS if width < self.longest), self.longest)

    @property
    def batch_widths(self) -> tuple[int, ...]:
        """Of rows in full batches, ascending."""
        return tuple(width for width in self.widths if width >= NARROWEST_OF_BATCH) or (self.longest,)

    def rows(self, width: int) -> int:
        """How many rows of this width a full batch has."""
        return max(1, self.tokens // width)

    def plan(self, lengths: Int[np.ndarray, " n"], slots: int | None = None) -> list[Part]:
        """The batches that hold every item once: the cheapest of those that begin rows at one width or another.

        Args:
            lengths: in tokens, none above ``longest``.
            slots: most items of a row; None: by its width.
        """
        shapes = [Shape(width, slots or max(1, width // COLUMNS_A_SLOT)) for width in self.batch_widths]
        plans = [list(self._parts(lengths, shapes[first:], slots)) for first in range(len(shapes))]
        return min(plans, key=self._cost)

    def _cost(self, parts: Sequence[Part]) -> float:
        """In tokens: of every row's columns, padded or not, with the part of attention that grows with the width."""
        tokens = [(part.placement.num_rows * part.shape.columns, part.shape.columns) for part in parts]
        return sum((count * (1 + columns / (2 * self.hidden_size)) for count, columns in tokens), 0.0)

    def _parts(self, lengths: Int[np.ndarray, " n"], shapes: list[Shape], slots: int | None) -> Iterator[Part]:
        placement, kinds = pack_in_shapes(lengths, shapes)
        used = np.bincount(placement.rows, weights=lengths, minlength=placement.num_rows).astype(np.int64)
        rows = _Rows(placement)
        for kind, shape in enumerate(shapes):
            own = np.flatnonzero(kinds == kind)
            own = own[np.argsort(-used[own], kind="stable")]  # the emptiest are left over
            size = self.rows(shape.columns)
            whole = len(own) - len(own) % size
            if len(own) - whole > self.single_share * size:
                whole = len(own)
            for first in range(0, whole, size):
                yield rows.part(own[first : first + size], shape, size)
            for row in own[whole:].tolist():
                yield rows.part(np.asarray([row]), self._narrowest(int(used[row]), rows.counts[row], slots), 1)

    def _narrowest(self, columns: int, count: int, slots: int | None) -> Shape:
        """Of a single row that holds ``count`` items in its first ``columns``."""
        shapes = [Shape(width, slots or max(1, width // COLUMNS_A_SLOT)) for width in self.widths]
        return next(shape for shape in shapes if shape.columns >= columns and shape.slots >= count)


class _Rows:
    """The items of each row of a placement."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.counts = np.bincount(placement.rows, minlength=placement.num_rows).tolist()
        order = np.argsort(placement.rows, kind="stable")
        self._items = np.split(order, np.cumsum(self.counts)[:-1]) if self.counts else []

    def part(self, rows: Int[np.ndarray, " k"], shape: Shape, size: int) -> Part:
        """A batch of ``size`` rows, of which these are the first."""
        items = np.concatenate([self._items[row] for row in rows.tolist()])
        counts = [self.counts[row] for row in rows.tolist()]
        columns, slots = self.placement.columns[items], self.placement.slots[items]
        return Part(items, Placement(np.repeat(np.arange(len(rows)), counts), columns, slots, size), shape)
