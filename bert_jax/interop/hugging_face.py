"""Reads a Hugging Face BERT directory (``config.json``, ``model.safetensors``) as our config and parameters.

Its tokenizer is read by ``bert_jax.data.tokenizer.load_tokenizer(directory)``. Neither PyTorch nor transformers is
needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from bert_jax.model.config import BertConfig

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# Fields of ours that are not BERT's; transformers' "dtype" is that of the file, ours that of the computation.
OURS_ALONE = ("attention_direction", "dtype", "scan_layers", "remat", "attention_implementation")
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# The word embedding and the masked-LM bias under a second name.
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


class Tensor(NamedTuple):
    """Where a parameter comes from: our path, their name (without ``bert.``), their shape."""

    path: str
    name: str
    shape: tuple[int, ...]


def is_hugging_face(directory: str | Path) -> bool:
    """Whether this is a model directory of transformers, of whatever architecture, with safetensors weights."""
    directory = Path(directory)
    if not (directory / WEIGHTS).is_file() or not (directory / CONFIG).is_file():
        return False
    try:
        values = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(values, dict) and ("model_type" in values or "architectures" in values)


def read_config(directory: str | Path) -> BertConfig:
    """The encoder's config.

    Raises:
        ValueError: not JSON, or a model that our encoder is not (another ``model_type``, relative positions, ...).
    """
    path = Path(directory) / CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return BertConfig.from_dict({key: value for key, value in values.items() if key not in OURS_ALONE})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from None


def read_params(directory: str | Path) -> dict[str, Any]:
    """The parameters at our paths (see ``Bert`` and ``BertForPreTraining``), a nested dict of float32 arrays.

    Embeddings and encoder always; ``pooler``, ``mlm_head`` and ``nsp_head`` where the file has them. Tensors that are
    none of these (a fine-tuned model's classifier) are named on standard error.

    Raises:
        ValueError: a tensor is missing or of another shape, or the masked-LM decoder is not the word embedding.
    """
    config, path = read_config(directory), Path(directory) / WEIGHTS
    try:
        with safe_open(path, framework="np") as file:
            stored = {_plain_name(name): name for name in file.keys()}  # noqa: SIM118  (it is no dict)
            used = {t.name for t in _tensors(config, stored)} | TIED.keys() | set(BUFFERS)
            values = {name: file.get_tensor(key) for name, key in stored.items() if name in used}
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read ({error}): copy it again") from None
    if unused := sorted(key for name, key in stored.items() if name not in used):
        print(f"{path}: unused tensors: {_listed(unused)}", file=sys.stderr)
    try:
        return _tree(config, values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _tree(config: BertConfig, values: dict[str, np.ndarray]) -> dict[str, Any]:
    for copy, name in TIED.items():
        value = values.pop(copy, None)
        if value is not None and not np.array_equal(values.setdefault(name, value), value):
            raise ValueError(f"{copy} differs from {name}: this encoder's masked-LM head is tied")
    wanted = _tensors(config, values)
    if missing := [tensor.name for tensor in wanted if tensor.name not in values]:
        raise ValueError(f"missing {_listed(missing)}; give the directory of a whole BERT model")
    params: dict[str, Any] = {}
    for tensor in wanted:
        value = values[tensor.name].astype(np.float32)
        if value.shape != tensor.shape:
            raise ValueError(
                f"{tensor.name} is {value.shape} but {tensor.shape} by {CONFIG}: they must belong together"
            )
        *parents, leaf = tensor.path.split("/")
        if leaf == "kernel":
            value = np.ascontiguousarray(value.T)
        elif tensor.path in ("embeddings/word/embedding", "mlm_head/bias"):
            extra = config.padded_vocab_size - config.vocab_size
            value = np.pad(value, [(0, extra)] + [(0, 0)] * (value.ndim - 1))
        node = params
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return params


def _tensors(config: BertConfig, names: Iterable[str]) -> list[Tensor]:
    """What the encoder needs, and each head of which there is anything in the file."""
    d, v = config.hidden_size, config.vocab_size
    tensors = [
        Tensor("embeddings/word/embedding", "embeddings.word_embeddings.weight", (v, d)),
        Tensor(
            "embeddings/position/embedding",
            "embeddings.position_embeddings.weight",
            (config.max_position_embeddings, d),
        ),
        Tensor("embeddings/segment/embedding", "embeddings.token_type_embeddings.weight", (config.type_vocab_size, d)),
        *_layer_norm("embeddings/layer_norm", "embeddings.LayerNorm", d),
    ]
    for i in range(config.num_hidden_layers):
        tensors += _layer(f"encoder/layer_{i}", f"encoder.layer.{i}", d, config.intermediate_size)
    heads = {
        "pooler.": _dense("pooler", "pooler.dense", d, d),
        "cls.predictions.": [
            *_dense("mlm_head/dense", "cls.predictions.transform.dense", d, d),
            *_layer_norm("mlm_head/layer_norm", "cls.predictions.transform.LayerNorm", d),
            Tensor("mlm_head/bias", "cls.predictions.bias", (v,)),
        ],
        "cls.seq_relationship.": _dense("nsp_head", "cls.seq_relationship", d, 2),
    }
    for prefix, head in heads.items():
        if any(name.startswith(prefix) for name in names):
            tensors += head
    return tensors


def _layer(path: str, name: str, d: int, f: int) -> list[Tensor]:
    attention = [
        tensor
        for part in ("query", "key", "value")
        for tensor in _dense(f"{path}/attention/{part}", f"{name}.attention.self.{part}", d, d)
    ]
    return [
        *attention,
        *_dense(f"{path}/attention/output", f"{name}.attention.output.dense", d, d),
        *_layer_norm(f"{path}/attention/layer_norm", f"{name}.attention.output.LayerNorm", d),
        *_dense(f"{path}/feed_forward/intermediate", f"{name}.intermediate.dense", d, f),
        *_dense(f"{path}/feed_forward/output", f"{name}.output.dense", f, d),
        *_layer_norm(f"{path}/feed_forward/layer_norm", f"{name}.output.LayerNorm", d),
    ]


def _dense(path: str, name: str, inputs: int, outputs: int) -> list[Tensor]:
    # PyTorch keeps [outputs, inputs].
    return [
        Tensor(f"{path}/kernel", f"{name}.weight", (outputs, inputs)),
        Tensor(f"{path}/bias", f"{name}.bias", (outputs,)),
    ]


def _layer_norm(path: str, name: str, d: int) -> list[Tensor]:
    return [Tensor(f"{path}/scale", f"{name}.weight", (d,)), Tensor(f"{path}/bias", f"{name}.bias", (d,))]


def _plain_name(name: str) -> str:
    """Without the prefix that models with a head give their encoder; LayerNorm's parameters as called today."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
