"""A model as StableHLO: one file that any program with JAX runs without our code.

exported = jax.export.deserialize(Path("DIR/model.stablehlo").read_bytes())
weights = safetensors.numpy.load_file("DIR/model.safetensors")
outputs = exported.call(weights, input_ids, segment_ids, attention_mask)  # int32 [b, t] each, any b and t
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.writing import write_json
from bert_jax.interop.layouts import FOR_TOKENS, TASK_HEADS
from bert_jax.interop.translate import Params, flat, nested
from bert_jax.interop.weight_files import write_safetensors
from bert_jax.model.bert import Bert
from bert_jax.model.config import BertConfig
from bert_jax.model.fine_tuning import BertWithHead
from bert_jax.model.heads import MaskedLanguageModelHead, NextSentenceHead, Pooler

FORMAT_VERSION = 1
PROGRAM, WEIGHTS, SIGNATURE, TOKENIZER = "model.stablehlo", "model.safetensors", "signature.json", "tokenizer"
PLATFORMS = ("cpu", "cuda", "tpu")

Serve = Callable[[dict[str, Array], Array, Array, Array], dict[str, Array]]


def write(
    directory: str | Path,
    config: BertConfig,
    params: Params,
    tokenizer: Tokenizer,
    labels: Sequence[str] | None = None,
    *,
    bilstm_size: int = 0,
) -> str:
    """Writes program, weights, tokenizer and a description of inputs and outputs; returns the outputs' names.

    Batch and length are symbols of the program: it takes any batch, and any length from 2 to max_position_embeddings.
    It is lowered for ``PLATFORMS``. The description comes last.

    Args:
        bilstm_size: of a fine-tuned model with a BiLSTM, see ``BertWithHead``.

    Raises:
        ValueError: no encoder in ``params`` (a tagger on features alone).
    """
    if "encoder" not in params:
        raise ValueError(f"there is no encoder to export, only {', '.join(params)}; give a model that reads tokens")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    weights = {path: np.ascontiguousarray(value) for path, value in flat(params).items()}
    exported = export(serving_function(config, params, bilstm_size), weights, config.max_position_embeddings)
    (directory / PROGRAM).write_bytes(exported.serialize())
    write_safetensors(directory / WEIGHTS, weights)
    tokenizer.save(directory / TOKENIZER)
    outputs = jax.tree.unflatten(exported.out_tree, [str(aval) for aval in exported.out_avals])
    signature = {
        "format_version": FORMAT_VERSION,
        "inputs": {name: "int32[b,t]" for name in ("input_ids", "segment_ids", "attention_mask")},
        "outputs": outputs,
        "max_length": config.max_position_embeddings,
        "vocab_size": config.vocab_size,
        "labels": None if labels is None else list(labels),
        "platforms": list(exported.platforms),
    }
    write_json(directory / SIGNATURE, signature)
    return ", ".join(f"{name} {shape}" for name, shape in outputs.items())


def export(serve: Serve, weights: dict[str, np.ndarray], longest: int) -> jax.export.Exported:
    """The function with batch and length as symbols, lowered for ``PLATFORMS``."""
    # The shortest sequence is [CLS] [SEP]; the model asks whether one column is fewer than all.
    symbols = jax.export.symbolic_shape("b, t", constraints=("t >= 2", f"t <= {longest}"))
    tokens = jax.ShapeDtypeStruct(symbols, jnp.int32)
    shapes = {path: jax.ShapeDtypeStruct(value.shape, value.dtype) for path, value in weights.items()}
    return jax.export.export(jax.jit(serve), platforms=PLATFORMS)(shapes, tokens, tokens, tokens)


def serving_function(config: BertConfig, params: Params, bilstm_size: int = 0) -> Serve:
    """(weights by path, input_ids, segment_ids, attention_mask) -> what the model says of each row.

    A fine-tuned model gives ``logits``: [b, c], or [b, t, c] for tags and answers. Others give ``last_hidden_state``
    [b, t, d] and, of the heads they have, ``pooled`` [b, d], ``mlm_logits`` [b, t, v] and ``nsp_logits`` [b, 2].
    """
    config = config.replace(attention_implementation="xla")  # kernels are of one platform and know no symbols
    head = next((name for name in TASK_HEADS if name in params), None)
    if head is None:
        return _of_encoder(config, params)
    outputs, for_tokens = len(params[head]["bias"]), head in FOR_TOKENS
    module = BertWithHead(
        config, head, outputs, for_tokens, bilstm_size=bilstm_size, concatenated="right_to_left" in params
    )

    def serve(weights: dict[str, Array], input_ids: Array, segment_ids: Array, attention_mask: Array) -> dict[str, Any]:
        positions, last = _positions(input_ids), attention_mask.sum(1, keepdims=True).astype(jnp.int32) - 1
        arguments = (input_ids, segment_ids, attention_mask, positions, jnp.zeros_like(last), last)
        logits: Any = module.apply({"params": nested(weights)}, *arguments)
        return {"logits": logits if for_tokens else logits[:, 0]}

    return serve


def _of_encoder(config: BertConfig, params: Params) -> Serve:
    def serve(weights: dict[str, Array], input_ids: Array, segment_ids: Array, attention_mask: Array) -> dict[str, Any]:
        tree = nested(weights)
        hidden: Any = Bert(config).apply(
            {"params": tree}, input_ids, segment_ids, attention_mask, _positions(input_ids)
        )
        found: dict[str, Any] = {"last_hidden_state": hidden.last_hidden_state}
        if "pooler" in params:
            pooled: Any = Pooler(config).apply({"params": tree["pooler"]}, found["last_hidden_state"][:, :1])
            found["pooled"] = pooled[:, 0]
            if "nsp_head" in params:
                nsp: Any = NextSentenceHead(config).apply({"params": tree["nsp_head"]}, pooled)
                found["nsp_logits"] = nsp[:, 0]
        if "mlm_head" in params:
            head, table = {"params": tree["mlm_head"]}, tree["embeddings"]["word"]["embedding"]
            mlm: Any = MaskedLanguageModelHead(config).apply(head, found["last_hidden_state"], table)
            found["mlm_logits"] = mlm[..., : config.vocab_size]
        return found

    return serve


def _positions(input_ids: Int[Array, "b t"]) -> Int[Array, "b t"]:
    return jnp.broadcast_to(jnp.arange(input_ids.shape[1], dtype=jnp.int32), input_ids.shape)
