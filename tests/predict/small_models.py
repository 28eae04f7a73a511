"""Predictors with random weights that take milliseconds, and the plain Flax modules to compare them with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.wordpiece import WordPiece
from bert_jax.model.bert import BertForPreTraining
from bert_jax.model.config import BertConfig
from bert_jax.model.fine_tuning import BertWithHead
from bert_jax.predict import Predictor
from bert_jax.tasks import fine_tuning, pretraining
from tests.tiny_model import SPECIAL_TOKENS

WORDS = ["the", "cat", "sat", "on", "mat", "##s", ".", "[unused0]", "[unused1]"]
SIZES = {
    "vocab_size": len(SPECIAL_TOKENS) + len(WORDS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 80,
}
SMALL = BertConfig(**SIZES, initializer_range=0.5)
SENTENCE = "the cat sat on mats . "
# Of many lengths: in tokens with [CLS] and [SEP] 2 to 79.
TEXTS = [" ".join((SENTENCE * 11).split()[:n]) for n in (1, 50, 2, 30, 3, 40, 0, 5, 66, 8)]


def tokenizer() -> WordPiece:
    return WordPiece([*SPECIAL_TOKENS, *WORDS], lowercase=True)


def for_pretraining(**changes: Any) -> Predictor:
    """With the heads of pre-training."""
    config = SMALL.replace(**changes)
    params = pretraining.initial_parameters(BertForPreTraining(config), jax.random.key(1))
    return Predictor(config, tokenizer(), params, name="tiny", step=3)


def with_head(
    head: str, outputs: int, *, labels: Any = None, run: Any = None, figures: Any = None, **changes: Any
) -> Predictor:
    """With one layer on top; ``run`` has bilstm_size and concatenated too."""
    run = run or {}
    module = head_module(head, outputs, SMALL.replace(**changes), run)
    params = fine_tuning.initial_parameters(module, jax.random.key(2))
    return Predictor(module.config, tokenizer(), params, name="tiny", step=3, labels=labels, run=run, figures=figures)


def head_module(head: str, outputs: int, config: BertConfig, run: Any = None) -> BertWithHead:
    options = {name: value for name, value in (run or {}).items() if name in ("bilstm_size", "concatenated")}
    return BertWithHead(config, head, outputs, head in ("tagging_head", "qa_head"), **options)


def ids_of(text: str | tuple[str, str], tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids and segments of a text or pair, joined by hand."""
    first, *second = [text] if isinstance(text, str) else list(text)
    ids = [tokenizer.cls_id, *tokenizer.encode(first, special_tokens=True).ids, tokenizer.sep_id]
    segments = [0] * len(ids)
    for other in second:
        more = [*tokenizer.encode(other, special_tokens=True).ids, tokenizer.sep_id]
        ids, segments = ids + more, segments + [1] * len(more)
    return ids, segments


def row_of(text: str | tuple[str, str], tokenizer: Tokenizer) -> dict[str, Any]:
    """One text alone, without padding, as the modules take it."""
    ids, segments = (jnp.asarray([values], jnp.int32) for values in ids_of(text, tokenizer))
    return {"input_ids": ids, "segment_ids": segments, "sequence_ids": jnp.ones_like(ids)}


def plain_logits(model: Predictor, head: str, text: str | tuple[str, str]) -> np.ndarray:
    """Of a sequence [c], or of tokens [t, c]: straight from ``BertWithHead``, one row without padding."""
    module = head_module(head, len(model.params[head]["bias"]), model.config, model.run)
    row = row_of(text, model.tokenizer)
    length = row["input_ids"].shape[1]
    positions, first = jnp.arange(length, dtype=jnp.int32)[None], jnp.zeros((1, 1), jnp.int32)
    logits: Any = jax.jit(module.apply)({"params": model.params}, *row.values(), positions, first, first + length - 1)
    return np.asarray(logits[0] if module.for_tokens else logits[0, 0])


def plain_shares(logits: np.ndarray) -> np.ndarray:
    return np.asarray(jax.nn.softmax(logits, axis=-1))


def save_peer(directory: Path, architecture: str, **changes: Any) -> Any:
    """transformers' model with random weights, biases and norms too, saved with a vocabulary."""
    torch = pytest.importorskip("torch", reason="directories of PyTorch models are written by torch")
    transformers = pytest.importorskip("transformers", reason="directories are written by transformers")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES | {"initializer_range": 0.3} | changes, attn_implementation="eager")
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(directory)
    (directory / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *WORDS]) + "\n")
    return model


def of_peer(model: Any, text: str | tuple[str, str], **options: Any) -> Any:
    """What transformers' model says of one text or pair."""
    import torch

    ids, segments = ids_of(text, tokenizer())
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments]), **options)
