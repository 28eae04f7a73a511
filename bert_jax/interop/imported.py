"""What a reader of another program's directory gives."""

from __future__ import annotations

from typing import Any, NamedTuple

from bert_jax.model.config import BertConfig


class Imported(NamedTuple):
    """A model of another program.

    Attributes:
        config: of the encoder.
        params: a nested dict of float32 arrays at our paths.
        labels: names of the classes or tags, of a model with such a head.
        unexpected: tensors of the file that have no place in our model; nothing of them was read.
    """

    config: BertConfig
    params: dict[str, Any]
    labels: tuple[str, ...] | None
    unexpected: list[str]
