"""Token ids -> vectors: word + segment + position, layer norm, dropout (BERT, section 3 and figure 2).

With factorised embeddings a dense layer follows (ALBERT, section 3.1).
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bert_jax.model.config import BertConfig
from bert_jax.model.dropout import dropout
from bert_jax.model.layers import Dense, LayerNorm, compute_dtype, kernel_init
from bert_jax.model.mesh import ROWS, TENSOR, on_mesh


class Embedding(nn.Module):
    """A table of `num_embeddings` used rows, padded with zero rows to `padded`. Parameter: embedding [padded, e]."""

    config: BertConfig
    num_embeddings: int
    padded: int | None = None

    def setup(self) -> None:
        shape = (self.padded or self.num_embeddings, self.config.embedding_width)
        table = self.param("embedding", self._init(), shape, jnp.float32)
        # What other devices keep of it for ``fsdp`` is fetched, once for the input and the output.
        self.table = table if self.padded is None else on_mesh(table, TENSOR, None)

    def __call__(self, ids: Int[Array, "r t"]) -> Float[Array, "r t e"]:
        # Ids are checked on the host (`check_batch`): inside a compiled step JAX would clamp a bad one
        # silently.
        rows = jnp.take(self.table, ids, axis=0, mode="clip").astype(compute_dtype(self.config))
        return on_mesh(rows, ROWS, None, None)

    def _init(self) -> Callable[..., Array]:
        def init(key: PRNGKeyArray, shape: tuple[int, int], dtype: Any) -> Array:
            used = kernel_init(self.config)(key, (self.num_embeddings, shape[1]), dtype)
            return jnp.pad(used, ((0, shape[0] - self.num_embeddings), (0, 0)))

        return init


class Embeddings(nn.Module):
    """The sum of the three embeddings, normalised. Parameters: word, position, segment (embedding), layer_norm.

    With embedding_size given also projection/{kernel [e, d], bias [d]}.
    """

    config: BertConfig

    def setup(self) -> None:
        config = self.config
        self.word = Embedding(config, config.vocab_size, config.padded_vocab_size)
        self.position = Embedding(config, config.max_position_embeddings)
        self.segment = Embedding(config, config.type_vocab_size)
        self.layer_norm = LayerNorm(config)
        if config.embedding_size is not None:
            self.projection = Dense(config, config.hidden_size)

    def __call__(
        self,
        input_ids: Int[Array, "r t"],
        segment_ids: Int[Array, "r t"] | None = None,
        position_ids: Int[Array, "r t"] | None = None,
        *,
        dropout_key: PRNGKeyArray | None = None,
    ) -> Float[Array, "r t d"]:
        if segment_ids is None:
            segment_ids = jnp.zeros_like(input_ids)
        if position_ids is None:
            position_ids = jnp.broadcast_to(jnp.arange(input_ids.shape[1], dtype=jnp.int32), input_ids.shape)
        total = self.word(input_ids) + self.segment(segment_ids) + self.position(position_ids)
        x = dropout(self.layer_norm(total), self.config.hidden_dropout_prob, dropout_key)
        return x if self.config.embedding_size is None else self.projection(x)

    def word_table(self) -> Float[Array, "v e"]:
        """The word embedding, to be tied to the output of the masked-LM head."""
        return self.word.table
