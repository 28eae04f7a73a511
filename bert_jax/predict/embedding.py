"""Vectors of texts: outputs of the encoder's layers, pooled or of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.model.bert import Bert
from bert_jax.model.config import BertConfig
from bert_jax.model.heads import Pooler
from bert_jax.model.layers import gather_columns
from bert_jax.predict.engine import COLUMNS, INPUTS, Engine
from bert_jax.predict.texts import Inputs, as_list, whole
from bert_jax.tasks.features import absolute_layers
from bert_jax.tasks.squad import own_tokens
from bert_jax.tasks.task import Params

POOLINGS = ("cls", "mean", "max", "pooler")
AT_ONE_TOKEN = ("cls", "pooler")


@dataclass(frozen=True)
class Embed:
    """``Call``: "vectors" of sequences [r, m, d], or of tokens [r, t, d] without pooling, in float32.

    layers: absolute; the outputs of several stand side by side. A one-sided encoder has seen a whole sequence only at
    its last token, or its first: "cls" and "pooler" are taken there, as ``BertWithHead`` does.
    """

    config: BertConfig
    layers: tuple[int, ...]
    pooling: str | None

    @property
    def inputs(self) -> tuple[str, ...]:
        return INPUTS + COLUMNS

    def __call__(self, params: Params, batch: Any) -> dict[str, Any]:
        ahead = self.config.attention_direction == "left_to_right"
        columns = batch["last_columns" if ahead else "example_columns"] if self.pooling in AT_ONE_TOKEN else None
        inputs = [batch[name] for name in INPUTS]
        found: Any = Bert(self.config).apply({"params": params}, *inputs, all_hidden_states=True, columns=columns)
        states = list(found.hidden_states)
        if columns is not None:  # of the last layer there is nothing else
            states[:-1] = [gather_columns(state, columns) for state in states[:-1]]
        x = jnp.concatenate([states[layer] for layer in self.layers], axis=-1)
        if self.pooling == "pooler":
            x = Pooler(self.config).apply({"params": params["pooler"]}, x)
        x = jnp.asarray(x, jnp.float32)
        return {"vectors": self._over_tokens(x, batch) if self.pooling in ("mean", "max") else x}

    def _over_tokens(self, x: Float[Array, "r t d"], batch: Any) -> Float[Array, "r m d"]:
        own = own_tokens(batch["sequence_ids"], batch["example_columns"].shape[1])
        if self.pooling == "max":
            return jnp.max(jnp.where(own[..., None], x[:, None], -jnp.inf), axis=2)
        weights = own.astype(jnp.float32)
        sums = jnp.einsum("rmt,rtd->rmd", weights, x)
        return sums / jnp.maximum(weights.sum(-1, keepdims=True), 1.0)


def embed(
    engine: Engine, inputs: Inputs, layers: Sequence[int], pooling: str | None, *, normalize: bool
) -> Float[np.ndarray, "n d"] | list[np.ndarray]:
    """[n, d], or without pooling a list of [tokens, d]; see ``Predictor.embed``.

    Raises:
        ValueError: layers that the model does not have, an unknown pooling.
    """
    if pooling is not None and pooling not in POOLINGS:
        raise ValueError(f"pooling={pooling!r} is not one of {', '.join(POOLINGS)}, or None for every token")
    numbers = [whole(layer, "a layer") for layer in as_list(layers, "no list of layers; give one, e.g. [-1]")]
    absolute = absolute_layers(numbers, engine.config)
    if not absolute:
        raise ValueError("layers is empty; give one or more, -1 is the last")
    if pooling == "pooler" and absolute != (engine.config.num_hidden_layers,):
        raise ValueError(f"pooling='pooler' is of the last layer alone; give layers=[-1], not {list(layers)}")
    width = engine.config.hidden_size * len(absolute)
    found = engine.run(Embed(engine.config, absolute, pooling), inputs.examples)
    vectors = found.get("vectors", np.zeros((0, width), np.float32))
    if normalize:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return vectors if pooling else np.split(vectors, inputs.examples.bounds[1:-1]) if len(inputs.owners) else []
