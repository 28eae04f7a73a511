"""Arrays to arrays: BERT's embeddings, encoder and heads as Flax Linen modules; no files, no tokens."""

from bert_jax.model.bert import Bert, BertForPreTraining, EncoderOutput, check_batch
from bert_jax.model.config import BertConfig, released_sizes
from bert_jax.model.heads import MaskedLanguageModelHead, NextSentenceHead, Pooler

__all__ = [
    "Bert",
    "BertConfig",
    "BertForPreTraining",
    "EncoderOutput",
    "MaskedLanguageModelHead",
    "NextSentenceHead",
    "Pooler",
    "check_batch",
    "released_sizes",
]
