"""A model on its device, and its compiled functions: sequences in, arrays out in their order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from bert_jax.data.packing import Batch, Examples, Placement, Shape, Unpacked, assemble
from bert_jax.data.prefetch import one_behind
from bert_jax.data.sequences import Sequence
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.model.config import BertConfig
from bert_jax.predict.batching import Batching, Part
from bert_jax.tasks.fine_tuning import checked, tokens_a_batch
from bert_jax.tasks.task import Params

INPUTS = ("input_ids", "segment_ids", "sequence_ids", "position_ids")
COLUMNS = ("example_columns", "last_columns")


@runtime_checkable
class Call(Hashable, Protocol):
    """What is computed of a batch: traceable, and equal to another that computes the same.

    Attributes:
        inputs: names of the batch's arrays that it needs; of the parameters the compiler takes what is used.
    """

    @property
    def inputs(self) -> tuple[str, ...]: ...
    def __call__(self, params: Params, batch: Any) -> dict[str, Any]:
        """Arrays [r, t, ...], or [r, m * k, ...] where an item has k results."""
        ...


class Engine:
    """A model and what was compiled of it; each ``Call`` is compiled once a shape, on first use.

    Attributes: ``config``, ``tokenizer``, ``params`` (on this process's first device), ``name``, ``batching``.
    """

    def __init__(self, config: BertConfig, tokenizer: Tokenizer, params: Params, name: str) -> None:
        self.config, self.tokenizer, self.name = config, tokenizer, name
        self.params = jax.device_put(params)
        # A row alone uses a CPU nearly as well as a full batch; elsewhere it leaves most of the device idle.
        single_share = 0.75 if jax.default_backend() == "cpu" else 0.03
        self.batching = Batching(config.max_position_embeddings, config.hidden_size, tokens_a_batch(), single_share)
        self._compiled: dict[Call, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without what was compiled, which cannot be pickled and is soon there again."""
        return {**self.__dict__, "_compiled": {}}

    @property
    def num_compiled(self) -> int:
        """Programs compiled so far: one for each call and shape."""
        return sum(function._cache_size() for function in self._compiled.values())

    def run(self, call: Call, examples: Examples, slots: int | None = None) -> dict[str, np.ndarray]:
        """The outputs for all examples, packed meanwhile: [n, ...], or [tokens, ...] as ``examples.ids``.

        {} for no example.

        Args:
            slots: most examples of a row; None: by its width.

        Raises:
            ValueError: ids or lengths that the model has no place for.
        """
        examples = checked(examples, self.config)
        unpacked = Unpacked(examples)
        parts = self.batching.plan(examples.lengths, slots) if len(examples) else []
        for batch, outputs in one_behind(self._started(call, examples, part) for part in parts):
            unpacked.add(batch, {name: _by_slot(values, batch) for name, values in jax.device_get(outputs).items()})
        return unpacked.arrays

    def run_alone(self, call: Call, sequence: Sequence) -> dict[str, np.ndarray]:
        """The outputs for one sequence in a row of its own: as the call gives them, of one row."""
        examples = checked(Examples.of([sequence]), self.config)
        zero, length = np.zeros(1, np.int64), len(sequence.ids)
        width = next(width for width in self.batching.widths if width >= length)
        _, outputs = self._started(call, examples, Part(zero, Placement(zero, zero, zero, 1), Shape(width, 1)))
        return jax.device_get(outputs)

    def _started(self, call: Call, examples: Examples, part: Part) -> tuple[Batch, dict[str, Any]]:
        """A batch, and its outputs, which the device may still be at."""
        rows = part.placement.num_rows
        batch = assemble(examples, part.items, part.placement, rows, part.shape, self.tokenizer.pad_id)
        # Columns of several a slot come beside each other, so that few slots and many have one shape.
        inputs = {name: batch[name].reshape(rows, -1) for name in call.inputs}
        if call not in self._compiled:
            self._compiled[call] = jax.jit(call)
        return batch, self._compiled[call](self.params, inputs)


def _by_slot(values: np.ndarray, batch: Batch) -> np.ndarray:
    """[r, t, ...] as it is, [r, m * k, ...] -> [r, m, k, ...], or [r, m, ...] where k is 1."""
    rows, slots = batch["example_weights"].shape
    if values.shape[1] in (slots, batch["input_ids"].shape[1]):
        return values
    return values.reshape(rows, slots, values.shape[1] // slots, *values.shape[2:])
