"""``transformers`` pipelines: the peer that most people use.

python -m experiments.peers.torch_pipeline '{"model": "DIR", "texts": "FILE"}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import transformers

from experiments.peers.line_protocol import Channel, serve

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def work(settings: dict[str, str]) -> None:
    """``classify(batch_size)`` and ``embed(batch_size)`` of all texts."""
    channel = Channel()
    texts = json.loads(Path(settings["texts"]).read_text(encoding="utf-8"))
    options: dict[str, Any] = {"model": settings["model"], "tokenizer": settings["model"], "device": "cpu"}
    classifier: Any = transformers.pipeline("text-classification", **options)
    extractor: Any = transformers.pipeline("feature-extraction", **options)

    def classify(batch_size: int) -> dict[str, Any]:
        start = time.perf_counter()
        found = classifier(texts, batch_size=batch_size, truncation=True, top_k=None)
        seconds = time.perf_counter() - start
        shares = [{one["label"]: one["score"] for one in many} for many in found]
        return {"seconds": seconds, "result": [[one[label] for label in ("no", "maybe", "yes")] for one in shares]}

    # In a batch the pipeline gives no mask: how long the texts are is worked out before the clock starts.
    lengths = [len(ids) for ids in extractor.tokenizer(texts, truncation=True)["input_ids"]]

    def embed(batch_size: int) -> dict[str, Any]:
        """The mean over tokens."""
        start = time.perf_counter()
        arguments = {"batch_size": batch_size, "return_tensors": True, "tokenize_kwargs": {"truncation": True}}
        found = [tensor[0].numpy() for tensor in extractor(texts, **arguments)]
        means = np.stack([states[:length].mean(0) for states, length in zip(found, lengths, strict=True)])
        vectors = means / np.linalg.norm(means, axis=1, keepdims=True)
        return {"seconds": time.perf_counter() - start, "result": vectors[:, :4].tolist()}

    serve(channel, {"classify": classify, "embed": embed})


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
