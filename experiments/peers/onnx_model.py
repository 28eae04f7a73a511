"""ONNX Runtime on the same weights, exported from PyTorch with batch and length as symbols.

python -m experiments.peers.onnx_model '{"model": "DIR", "texts": "FILE"}'
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import onnxruntime
import torch
import transformers

from experiments.peers.line_protocol import Channel, serve

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class _Outputs(torch.nn.Module):
    """Logits, or the last hidden states, by position rather than by name."""

    def __init__(self, model: Any, field: str) -> None:
        super().__init__()
        self.model, self.field = model, field

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return output[self.field]


def session(model: Any, field: str, folder: str) -> onnxruntime.InferenceSession:
    """With every optimization of the graph that ONNX Runtime has, on all cores."""
    path = f"{folder}/{field}.onnx"
    example = tuple(torch.ones((2, 16), dtype=torch.int64) for _ in INPUTS)
    symbols = {name: {0: torch.export.Dim("b"), 1: torch.export.Dim("t")} for name in INPUTS}
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Outputs(model, field).eval(), example, path, input_names=list(INPUTS), dynamic_shapes=symbols, dynamo=True
        )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = os.cpu_count() or 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def work(settings: dict[str, str]) -> None:
    """``classify(batch_size)`` and ``embed(batch_size)`` of all texts."""
    channel = Channel()
    texts = json.loads(Path(settings["texts"]).read_text(encoding="utf-8"))
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(settings["model"], local_files_only=True)
    load = {"local_files_only": True, "attn_implementation": "sdpa"}
    with tempfile.TemporaryDirectory() as folder:
        classifier: Any = transformers.AutoModelForSequenceClassification.from_pretrained(settings["model"], **load)
        encoder: Any = transformers.AutoModel.from_pretrained(settings["model"], **load)
        sessions = {
            "logits": session(classifier, "logits", folder),
            "last_hidden_state": session(encoder, "last_hidden_state", folder),
        }

    def batches(field: str, batch_size: int) -> Any:
        """(outputs, mask) of texts in their order, padded to the longest of each batch."""
        for first in range(0, len(texts), batch_size):
            part = texts[first : first + batch_size]
            batch = tokenizer(part, truncation=True, padding=True, return_tensors="np")
            given = {name: np.asarray(batch[name], np.int64) for name in INPUTS}
            yield sessions[field].run(None, given)[0], given["attention_mask"]

    def classify(batch_size: int) -> dict[str, Any]:
        start = time.perf_counter()
        logits = np.concatenate([outputs for outputs, _ in batches("logits", batch_size)])
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        return {"seconds": time.perf_counter() - start, "result": shares.tolist()}

    def embed(batch_size: int) -> dict[str, Any]:
        start = time.perf_counter()
        means = [
            np.einsum("btd,bt->bd", states, mask.astype(np.float32)) / mask.sum(1, keepdims=True)
            for states, mask in batches("last_hidden_state", batch_size)
        ]
        vectors = np.concatenate(means)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return {"seconds": time.perf_counter() - start, "result": vectors[:, :4].tolist()}

    serve(channel, {"classify": classify, "embed": embed})


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
