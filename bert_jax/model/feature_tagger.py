"""The paper's feature-based tagger (section 5.3): a two-layer BiLSTM and a dense layer on frozen features."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bert_jax.model.bilstm import BiLSTM
from bert_jax.model.config import BertConfig
from bert_jax.model.dropout import dropout
from bert_jax.model.layers import Dense, compute_dtype


class FeatureTagger(nn.Module):
    """Logits for each token, of the outputs of some layers of an encoder.

    The layers are concatenated, or with ``weighted_sum`` summed with learned weights: a softmax, equal at first and
    without ELMo's factor gamma (the paper does not say how its weights came about). Dropout, at the encoder's rate,
    before the dense layer.

    Parameters: layer_weights [l] for a weighted sum, bilstm/..., {head}/{kernel [2h, c], bias [c]}.
    """

    config: BertConfig
    head: str
    num_outputs: int
    bilstm_size: int
    weighted_sum: bool = False

    @nn.compact
    def __call__(
        self,
        features: Float[Array, "r t l d"],
        sequence_ids: Int[Array, "r t"],
        *,
        dropout_key: PRNGKeyArray | None = None,
    ) -> Float[Array, "r t c"]:
        """Float32 logits."""
        x = features.astype(compute_dtype(self.config))
        if self.weighted_sum:
            scores = self.param("layer_weights", nn.initializers.zeros, (x.shape[2],), jnp.float32)
            x = jnp.einsum("rtld,l->rtd", x, jax.nn.softmax(scores).astype(x.dtype))
        else:
            x = x.reshape(*x.shape[:2], -1)
        x = BiLSTM(self.bilstm_size, num_layers=2, name="bilstm")(x, sequence_ids)
        x = dropout(x, self.config.hidden_dropout_prob, dropout_key)
        return Dense(self.config, self.num_outputs, name=self.head)(x).astype(jnp.float32)
