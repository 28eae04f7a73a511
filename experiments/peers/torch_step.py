"""The peer's worker of ``benchmark_step``: the training step of ``transformers``' ``BertForPreTraining``.

python -m experiments.peers.torch_step '{"size": "base", "seq": 128, "batch": 8, "dtype": "float32"}'
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from bert_jax.model.config import BertConfig
from experiments.benchmark_step import MASK_ID, Setting, predictions_of, synthetic_batch
from experiments.machine import available_cores
from experiments.peers.line_protocol import Channel, serve
from experiments.peers.torch_bert import make_model, tensors


def masked_batch(setting: Setting) -> dict[str, np.ndarray]:
    """The synthetic batch with as many predictions a row as our masking makes."""
    batch = synthetic_batch(setting)
    predictions = predictions_of(setting.seq)
    generator = np.random.default_rng(1)
    # Never [CLS] and the two [SEP].
    free = np.setdiff1d(np.arange(1, setting.seq - 1), [setting.seq // 2])
    positions = np.sort(generator.permuted(np.tile(free, (setting.batch, 1)), axis=1)[:, :predictions])
    targets = np.take_along_axis(batch["input_ids"], positions, axis=1)
    np.put_along_axis(batch["input_ids"], positions, np.int32(MASK_ID), axis=1)
    masked = {"masked_positions": positions, "masked_targets": targets, "masked_weights": np.ones(positions.shape)}
    return batch | masked


def make_step(setting: Setting) -> Callable[[], None]:
    """Forward, backward, clip, fused AdamW, as PyTorch's users write it."""
    torch.manual_seed(0)
    config = BertConfig.of_size(setting.size, vocab_size=setting.vocab_size)
    model = make_model(dataclasses.asdict(config) | {"max_position_embeddings": max(512, setting.seq)})
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-6, weight_decay=0.01, eps=1e-6, fused=True)
    batch = tensors(masked_batch(setting))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=setting.dtype == "bfloat16"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step


def work(setting: Setting) -> None:
    channel = Channel()
    torch.set_num_threads(available_cores())
    step = make_step(setting)

    def run(count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        return seconds

    serve(channel, {"first": lambda: {"seconds": run(2)[0]}, "step": lambda count: {"seconds": run(count)}})


if __name__ == "__main__":
    work(Setting(**json.loads(sys.argv[1])))
