"""What is put on top of the encoder for pre-training: pooler, masked language model, next sentence prediction."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_jax.model.config import BertConfig
from bert_jax.model.layers import Dense, LayerNorm, activation, compute_dtype
from bert_jax.model.mesh import ROWS, TENSOR, on_mesh

# Added to the logits of the padding rows of the vocabulary: their probability is exactly 0, their gradient
# too.
MASKED_LOGIT = -1e9


class Pooler(nn.Module):
    """tanh(dense) of the vector at each example's [CLS]; no dropout. Parameters: kernel [d, d], bias [d]."""

    config: BertConfig

    def setup(self) -> None:
        self.dense = Dense(self.config, self.config.hidden_size)
        nn.share_scope(self, self.dense)  # pooler/kernel, not pooler/dense/kernel

    def __call__(self, first: Float[Array, "r m d"]) -> Float[Array, "r m d"]:
        return jnp.tanh(self.dense(first))


class MaskedLanguageModelHead(nn.Module):
    """Logits over the vocabulary, of the vectors at the predicted positions.

    dense + activation + layer norm, times the word embedding (tied), plus a bias: the original's
    `get_masked_lm_output`. Parameters: dense, layer_norm, bias [padded v].
    """

    config: BertConfig

    @nn.compact
    def __call__(self, hidden: Float[Array, "r p d"], word_table: Float[Array, "v e"]) -> Float[Array, "r p v"]:
        config = self.config
        x = Dense(config, config.embedding_width, name="dense")(hidden)
        x = LayerNorm(config, name="layer_norm")(activation(x, config.hidden_act))
        bias = self.param("bias", nn.initializers.zeros, (config.padded_vocab_size,), jnp.float32)
        is_word = jnp.arange(config.padded_vocab_size) < config.vocab_size
        table = word_table.astype(compute_dtype(config))
        logits = jnp.einsum("rpe,ve->rpv", x, table, preferred_element_type=jnp.float32)
        return on_mesh(logits + jnp.where(is_word, bias, MASKED_LOGIT), ROWS, None, TENSOR)


class NextSentenceHead(nn.Module):
    """Two logits per example from the pooled vector: 0 = is next, 1 = random (or swapped); no dropout.

    Parameters: kernel [d, 2], bias [2].
    """

    config: BertConfig

    def setup(self) -> None:
        self.dense = Dense(self.config, 2)
        nn.share_scope(self, self.dense)

    def __call__(self, pooled: Float[Array, "r m d"]) -> Float[Array, "r m c"]:
        return self.dense(pooled).astype(jnp.float32)
