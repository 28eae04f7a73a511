"""Models with random parameters of every kind, for what reads and writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bert_jax.data.wordpiece import WordPiece
from bert_jax.interop.layouts import parameters
from bert_jax.interop.translate import nested
from bert_jax.model.config import BertConfig

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghij"),
]
TOKENIZER = WordPiece(PIECES, lowercase=True)
CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=24,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=64,
)
ALBERT = CONFIG.replace(embedding_size=16, num_hidden_groups=2, hidden_act="gelu_new")
HEADS: dict[str, dict[str, int]] = {
    "encoder": {},
    "pre-training": {"pooler": 0, "mlm_head": 0, "nsp_head": 2},
    "masked LM": {"mlm_head": 0},
    "classifier": {"pooler": 0, "classifier": 3},
    "regressor": {"pooler": 0, "regressor": 1},
    "choice": {"pooler": 0, "choice_head": 1},
    "tagger": {"tagging_head": 5},
    "answers": {"qa_head": 2},
}


def random_params(config: BertConfig, heads: dict[str, int], scale: float = 0.2) -> dict[str, Any]:
    """Every number random (normal, with this standard deviation), but for the rows that pad the vocabulary."""
    rng = np.random.default_rng(0)
    values = {}
    for path, shape in parameters(config, heads):
        array = rng.normal(0.0, scale, shape).astype(np.float32)
        if path in ("embeddings/word/embedding", "mlm_head/bias"):
            extra = config.padded_vocab_size - config.vocab_size
            array = np.pad(array, [(0, extra)] + [(0, 0)] * (array.ndim - 1))
        values[path] = array
    return nested(values)
