"""The encoder with one small layer on top, for all tasks of the paper (section 4), and the ablations' variants."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bert_jax.model.bert import Bert
from bert_jax.model.bilstm import BiLSTM
from bert_jax.model.config import BertConfig
from bert_jax.model.dropout import dropout
from bert_jax.model.embeddings import Embeddings
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import Pooler
from bert_jax.model.layers import Dense, gather_columns


class BertWithHead(nn.Module):
    """Logits for each sequence, or for each token.

    For sequences (classification, regression, multiple choice): dropout and a dense layer on the pooled vector of
    [CLS]. For tokens (tagging, question answering): a dense layer on the last hidden states, after dropout where
    ``head_dropout``.

    A one-sided encoder has seen a whole sequence only at its last token ([SEP]), or its first: a sequence is
    summarised there (the paper does not say where). With ``bilstm_size``, the hidden states go through a new
    two-layer BiLSTM of so many units in each direction ("+ BiLSTM", Table 5); with ``concatenated``, those of this
    left-to-right encoder and of a right-to-left one stand side by side, as ELMo's. Both have no pooler: the vectors
    at the two ends of a sequence, each of its direction, go to the dense layer.

    Parameters: those of ``Bert``; pooler; {head}/{kernel [d, c], bias [c]}; bilstm/..., right_to_left/{embeddings,
    encoder}/... where asked for.
    """

    config: BertConfig
    head: str
    num_outputs: int
    for_tokens: bool
    head_dropout: bool = True
    bilstm_size: int = 0
    concatenated: bool = False

    @nn.compact
    def __call__(
        self,
        input_ids: Int[Array, "r t"],
        segment_ids: Int[Array, "r t"],
        sequence_ids: Int[Array, "r t"],
        position_ids: Int[Array, "r t"],
        first_columns: Int[Array, "r m"],
        last_columns: Int[Array, "r m"],
        *,
        dropout_key: PRNGKeyArray | None = None,
    ) -> Float[Array, "r _ c"]:
        """Float32 logits [r, m, c], or [r, t, c] for tokens. The columns are each sequence's first and last."""
        keys = (None,) * 4 if dropout_key is None else jax.random.split(dropout_key, 4)
        config, wide = self.config, self.bilstm_size > 0 or self.concatenated
        columns = None
        if not (self.for_tokens or wide):
            columns = last_columns if config.attention_direction == "left_to_right" else first_columns
        x = Embeddings(config, name="embeddings")(input_ids, segment_ids, position_ids, dropout_key=keys[0])
        x, _ = Encoder(config, name="encoder")(x, sequence_ids, dropout_key=keys[1], columns=columns)
        if self.concatenated:
            right_to_left = Bert(config.replace(attention_direction="right_to_left"), name="right_to_left")
            other = right_to_left(input_ids, segment_ids, sequence_ids, position_ids, dropout_key=keys[2])
            x = jnp.concatenate([x, other.last_hidden_state], axis=-1)
        if self.bilstm_size:
            x = BiLSTM(self.bilstm_size, num_layers=2, name="bilstm")(x, sequence_ids)
        if not self.for_tokens and wide:
            x = ends_of_sequences(x, first_columns, last_columns)
        elif not self.for_tokens:
            x = Pooler(config, name="pooler")(x)
        if self.head_dropout:
            x = dropout(x, config.hidden_dropout_prob, keys[3])
        return Dense(config, self.num_outputs, name=self.head)(x).astype(jnp.float32)


def ends_of_sequences(
    x: Float[Array, "r t d"], first_columns: Int[Array, "r m"], last_columns: Int[Array, "r m"]
) -> Float[Array, "r m d"]:
    """Left-to-right features (the first half) at each sequence's last column, right-to-left ones at its first."""
    ahead, back = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([gather_columns(ahead, last_columns), gather_columns(back, first_columns)], axis=-1)
