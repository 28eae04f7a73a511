"""The whole model: the encoder on its own (`Bert`) and with the two pre-training heads (`BertForPreTraining`)."""

from collections.abc import Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bert_jax.model.config import BertConfig
from bert_jax.model.embeddings import Embeddings
from bert_jax.model.encoder import Encoder
from bert_jax.model.heads import MaskedLanguageModelHead, NextSentenceHead, Pooler


class EncoderOutput(NamedTuple):
    """last_hidden_state [r, t, d]; hidden_states: l + 1 arrays [r, t, d], the embedding output first, or None."""

    last_hidden_state: Array
    hidden_states: tuple[Array, ...] | None = None


class Bert(nn.Module):
    """Embeddings and encoder.

    Parameters, all float32 (their paths are API: rules for decay, freezing and sharding match them):

        embeddings/word/embedding      [padded v, e]   rows from vocab_size on are zero and inert
        embeddings/position/embedding  [max_position_embeddings, e]
        embeddings/segment/embedding   [type_vocab_size, e]
        embeddings/layer_norm/{scale,bias}                          [e]
        embeddings/projection/kernel   [e, d], …/bias [d]           where embedding_size is given
        encoder/layer_{i}/attention/{query,key,value,output}/kernel [d, d], …/bias [d]
        encoder/layer_{i}/attention/layer_norm/{scale,bias}         [d]
        encoder/layer_{i}/feed_forward/intermediate/kernel          [d, f], …/bias [f]
        encoder/layer_{i}/feed_forward/output/kernel                [f, d], …/bias [d]
        encoder/layer_{i}/feed_forward/layer_norm/{scale,bias}      [d]

    i counts the layers, or the groups of layers that share their parameters (ALBERT).
    """

    config: BertConfig

    def setup(self) -> None:
        self.embeddings = Embeddings(self.config)
        self.encoder = Encoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "r t"],
        segment_ids: Int[Array, "r t"] | None = None,
        sequence_ids: Int[Array, "r t"] | None = None,
        position_ids: Int[Array, "r t"] | None = None,
        *,
        dropout_key: PRNGKeyArray | None = None,
        all_hidden_states: bool = False,
        columns: Int[Array, "r k"] | None = None,
    ) -> EncoderOutput:
        """Encodes a batch. Left out, `segment_ids` are 0, `sequence_ids` all one sequence, positions count from 0.

        `dropout_key` None means no dropout (evaluation). With `columns` the last hidden state is [r, k, d]: those
        columns only, for less work.
        """
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        x = self.embeddings(input_ids, segment_ids, position_ids, dropout_key=keys[0])
        last, outputs = self.encoder(x, sequence_ids, dropout_key=keys[1], columns=columns)
        return EncoderOutput(last, (x, *outputs) if all_hidden_states else None)


class BertForPreTraining(nn.Module):
    """The encoder with the masked-LM and next-sentence heads.

    Parameters: those of `Bert` at the same paths (a pre-trained tree's `embeddings` and `encoder` are a
    `Bert` tree) and

        pooler/{kernel [d, d], bias [d]}
        mlm_head/dense/{kernel [d, e], bias [e]}, mlm_head/layer_norm/{scale,bias} [e], mlm_head/bias [padded v]
        nsp_head/{kernel [d, 2], bias [2]}

    The masked-LM decoder is the word embedding itself. `next_sentence` False leaves out the pooler and the
    NSP head (the paper's "No NSP", table 5); its logits are then None.
    """

    config: BertConfig
    next_sentence: bool = True

    def setup(self) -> None:
        self.embeddings = Embeddings(self.config)
        self.encoder = Encoder(self.config)
        self.mlm_head = MaskedLanguageModelHead(self.config)
        if self.next_sentence:
            self.pooler = Pooler(self.config)
            self.nsp_head = NextSentenceHead(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "r t"],
        segment_ids: Int[Array, "r t"] | None,
        sequence_ids: Int[Array, "r t"] | None,
        position_ids: Int[Array, "r t"] | None,
        masked_positions: Int[Array, "r p"],
        example_columns: Int[Array, "r m"],
        *,
        dropout_key: PRNGKeyArray | None = None,
    ) -> tuple[Float[Array, "r p v"], Float[Array, "r m c"] | None]:
        """Returns float32 masked-LM logits at `masked_positions` and next-sentence logits at `example_columns`."""
        keys = (None, None) if dropout_key is None else jax.random.split(dropout_key)
        x = self.embeddings(input_ids, segment_ids, position_ids, dropout_key=keys[0])
        wanted = [masked_positions, example_columns] if self.next_sentence else [masked_positions]
        columns, predictions = jnp.concatenate(wanted, axis=1), masked_positions.shape[1]
        hidden, _ = self.encoder(x, sequence_ids, dropout_key=keys[1], columns=columns)
        mlm_logits = self.mlm_head(hidden[:, :predictions], self.embeddings.word_table())
        if not self.next_sentence:
            return mlm_logits, None
        return mlm_logits, self.nsp_head(self.pooler(hidden[:, predictions:]))


def check_batch(batch: Mapping[str, np.ndarray], config: BertConfig) -> None:
    """Raises ValueError, on the host, for ids that the compiled step would silently clamp.

    Looks at `input_ids`, `segment_ids`, `position_ids` (where absent, the row length counts) and
    `example_columns`.
    """
    length = batch["input_ids"].shape[1]
    limits = {
        "input_ids": (config.vocab_size, "the tokenizer and the model config must belong together"),
        "segment_ids": (config.type_vocab_size, "raise type_vocab_size or use fewer segments"),
        "position_ids": (
            config.max_position_embeddings,
            "shorten the sequences or raise max_position_embeddings",
        ),
        "example_columns": (length, "columns index a row's tokens"),
    }
    if "position_ids" not in batch and length > config.max_position_embeddings:
        raise ValueError(
            f"rows of {length} tokens exceed max_position_embeddings={config.max_position_embeddings}; "
            f"{limits['position_ids'][1]}"
        )
    for name, (limit, remedy) in limits.items():
        values = batch.get(name)
        if values is None or values.size == 0:
            continue
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= limit:
            raise ValueError(f"{name} has {low if low < 0 else high}, outside 0..{limit - 1}; {remedy}")
