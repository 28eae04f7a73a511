"""Forward passes of checkpoints in PyTorch: ``transformers``' own model, and Google's names by a forward pass of ours.

The second knows nothing of ``bert_jax.model`` and of its parameters' paths: it follows ``modeling.py`` of
google-research/bert and google-research/albert tensor by tensor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from torch.nn import functional

from bert_jax.interop.tensor_bundle import read_tensors

transformers.utils.logging.disable_progress_bar()

Outputs = dict[str, np.ndarray]
# Fields of transformers' outputs -> ours.
FIELDS = {
    "prediction_logits": "mlm_logits",
    "seq_relationship_logits": "nsp_logits",
    "sop_logits": "nsp_logits",
    "pooler_output": "pooled",
}

# Architectures whose "logits" are those of a pre-training head.
LOGITS = {"ForMaskedLM": "mlm_logits", "LMHeadModel": "mlm_logits", "ForNextSentencePrediction": "nsp_logits"}


@torch.no_grad()
def hugging_face_outputs(directory: Path, batch: Mapping[str, np.ndarray]) -> Outputs:
    """What ``transformers`` computes with the architecture that the config names.

    Raises:
        ValueError: it cannot read the files (Flax's, which it gave up).
    """
    names = transformers.AutoConfig.from_pretrained(directory, local_files_only=True).architectures or [None]
    kind: Any = getattr(transformers, names[0] or "AutoModel", transformers.AutoModel)
    try:
        model = kind.from_pretrained(directory, local_files_only=True).eval().float()
    except OSError as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"transformers cannot read {directory} ({reason}); import without --verify") from None
    given = {name: torch.from_numpy(np.asarray(values, np.int64)) for name, values in batch.items()}
    segments = given.pop("segment_ids")
    chooses = "MultipleChoice" in kind.__name__
    rows = {name: value[:, None] if chooses else value for name, value in given.items()}
    if getattr(model.config, "type_vocab_size", 1) > 1:
        rows["token_type_ids"] = segments[:, None] if chooses else segments
    output = model(**rows, output_hidden_states=True)
    found = {"embeddings" if i == 0 else f"layer {i}": state for i, state in enumerate(output.hidden_states)}
    for field, name in FIELDS.items():
        if getattr(output, field, None) is not None:
            found[name] = getattr(output, field)
    if "start_logits" in output:
        found["logits"] = torch.stack([output.start_logits, output.end_logits], -1)
    elif "logits" in output:
        ending = next((ending for ending in LOGITS if kind.__name__.endswith(ending)), "")
        found[LOGITS.get(ending, "logits")] = output.logits
    return {name: value.numpy() for name, value in found.items()}


@torch.no_grad()
def google_outputs(directory: Path, batch: Mapping[str, np.ndarray]) -> Outputs:
    """What Google's BERT or ALBERT computes: each layer, the pooled vector, and the heads that are there."""
    config = next(
        directory / name for name in ("albert_config.json", "bert_config.json") if (directory / name).exists()
    )
    (index,) = directory.glob("*.index")
    stored = read_tensors(index.with_suffix(""))
    model = _Google(json.loads(config.read_text(encoding="utf-8")), {n: _tensor(v) for n, v in stored.items()})
    given = {name: torch.from_numpy(np.asarray(values, np.int64)) for name, values in batch.items()}
    found = model.layers(given["input_ids"], given["segment_ids"], given["attention_mask"])
    return {name: value.numpy() for name, value in (found | model.heads(list(found.values())[-1])).items()}


class _Google:
    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        self.config, self.tensors = config, tensors
        # ALBERT's gelu() is the tanh form; BERT's was erf when the released models were trained.
        self.approximate = "tanh" if "embedding_size" in config else "none"

    def layers(self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        get = self.tensors.__getitem__
        x = functional.embedding(ids, get("bert/embeddings/word_embeddings"))
        x = x + functional.embedding(segments, get("bert/embeddings/token_type_embeddings"))
        x = x + get("bert/embeddings/position_embeddings")[: ids.shape[1]]
        x = self.norm(x, "bert/embeddings/LayerNorm")
        if "embedding_size" in self.config:
            x = self.dense(x, "bert/encoder/embedding_hidden_mapping_in")
        found = {"embeddings": x}
        bias = (1.0 - mask[:, None, None].float()) * -10000.0
        for i in range(self.config["num_hidden_layers"]):
            x = self.albert_layer(x, bias, i) if "embedding_size" in self.config else self.bert_layer(x, bias, i)
            found[f"layer {i + 1}"] = x
        return found

    def bert_layer(self, x: torch.Tensor, bias: torch.Tensor, i: int) -> torch.Tensor:
        scope = f"bert/encoder/layer_{i}"
        attended = self.dense(self.attend(x, bias, f"{scope}/attention/self"), f"{scope}/attention/output/dense")
        x = self.norm(x + attended, f"{scope}/attention/output/LayerNorm")
        inner = functional.gelu(self.dense(x, f"{scope}/intermediate/dense"), approximate=self.approximate)
        return self.norm(x + self.dense(inner, f"{scope}/output/dense"), f"{scope}/output/LayerNorm")

    def albert_layer(self, x: torch.Tensor, bias: torch.Tensor, i: int) -> torch.Tensor:
        group = i * self.config["num_hidden_groups"] // self.config["num_hidden_layers"]
        scope = f"bert/encoder/transformer/group_{group}/inner_group_0"
        attended = self.attend(x, bias, f"{scope}/attention_1/self")
        x = self.norm(x + self.dense(attended, f"{scope}/attention_1/output/dense"), f"{scope}/LayerNorm")
        inner = functional.gelu(self.dense(x, f"{scope}/ffn_1/intermediate/dense"), approximate=self.approximate)
        return self.norm(x + self.dense(inner, f"{scope}/ffn_1/intermediate/output/dense"), f"{scope}/LayerNorm_1")

    def attend(self, x: torch.Tensor, bias: torch.Tensor, scope: str) -> torch.Tensor:
        heads = self.config["num_attention_heads"]
        query, key, value = (
            self.dense(x, f"{scope}/{name}").unflatten(-1, (heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5 + bias
        return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)

    def heads(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        get, found = self.tensors.get, {}
        if "bert/pooler/dense/kernel" in self.tensors:
            found["pooled"] = torch.tanh(self.dense(x[:, 0], "bert/pooler/dense"))
        weights = get("cls/seq_relationship/output_weights")
        if weights is not None:
            found["nsp_logits"] = found["pooled"] @ weights.T + self.tensors["cls/seq_relationship/output_bias"]
        if "cls/predictions/output_bias" in self.tensors:
            y = functional.gelu(self.dense(x, "cls/predictions/transform/dense"), approximate=self.approximate)
            y = self.norm(y, "cls/predictions/transform/LayerNorm")
            table = self.tensors["bert/embeddings/word_embeddings"]
            found["mlm_logits"] = y @ table.T + self.tensors["cls/predictions/output_bias"]
        if "output_weights" in self.tensors:  # a classifier's, on the pooled vector
            found = {"logits": found["pooled"] @ self.tensors["output_weights"].T + self.tensors["output_bias"]}
        elif "cls/squad/output_weights" in self.tensors:
            logits = x @ self.tensors["cls/squad/output_weights"].T + self.tensors["cls/squad/output_bias"]
            found = {"logits": logits}
        return found

    def dense(self, x: torch.Tensor, scope: str) -> torch.Tensor:
        return x @ self.tensors[f"{scope}/kernel"] + self.tensors[f"{scope}/bias"]

    def norm(self, x: torch.Tensor, scope: str) -> torch.Tensor:
        scale, bias = self.tensors[f"{scope}/gamma"], self.tensors[f"{scope}/beta"]
        return functional.layer_norm(x, x.shape[-1:], scale, bias, eps=1e-12)


def _tensor(value: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(value, np.float32))
