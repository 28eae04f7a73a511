"""The peer's worker of ``benchmark_step`` and ``gpu_check``: a step of ``transformers``' ``BertForPreTraining``.

python -m experiments.peers.torch_step '{"size": "base", "seq": 128, "batch": 8, "dtype": "float32"}'

``"device": "cuda"`` puts it on the GPU; ``"backend"`` is that of ``torch.compile``. bfloat16 is autocast, as PyTorch's
users train in it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from bert_jax.model.config import BertConfig
from experiments.benchmark_step import MASK_ID, Setting, predictions_of, seconds_of_rounds, synthetic_batch
from experiments.machine import available_cores
from experiments.peers.line_protocol import Channel, failures_told, serve
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


class TorchStep:
    """Forward, backward, clip, fused AdamW, as PyTorch's users write it; eager, and through ``torch.compile``.

    Both share parameters and optimizer.
    """

    def __init__(self, setting: Setting, device: str = "cpu", backend: str = "inductor") -> None:
        torch.manual_seed(0)
        config = BertConfig.of_size(setting.size, vocab_size=setting.vocab_size)
        fields = dataclasses.asdict(config) | {"max_position_embeddings": max(512, setting.seq)}
        self.device, self.backend, self.model = device, backend, make_model(fields).to(device)
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-6, weight_decay=0.01, eps=1e-6, fused=True)
        self.batch = {name: value.to(device) for name, value in tensors(masked_batch(setting)).items()}
        self.autocast = setting.dtype == "bfloat16"

    @cached_property
    def compiled(self) -> Any:
        """The model through ``torch.compile``, which works at the first call."""
        return torch.compile(self.model, backend=self.backend)

    def first(self, compiled: bool = False) -> dict[str, Any]:
        """Seconds of the first of two steps; compilation works in it."""
        return {"seconds": self.run(2, compiled)[0]}

    def run(self, count: int, compiled: bool = False) -> list[float]:
        """Seconds of each of ``count`` steps."""
        return [self.run_queued(1, compiled) for _ in range(count)]

    def run_queued(self, count: int, compiled: bool = False) -> float:
        """Seconds of ``count`` steps, of which only the last is waited for."""
        start, loss = time.perf_counter(), torch.zeros(())
        for _ in range(count):
            loss = self._step(self.compiled if compiled else self.model)
        loss.item()  # after all that was sent off before it
        return time.perf_counter() - start

    def measure(self, rounds: int, seconds: float, compiled: bool = False) -> dict[str, Any]:
        """Seconds a step of each round of about ``seconds``, and the most memory taken, in GB."""
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        found = seconds_of_rounds(lambda count: self.run_queued(count, compiled), rounds, seconds)
        memory = torch.cuda.max_memory_allocated() / 1e9 if self.device == "cuda" else None
        return {"seconds": found, "memory_gb": memory}

    def matmul(self, shapes: Sequence[Sequence[int]], queued: int) -> dict[str, float]:
        """GFLOP/s of [m, k] @ [k, n] in bfloat16, the best of 3 times ``queued`` products."""
        speeds = {}
        for m, k, n in shapes:
            a = torch.randn(m, k, device=self.device, dtype=torch.bfloat16)
            b = torch.randn(k, n, device=self.device, dtype=torch.bfloat16)
            (a @ b)[0, 0].item()
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                product = a @ b
                for _ in range(queued - 1):
                    product = a @ b
                product[0, 0].item()
                seconds.append((time.perf_counter() - start) / queued)
            speeds[f"torch {m}x{k}x{n}"] = 2e-9 * m * k * n / min(seconds)
        return speeds

    def _step(self, model: Any) -> torch.Tensor:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            loss = model(**self.batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def work(device: str = "cpu", backend: str = "inductor", **setting: Any) -> None:
    channel = Channel()
    torch.set_num_threads(available_cores())
    step = TorchStep(Setting(**setting), device, backend)
    serve(
        channel,
        {
            "first": failures_told(step.first),
            "step": lambda count: {"seconds": step.run(count)},
            "measure": failures_told(step.measure),
            "matmul": step.matmul,
        },
    )


if __name__ == "__main__":
    work(**json.loads(sys.argv[1]))
