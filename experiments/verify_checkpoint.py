"""The same tokens through our model and an independent one: the largest difference of every layer and head."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.tokenizer import Tokenizer
from bert_jax.interop import hugging_face
from bert_jax.interop.stablehlo import serving_function
from bert_jax.interop.translate import flat, nested
from bert_jax.model.bert import Bert
from bert_jax.training.source import GOOGLE, HUGGING_FACE, Model, Source
from experiments.benchmark_step import PEER_PACKAGES, missing_packages

TEXTS = (
    "The quick brown fox jumps over the lazy dog, twice.",
    "In 1443 King Sejong made the Korean alphabet; it was published in 1446. 한글은 1443년 만들어졌다.",
    "Short.",
)
LENGTHS = (48, 33, 20)  # of rows of random ids
# Differences up to so much of the largest value are those of rounding in float32.
TOLERANCE = 1e-4

# The last layer under another name; what transformers' models with heads keep to themselves.
NOT_COMPARED = {"last_hidden_state", "pooled"}

Outputs = dict[str, np.ndarray]


def verify(source: Source, model: Model, tokenizer: Tokenizer) -> str:
    """A table of differences.

    Raises:
        ValueError: PyTorch is not installed, or the two do not agree.
    """
    if missing := missing_packages(*PEER_PACKAGES):
        raise ValueError(f"--verify needs {', '.join(missing)}; pip install '.[peers]'")
    from experiments.peers import torch_checkpoint  # loads PyTorch

    batch = make_batch(tokenizer, source.config.max_position_embeddings, source.config.type_vocab_size)
    if source.kind == GOOGLE:
        theirs = torch_checkpoint.google_outputs(source.directory, batch)
    elif source.kind == HUGGING_FACE:
        theirs = torch_checkpoint.hugging_face_outputs(source.directory, batch)
    else:
        with tempfile.TemporaryDirectory() as folder:
            hugging_face.write(folder, source.config, model.params, tokenizer, model.labels)
            theirs = torch_checkpoint.hugging_face_outputs(Path(folder), batch)
    ours = our_outputs(source, model, batch)
    present = batch["attention_mask"] > 0
    lines = [f"  {'':20} {'largest difference':>20} {'largest value':>16}"]
    wrong = []
    if missing := ours.keys() - theirs.keys() - NOT_COMPARED:
        raise ValueError(f"the independent implementation gives no {', '.join(sorted(missing))} to compare with")
    # transformers makes up a pooler where the file has none.
    for name in (name for name in theirs if name in ours):
        values, expected = ours[name], theirs[name]
        if expected.ndim == 3:
            values, expected = values[present], expected[present]
        difference, largest = float(np.abs(values - expected).max()), float(np.abs(expected).max())
        lines.append(f"  {name:20} {difference:20.2e} {largest:16.3f}")
        if not difference <= TOLERANCE * max(1.0, largest):
            wrong.append(name)
    if wrong:
        print("\n".join(lines))
        raise ValueError(f"{', '.join(wrong)} differ from the independent implementation: this import is not right")
    return "\n".join(lines)


def make_batch(tokenizer: Tokenizer, longest: int, segments: int) -> dict[str, np.ndarray]:
    """Rows of texts and of random ids, of several lengths, padded: int32 input_ids, segment_ids, attention_mask."""
    rng = np.random.default_rng(0)
    ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
    rows = [tokenizer.encode_ids(text) for text in TEXTS] + [rng.choice(ordinary, n).tolist() for n in LENGTHS]
    rows = [[tokenizer.cls_id, *row[: longest - 2], tokenizer.sep_id] for row in rows]
    shape = (len(rows), max(map(len, rows)))
    batch = {name: np.zeros(shape, np.int32) for name in ("input_ids", "segment_ids", "attention_mask")}
    batch["input_ids"][:] = tokenizer.pad_id
    for number, row in enumerate(rows):
        batch["input_ids"][number, : len(row)] = row
        batch["attention_mask"][number, : len(row)] = 1
        if segments > 1:
            batch["segment_ids"][number, len(row) // 2 : len(row)] = 1
    return batch


def our_outputs(source: Source, model: Model, batch: dict[str, np.ndarray]) -> Outputs:
    """By name: "embeddings", "layer 1" ..., and what the heads say, called as ``serving_function`` does."""
    serve = serving_function(source.config, model.params, source.run.get("bilstm_size") or 0)

    @jax.jit
    def everything(weights: dict[str, Any], *tokens: Any) -> tuple[Any, dict[str, Any]]:
        hidden: Any = Bert(source.config).apply({"params": nested(weights)}, *tokens, all_hidden_states=True)
        return hidden.hidden_states, serve(weights, *tokens)

    states, heads = jax.device_get(everything(flat(model.params), *map(jnp.asarray, batch.values())))
    return {"embeddings" if i == 0 else f"layer {i}": state for i, state in enumerate(states)} | heads
